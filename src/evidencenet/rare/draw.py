"""`rare_draws`: draws of each model at all levels of evidence against it."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy.special import logsumexp

from evidencenet._common.arguments import checked_seed, whole
from evidencenet._common.arrays import Data, arrays_of, join, kind_of, map_arrays
from evidencenet._common.fingerprint import fingerprint
from evidencenet._common.progress import Progress
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.rare.split import STOPS, Split, split
from evidencenet.rare.steer import check_steerable
from evidencenet.rare.store import LevelStore
from evidencenet.simulation.model import Model
from evidencenet.simulation.rare_draws import Levels, RareDraws
from evidencenet.simulation.workers import Workers

Array = np.ndarray

# Plain draws of the other models that must lie beyond the last level: as many as the validated range asks
# for.
_LEAST_BEYOND = 10
# Moves of each draw in a level. Six give nearly the error of log P that ten do, for the calls of six.
MOVES = 6


def rare_draws(
    net: EvidenceNetwork,
    models: Sequence[Model],
    *,
    reach: float = 30.0,
    n: int = 20_000,
    like: RareDraws | None = None,
    seed: int = 0,
    workers: int | None = None,
    executor: Any = None,
    progress: bool = True,
    calls: int | None = None,
    store: str | os.PathLike[str] | None = None,
) -> RareDraws:
    """Draw data that a model makes only rarely: those for which a network prefers another model.

    Plain draws of a model have evidence against it of a few nats at most. Multilevel splitting of the
    simulator's random numbers finds draws with evidence of 30 nats, at a cost that grows with 30 and not with
    e^30 (see `evidencenet.rare.split`). How rare they are is known, with its error.

    Parameters
    ----------
    net
        Says where to look. Its first member alone is asked.
    models
        The models it compares, in the same order, with simulators of NumPy (kinds "batch" and "one").
    reach
        Evidence against a model, in nats, at which its levels end. They end earlier where the other models
        have no draws, or where there is no larger evidence.
    n
        Draws in a level.
    like
        Rare draws made before, by the same network, whose thresholds are taken: log P is unbiased then, and
        the new draws are independent of those that the thresholds were chosen by.
    seed
        Model k is drawn from ``SeedSequence(seed, spawn_key=(k,))``: the same draws for any `workers`.
    workers
        How many of ten independent runs are simulated at the same time, −1 for one per processor; of
        simulators of single draws, blocks of 50 draws. They run in threads, or in any backend chosen with
        ``joblib.parallel_config``. The default is 1, or as many as `executor` has.
    executor
        Calls the simulators elsewhere, as in `simulate`.
    progress
        Show a bar on standard error, with the model, the level, the score reached, log P, the fraction of
        moves accepted, and the simulator calls.
    calls
        At most so many simulator calls in all; each model may use its share of what is left.
    store
        A folder that keeps each level as soon as it is drawn. After an interruption of any kind, make the
        same call again: it goes on from the last level, and the result is the same to the bit.

    Returns
    -------
    RareDraws
        To plot, save, split, and for `validate`.

    Raises
    ------
    evidencenet.rare.steer.UnsteerableError
        If a simulator's random numbers cannot be changed draw by draw; it says which and what to do.
    evidencenet._common.files.FileError
        If `store` was made with other settings, by another network, or of other models.

    Examples
    --------
    >>> rare = en.rare_draws(net, [flat, trend], seed=5)  # doctest: +SKIP
    >>> check = en.validate(net, rare)                    # doctest: +SKIP
    """
    models = checked_models(net, models)
    n = whole("n", n, 200)
    if calls is not None:
        calls = whole("calls", calls, n * len(models))
    crew = Workers.checked(workers, executor)
    seed = checked_seed(seed)
    for model in models:
        check_steerable(model, seed=seed)
    score = scorer(net)
    if like is None:
        ends = [min(reach, end) for end in _ends(score, models, n, seed)]
    else:
        ends = [float(levels.threshold[-1]) for levels in like.levels]
    splits: list[Split] = []
    spent = 0 if like is not None else n * len(models)
    total = int(1000 * sum(max(end, 1.0) for end in ends))
    with Progress("drawing rare data", total, enabled=progress) as bar:
        for k, model in enumerate(models):
            share = None if calls is None else max((calls - spent) // (len(models) - k), n)
            own_seed = int(np.random.SeedSequence(seed, spawn_key=(k,)).generate_state(1)[0])

            def tell(
                level: int,
                used: int,
                threshold: float,
                log_p: float,
                accepted: float,
                k: int = k,
                before: int = spent,
            ) -> None:
                done = sum(max(end, 1.0) for end in ends[:k]) + min(max(threshold, 0.0), ends[k])
                bar.update(
                    int(1000 * done),
                    model=models[k].name,
                    level=str(level),
                    score=f"{threshold:.1f}",
                    log_p=f"{log_p:.1f}",
                    accepted=f"{accepted:.0%}",
                    calls=f"{before + used:,}",
                )

            levels = None
            if store is not None:
                settings = {
                    "model": model.name,
                    "network": identity(net),
                    "n": n,
                    "end": ends[k],
                    "thresholds": None if like is None else like.levels[k].threshold[1:].tolist(),
                    "calls": share,
                    "seed": own_seed,
                }
                levels = LevelStore(
                    Path(store) / f"model-{k}",
                    settings,
                    fingerprint(model.simulate, model.prior, model.observe),
                )
            splits.append(
                split(
                    model,
                    _of_model(score, k),
                    n=n,
                    reach=ends[k],
                    like=None if like is None else _as_split(like, k),
                    moves=MOVES,
                    calls=share,
                    seed=own_seed,
                    workers=crew,
                    store=levels,
                    tell=tell,
                )
            )
            spent += splits[-1].calls
        bar.update(total, calls=f"{spent:,}")
    return _gathered(net.names, splits, score)


def scorer(net: EvidenceNetwork) -> Callable[[Data], Array]:
    """Return the function that scores data: log-odds of all other models to each one, (n, K).

    Only the first member of the network is asked: any fixed function will do.
    """
    one = first_member(net)

    def score(x: Data) -> Array:
        # Rows of failed draws may hold anything; they are not used, but the network refuses them.
        finite = map_arrays(lambda a: a if a.dtype == bool else np.nan_to_num(a, posinf=0.0, neginf=0.0), x)
        log_k = one.table(finite)[0]
        models = range(log_k.shape[1])
        return np.stack(
            [logsumexp(np.delete(log_k, k, axis=1), axis=1) - log_k[:, k] for k in models], axis=1
        )

    return score


def first_member(net: EvidenceNetwork) -> EvidenceNetwork:
    """Return the network with its first member alone; one that has learned something, if there is one."""
    chosen = int(np.argmax(net.gain != 0))

    def one(leaf: Any) -> Any:
        # Other leaves are shared by all members.
        return leaf[chosen : chosen + 1] if eqx.is_inexact_array(leaf) else leaf

    return replace(
        net,
        networks=jax.tree.map(one, net.networks),
        states=jax.tree.map(lambda leaf: leaf[chosen : chosen + 1], net.states),
        gain=net.gain[chosen : chosen + 1],
        errors=None,
    )


def checked_models(net: Any, models: Any) -> list[Model]:
    """Return the models if they are those that a network compares."""
    if not isinstance(net, EvidenceNetwork):
        raise TypeError(f"wanted a network made by train or load, got {kind_of(net)}.")
    if isinstance(models, Model) or not all(isinstance(model, Model) for model in models):
        raise TypeError(f"models must be a list of Model, got {models!r}.")
    names = tuple(model.name for model in models)
    if names != net.names:
        raise ValueError(f"the models are {names}, the network compares {net.names}, in this order.")
    if net.densities is not None:
        raise ValueError(
            "this network uses known densities, with which log K needs no rare draws where they "
            "apply. Train one "
            "without log_density to deepen it."
        )
    return list(models)


def _of_model(score: Callable[[Data], Array], k: int) -> Callable[[Data], Array]:
    return lambda x: score(x)[:, k]


def _ends(score: Callable[[Data], Array], models: Sequence[Model], n: int, seed: int) -> list[float]:
    """Return for each model the score beyond which the other models have too few draws to learn from."""
    scores = []
    for k, model in enumerate(models):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(k, 1)))
        x, _ = model.draw(rng, n)
        scores.append(score(x))
    ends = []
    for k in range(len(models)):
        others = np.concatenate([part[:, k] for other, part in enumerate(scores) if other != k])
        ends.append(float(np.sort(others)[-_LEAST_BEYOND]))
    return ends


def _as_split(draws: RareDraws, k: int) -> Split:
    """Return what another run needs of the levels of a model: thresholds and steps."""
    levels = draws.levels[k]
    empty = np.empty(0)
    return Split(
        x=empty, score=empty, replicate=empty, threshold=levels.threshold, fraction=empty,
        accepted=levels.accepted, step=levels.step, n=0, calls=0, drawn=0, stop=levels.stop,  # type: ignore[arg-type]
    )  # fmt: skip


def _gathered(names: tuple[str, ...], splits: Sequence[Split], score: Callable[[Data], Array]) -> RareDraws:
    levels = []
    for each in splits:
        replicates = each.fraction.shape[1]
        levels.append(
            Levels(
                threshold=each.threshold,
                by_replicate=each.probabilities,
                size=np.full(replicates, each.n // replicates),
                count=np.full(len(each.threshold), each.n),
                accepted=each.accepted,
                step=each.step,
                calls=each.calls,
                stop=STOPS.get(each.stop, each.stop),
            )
        )
    x = join(*(each.x for each in splits))
    return RareDraws(
        x,
        np.concatenate([np.full(len(each.score), k, dtype=np.int64) for k, each in enumerate(splits)]),
        np.concatenate([each.level for each in splits]),
        np.concatenate([each.replicate for each in splits]),
        np.concatenate([score(block) for block in _blocks(x)]),
        names,
        tuple(levels),
    )


def _blocks(x: Data, size: int = 100_000) -> list[Data]:
    n = len(arrays_of(x)[0])
    return [
        map_arrays(lambda array, start=start: array[start : start + size], x) for start in range(0, n, size)
    ]


def identity(net: EvidenceNetwork) -> str:
    """Identify the network that steers by a hash of its numbers."""
    digest = hashlib.sha256(repr(net.architecture).encode())
    for leaf in jax.tree.leaves((net.networks, net.states)):
        if eqx.is_array(leaf):
            digest.update(np.asarray(leaf).tobytes())
    digest.update(np.asarray(net.gain).tobytes())
    return digest.hexdigest()[:32]
