"""`Request`: what a user asked of `train`, checked; a clear message for everything that is not understood."""

import difflib
import inspect
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arguments import checked_seed, whole
from evidencenet._common.arrays import kind_of
from evidencenet._common.executors import checked_executor
from evidencenet.estimator.given import Given
from evidencenet.estimator.train_with_densities import KnownDensities
from evidencenet.networks.architectures import BUILT_IN
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.paths import are_paths
from evidencenet.simulation.stream import Stream
from evidencenet.training.checkpoint import run_fingerprint
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment

# Words that people use for an architecture, besides its name.
_OTHER_NAMES = {
    "set": "DeepSet",
    "series": "Sequence",
    "timeseries": "Sequence",
    "convolution": "Image",
    "cnn": "Image",
    "conv": "Image",
    "mlp": "Dense",
    "rnn": "Recurrence",
    "fourier": "Spectrum",
    "vector": "Dense",
}


# Words that people use for a loss, besides its name.
_OTHER_LOSSES = {"bce": "Logistic", "binary cross entropy": "Logistic", "mse": "Squared"}


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `train`, checked; names are replaced by what they stand for.

    `known` are the known densities, if there are any. `sims` are the draws that networks are trained on: then
    draws of a reference are among them. `stream`, `held_out` and `about_stream` are those of `Given`.
    """

    sims: Simulations
    loss: losses.Loss | None
    network: networks.Architecture | None
    members: int
    recipe: Recipe | None
    baseline: bool | None
    augment: Augment | None
    layout: str | Mapping[str, str] | None
    learn_error: bool
    seed: int
    progress: bool
    checkpoint: Path | None
    executor: Any = None
    budget: float = 1.0
    known: KnownDensities | None = None
    stream: Stream | None = None
    held_out: np.ndarray | None = None
    about_stream: str | None = None

    @staticmethod
    def checked(
        sims: Any,
        models: Any,
        draws: Any,
        workers: int,
        loss: Any,
        network: Any,
        members: Any,
        recipe: Any,
        baseline: bool | None,
        augment: Any,
        layout: str | Mapping[str, str] | None,
        learn_error: bool,
        seed: Any,
        progress: bool,
        checkpoint: str | os.PathLike[str] | None,
        executor: Any = None,
        budget: Any = 1.0,
    ) -> "Request":
        """Check all arguments of `train`, whose parameters these are."""
        loss, network, seed = checked_loss(loss), checked_network(network), checked_seed(seed, stacklevel=5)
        check_others(recipe, baseline, augment, loss)
        if executor is not None and checkpoint is not None:
            raise ValueError(
                "checkpoint= keeps the state of members that are trained here, and executor= trains them "
                "elsewhere. Leave one of them out."
            )
        given = Given.of(
            sims,
            models,
            draws,
            seed=seed,
            workers=workers,
            epochs=None if recipe is None else recipe.epochs,
            held_out=(recipe or Recipe()).held_out,
            progress=progress,
        )
        sims = checked_simulations(given.sims)
        request = Request(
            sims,
            loss,
            network,
            whole("members", members, 1),
            recipe,
            baseline,
            augment,
            layout,
            learn_error,
            seed,
            progress,
            None if checkpoint is None else Path(checkpoint),
            None if executor is None else checked_executor(executor),
            checked_budget(budget, recipe),
            stream=given.stream,
            held_out=given.held_out,
            about_stream=given.about,
        )
        if sims.log_density is None:
            return request
        known = KnownDensities.of(sims, augment, request.seeds.split, loss)
        return replace(request, known=known, sims=known.classes)

    @property
    def seeds(self) -> "Seeds":
        """Seeds of the parts of a training, all from the one seed."""
        return Seeds.of(self.seed)

    @property
    def nothing_to_learn(self) -> bool:
        """Whether all densities are known."""
        return self.known is not None and self.known.all

    def run(self) -> dict[str, str]:
        """Identify the run that a checkpoint belongs to; empty if there is no checkpoint."""
        if self.checkpoint is None:
            return {}
        settings = {
            "seed": self.seed,
            "members": self.members,
            "the recipe": self.recipe,
            "baseline": self.baseline,
            "layout": self.layout,
            "the budget": self.budget,
        }
        if self.about_stream is not None:
            settings["the draws that are not in memory"] = self.about_stream
        return run_fingerprint(
            self.sims, augment=self.augment, network=self.network, loss=self.loss, settings=settings
        )


class Seeds(NamedTuple):
    """Seeds of the split, of the order of the draws, of the initial weights, and of the halves."""

    split: int
    order: int
    weights: int
    error: int

    @staticmethod
    def of(seed: int) -> "Seeds":
        """Derive the four seeds from one."""
        return Seeds(*(int(number) for number in np.random.SeedSequence(seed).generate_state(4)))


def checked_simulations(sims: Any) -> Simulations:
    """Return simulations of two models or more, or say what is wrong with them."""
    if not isinstance(sims, Simulations):
        raise TypeError(f"train takes Simulations, got {kind_of(sims)}. {_instead(sims)}")
    if len(sims.names) < 2:
        raise ValueError(f"there is only one model, {sims.names[0]!r}; a comparison needs two or more.")
    return sims


def _instead(given: Any) -> str:
    """Say what to give to `train` instead of something else."""
    members = list(given) if isinstance(given, list | tuple | set | frozenset) else []
    if members and all(isinstance(one, Simulations) for one in members):
        return "Put them together first: train(Simulations.concatenate(parts))."
    if isinstance(given, dict) and given and all(are_paths(one) for one in given.values()):
        return "Read the files first: train(Simulations.read({'first': 'a.zarr', 'second': 'b.zarr'}))."
    if members and any(isinstance(one, str | os.PathLike) for one in members):
        return "Several stores are a list of paths: train(['a.zarr', 'b.zarr'])."
    if isinstance(given, Iterator):
        return "Several stores are a list of paths: train(sorted(folder.glob('*.zarr')))."
    if type(given).__module__.startswith("zarr"):
        return "Give the path of the folder: train('draws.zarr')."
    return (
        "Make them with simulate(models, n), or from arrays with Simulations(x, model); or give models, "
        "train(models=[first, second], draws=100_000)."
    )


def checked_loss(loss: Any) -> losses.Loss | None:
    """Return a loss, given as such or by its name ("logistic"); None stays None."""
    if isinstance(loss, str):
        known = {name: kind for name, kind in vars(losses).items() if _is_loss(kind)}
        return _by_name("loss", loss, known | {name: known[of] for name, of in _OTHER_LOSSES.items()})()
    if isinstance(loss, type) and issubclass(loss, losses.Loss):
        return loss()
    if loss is not None and not isinstance(loss, losses.Loss):
        raise TypeError(
            f'loss = {loss!r}; wanted one of evidencenet.losses, such as losses.Logistic() or "logistic".'
        )
    return loss


def checked_budget(budget: Any, recipe: Recipe | None) -> float:
    """Return by which factor training may be longer than usual."""
    if isinstance(budget, bool) or not isinstance(budget, int | float | np.number):
        raise TypeError(f"budget = {budget!r}; wanted a number, such as 2 for twice the usual time.")
    if not 0 < budget < np.inf:
        raise ValueError(f"budget = {budget}; wanted a number above 0, such as 2 for twice the usual time.")
    if budget != 1 and recipe is not None and recipe.epochs is not None:
        raise ValueError(
            f"budget = {budget:g}, but the recipe names {recipe.epochs} epochs, which is how long training "
            "takes. Leave one of them out."
        )
    return float(budget)


def checked_network(network: Any) -> networks.Architecture | None:
    """Return an architecture, given as such, as its class, by its name ("image"), or as a user's function."""
    if network is None:
        return None
    if isinstance(network, str):
        known = {**BUILT_IN, **{alias: BUILT_IN[name] for alias, name in _OTHER_NAMES.items()}}
        architecture: networks.Architecture = _by_name("network", network, known)()
        return architecture
    if isinstance(network, type) and network in BUILT_IN.values():
        built: networks.Architecture = network()
        return built
    if type(network).__module__.startswith("torch") or hasattr(network, "state_dict"):
        raise TypeError(
            f"network is {kind_of(network)} of PyTorch, and networks here are JAX: give one of "
            "evidencenet.networks, its name, or a function network(x, outputs, key=key) that builds an "
            "Equinox module."
        )
    if isinstance(network, eqx.Module):
        raise TypeError(
            f"network is {kind_of(network)}, a module that is built already. Each member needs weights of "
            "its own: give a function network(x, outputs, key=key) that builds one."
        )
    if not callable(network):
        raise TypeError(
            f"network = {network!r}; wanted one of evidencenet.networks, its name, or a function "
            "network(x, outputs, key=key) that builds an Equinox module."
        )
    _check_signature(network)
    return network


def check_others(recipe: Any, baseline: bool | None, augment: Any, loss: losses.Loss | None) -> None:
    """Check the recipe, the symmetry, and that the loss can use a baseline."""
    if recipe is not None and not isinstance(recipe, Recipe):
        raise TypeError(f"recipe = {recipe!r}; wanted a Recipe, such as Recipe(epochs=10) or Recipe.paper().")
    if augment is not None and not _takes_two(augment):
        raise TypeError(
            "augment must be a function augment(rng, x) of a NumPy generator and a batch of draws, which "
            "returns a batch like x."
        )
    if baseline and isinstance(loss, losses.Asymmetric):
        raise ValueError("an asymmetric loss cannot use a baseline. Leave it out, or change the loss.")


def _takes_two(function: Any) -> bool:
    """Say whether something can be called with two arguments, as far as that can be told."""
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:  # some functions in C do not tell
        return True
    except TypeError:
        return False
    return True


def _is_loss(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, losses.Loss)
        and kind is not losses.Loss
        and _without_arguments(kind)
    )


def _without_arguments(kind: type) -> bool:
    """Say whether a class can be built without arguments."""
    parameters = list(inspect.signature(kind).parameters.values())
    return all(parameter.default is not parameter.empty for parameter in parameters)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _by_name(what: str, name: str, known: Mapping[str, Any]) -> Any:
    """Look up a name, whatever its case and punctuation; suggest the closest if there is none."""
    plain = {_plain(key): key for key in known}
    if _plain(name) in plain:
        return known[plain[_plain(name)]]
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.7)
    hint = f" Did you mean {plain[close[0]]!r}?" if close else ""
    raise ValueError(f"{what} = {name!r} is not known.{hint} Known are: {', '.join(sorted(known))}.")


def _check_signature(network: Any) -> None:
    """Refuse a function that cannot be called as network(x, outputs, key=key)."""
    try:
        signature = inspect.signature(network)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None, 1, key=None)
    except TypeError as error:
        raise TypeError(
            f"network must be callable as network(x, outputs, key=key), but its parameters are {signature} "
            f"({error}). x is one draw, outputs the number of outputs, key a JAX key for the initial weights."
        ) from None
