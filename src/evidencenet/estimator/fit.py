"""Split the draws, choose a plan, and fit the networks."""

from dataclasses import dataclass, replace

import numpy as np

from evidencenet import losses
from evidencenet._common.warnings import log
from evidencenet.estimator.arguments import Request
from evidencenet.estimator.partner import Partner
from evidencenet.training.checkpoint import trials_path
from evidencenet.training.compiled import keep_compiled_programs
from evidencenet.training.inputs import Inputs, prepare, with_reference
from evidencenet.training.loop import Checkpoint, Trained, initialise_members
from evidencenet.training.recipe import Recipe
from evidencenet.training.search import FIRST_LOSS, Freedom, Rival, Search
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer
from evidencenet.training.trials import TrialFile

# Members that are trained on the sample where networks may have nothing to learn: one for each of two cores.
_PROBES = 2


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted ensemble, and what it was fitted with.

    Parameters
    ----------
    inputs
        The draws, prepared for the plan that was chosen.
    trained
        The ensemble.
    trainer, recipe
        What trained it, and by which recipe.
    search
        The search for the plan; None if the user named a recipe.
    partner
        A network of another kind that improves the mean; None if there is none.
    """

    inputs: Inputs
    trained: Trained
    trainer: Trainer
    recipe: Recipe
    search: Search | None
    partner: Partner | None = None

    @property
    def rival(self) -> Rival | None:
        """The best network of another kind, if one was trained on all draws.

        The search sees only a sample of a stream. A rival of that says little about networks of all draws.
        """
        if self.search is None or self.inputs.draws.stream is not None:
            return None
        return self.search.rival

    @property
    def log_odds(self) -> np.ndarray:
        """Log-odds of the held-out draws by each member, with the partner's part, (members, n, K)."""
        own = self.trained.log_odds[:, : len(self.inputs.draws.held_out_rows)]
        if self.partner is None:
            return own
        rival = self.rival
        assert rival is not None
        assert rival.trained is not None
        return self.partner.joined(own, rival.trained.log_odds[:, : own.shape[1]].mean(axis=0))


def choose_and_fit(request: Request) -> Fit:
    """Split the draws into training draws and held-out draws, choose a plan, and fit an ensemble by it."""
    keep_compiled_programs()
    sims, seeds = request.sims, request.seeds
    outputs = losses.outputs(len(sims.names))
    trainer = Trainer(
        outputs, request.recipe or Recipe(), seeds.order, seeds.weights, request.executor, request.budget
    )
    draws = Draws.split(
        sims,
        trainer.recipe.held_out,
        request.augment,
        seeds.split,
        request.layout,
        request.network,
        held_out_draws=request.held_out,
    )
    if request.stream is not None:
        draws = replace(draws, stream=request.stream, counts=np.array(request.stream.counts))
        if request.baseline is not False and (request.recipe is None or request.baseline):
            draws = with_reference(draws)
    if request.network is not None:
        # A network of the user's own may fail: then at once, and with a reason.
        initialise_members(request.network, draws.arranged_example, outputs, 1, 0)
    freedom = Freedom.of(draws, request.network, request.loss, request.baseline, request.recipe)
    if not request.learn_error:
        # Second opinions are asked for the error of log K alone.
        freedom = replace(freedom, opinions=())
    run, path = request.run(), request.checkpoint
    search = None
    if request.recipe is None:
        trials = None if path is None else TrialFile(trials_path(path), run)
        search = Search(draws.sample(), trainer, freedom, trials)
        plan = search.run(progress=request.progress)
        tried = search.choice
        log.info("training %s, the best of %d tried on %d draws", plan, len(tried.trials), tried.draws)
    else:
        # The paper's loss squares what an evidence head gives, and that is log K already.
        has_evidence_head = bool(getattr(freedom.architectures[0], "nodes", 0))
        plan = freedom.first_plan(FIRST_LOSS if has_evidence_head else losses.LPopExponential())
    inputs = prepare(draws, plan)
    recipe = trainer.sized(inputs)
    if path is None:
        doubtful = search is not None and plan.baseline and not search.learned(plan)
        trained = None
        if doubtful and draws.stream is not None:
            trained = _only_baseline(inputs, trainer, request.members, request.progress)
        if trained is None:
            trained = trainer.fit_unless_idle(
                inputs,
                recipe,
                request.members,
                doubtful=doubtful and draws.stream is None,
                progress=request.progress,
            )
    else:
        state = Checkpoint(path, run | {"the plan": str(plan)})
        trained = trainer.fit(inputs, recipe, request.members, progress=request.progress, checkpoint=state)
    fit = Fit(inputs, trained, trainer, recipe, search)
    return replace(fit, partner=Partner.fit(inputs, trained, fit.rival))


def _only_baseline(inputs: Inputs, trainer: Trainer, members: int, progress: bool) -> Trained | None:
    """Train two networks on the sample; return them if they do not improve on the baseline of all draws.

    Then many more draws, which take much longer, are not worth it: log K is the baseline's. Else return None.
    """
    sample = inputs.on_sample()
    probes = trainer.fit(sample, trainer.sized(sample), min(members, _PROBES), progress=progress)
    return None if probes.gain.any() else probes.repeated(members)
