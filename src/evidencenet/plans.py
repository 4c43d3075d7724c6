"""Which plans are worth trying for given data, one question after the other."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from evidencenet import losses, networks
from evidencenet.choice import Plan
from evidencenet.data import Data, arrays_of

# Its value is the score by which plans are judged, it is the least sensitive to outliers, and log K that is
# the raw output itself extrapolates best: other losses must do better.
FIRST_LOSS = losses.Logistic()

Round = Callable[[Plan], list[Plan]]

# A set needs some elements, and a series or spectrum some length, to be worth the name.
_LEAST_ELEMENTS = 4
_LEAST_LENGTH = 8
# Sines of more numbers than this cost more than they bring.
_MOST_WAVES = 32
_WAVES = 8
_LARGEST_SPECTRUM = 4096


def natural(x: Data) -> list[networks.Architecture]:
    """Architectures that suit draws like `x`, by its shape alone; the first is the first to be tried."""
    numbers = sum(array.size for array in arrays_of(x))
    dense: list[networks.Architecture] = [networks.Dense()]
    if numbers <= _MOST_WAVES:
        dense.append(_waves(numbers))
    if isinstance(x, dict):
        masks = [array for array in x.values() if array.dtype == bool]
        lengths = {array.shape[:1] for array in x.values()}
        is_set = len(masks) == 1 and masks[0].ndim == 1 and len(lengths) == 1
        return [networks.DeepSet(), networks.Dense()] if is_set else [*dense]
    if x.ndim <= 1:
        # The numbers of a vector may well be exchangeable, or a series: the scores will tell.
        if x.size >= _LEAST_ELEMENTS:
            dense.append(networks.DeepSet())
            if numbers <= _MOST_WAVES:
                # Exchangeable numbers that log K oscillates with are better seen so than by either alone.
                dense.append(networks.DeepSet(waves=_WAVES))
        if x.size >= 2 * _LEAST_LENGTH:
            dense += [networks.Sequence(), networks.Spectrum()]
        return dense
    spectrum = [networks.Spectrum()] if len(x) >= _LEAST_LENGTH and numbers <= _LARGEST_SPECTRUM else []
    if x.ndim == 2 and 4 * x.shape[1] <= x.shape[0]:
        return [networks.Sequence(), networks.DeepSet(), networks.Dense(), *spectrum]
    if x.ndim == 3 and x.shape[2] <= 4:
        return [networks.Image(), networks.Dense(), *spectrum]
    return [*dense, *([networks.Table()] if x.ndim == 2 else [])]


def rounds(
    options: list[networks.Architecture],
    *,
    numbers: int,
    squashes: list[bool],
    whitens: list[bool],
    baselines: list[bool],
    loss: losses.Loss | None,
    learned: Callable[[Plan], bool],
    on_all: bool,
) -> list[Round]:
    """Alternatives to the best plan so far, within what the caller has not fixed.

    Parameters
    ----------
    options
        Architectures; a single one is fixed, and so are its settings.
    numbers
        In one draw.
    squashes, whitens, baselines
        Ways to treat the inputs.
    loss
        None if it is free.
    learned
        Whether the networks of a plan that was tried improved on what they were given. If not even the best
        did, no finer setting will.
    on_all
        Whether plans are tried on all draws that the best will be trained on.
    """

    def inputs(plan: Plan) -> list[Plan]:
        return [
            replace(plan, squash=squash, whiten=whiten, baseline=base)
            for whiten in whitens
            for squash in squashes
            for base in baselines
        ]

    def kinds(plan: Plan) -> list[Plan]:
        found = []
        for network in options:
            # Networks that treat all places alike know second moments by themselves, and more than those of
            # the Gaussians are hard to take back; and places that were mixed are not alike.
            alike = isinstance(network, networks.PLACE_BLIND) and False in baselines
            base = False if alike else plan.baseline
            whiten = plan.whiten and not alike
            # What one network makes of outliers says little about another.
            found += [
                replace(plan, network=network, squash=squash, whiten=whiten, baseline=base)
                for squash in squashes
            ]
        return found

    def settings(plan: Plan) -> list[Plan]:
        if not learned(plan):
            return []
        again = [plan, *(replace(plan, baseline=base) for base in baselines if base != plan.baseline)]
        again += [replace(plan, whiten=whiten) for whiten in whitens if whiten != plan.whiten]
        if len(options) == 1:
            return again
        others = [replace(plan, network=network) for network in variants(plan.network, numbers)]
        if not isinstance(plan.network, networks.SHARED_WEIGHTS):
            others.append(replace(plan, weight_decay=0.01))
        elif on_all:
            # The more draws, the less need to hold weights back: fewer ones would ask for more than is good.
            others.append(replace(plan, weight_decay=0.1))
        return [*again, *others]

    def penalties(plan: Plan) -> list[Plan]:
        if loss is not None or not learned(plan):
            return []
        kinds = [FIRST_LOSS, losses.Exponential(), losses.LPopLogistic(), losses.LPopExponential()]
        return [replace(plan, loss=kind) for kind in kinds]

    return [inputs, kinds, settings, penalties]


def variants(network: networks.Architecture, numbers: int) -> list[networks.Architecture]:
    """Give the same kind of network in other sizes."""
    match network:
        case networks.Dense(waves=0):
            return [_wide(numbers)]
        case networks.DeepSet(waves=0) | networks.Table(waves=0):
            return [replace(network, waves=_WAVES)]
        case networks.Sequence():
            return [replace(network, depth=network.depth + 1)]
        case networks.Spectrum():
            return [replace(network, width=max(128, numbers), hidden=64)]
    return []


def _wide(numbers: int) -> networks.Dense:
    """For functions with more detail than the paper's widths can follow, above all of few numbers."""
    return networks.Dense(width=max(128, int(1.1 * numbers) + 20), hidden=64)


def _waves(numbers: int) -> networks.Dense:
    return replace(_wide(numbers), waves=int(np.clip(64 // numbers, 4, _WAVES)))
