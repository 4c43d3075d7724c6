"""Save an `EvidenceNetwork` to one file, and load it again.

The file holds arrays, and a description in JSON of how they are put together. A network is built from the
description and filled with the arrays; functions of the user's are not in the file and must be given again.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evidencenet import losses, networks
from evidencenet._common import files
from evidencenet.checks.check import Check
from evidencenet.checks.range import HeldOut
from evidencenet.checks.recalibration import Recalibration
from evidencenet.estimator.densities import Densities
from evidencenet.estimator.error import Depth, ErrorModel
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.novelty import Novelty
from evidencenet.estimator.partner import Partner
from evidencenet.estimator.reference import Component, Reference
from evidencenet.estimator.seen_draws import SeenDraws
from evidencenet.networks import ensemble
from evidencenet.networks.layout import Layout, arranged_example
from evidencenet.simulation.model import Model
from evidencenet.training import checkpoint
from evidencenet.training.baseline import Baseline, Gaussians
from evidencenet.training.loop import History
from evidencenet.training.scaling import Scaling
from evidencenet.training.search import Choice, Trial

# Records of arrays and numbers only, by the name of their field in the network.
_RECORDS: dict[str, Any] = {
    "history": History,
    "held_out": HeldOut,
    "novelty": Novelty,
    "errors": ErrorModel,
    "seen": SeenDraws,
}


# What `Depth` holds of each model, one array a model.
_OF_LEVELS = ("threshold", "log_p", "log_p_error")


def save(net: EvidenceNetwork, path: str | os.PathLike[str]) -> None:
    """Write a network to one file; the checkpoint of its training, if there is one, is removed after that.

    Raises
    ------
    OSError
        The file cannot be written, for instance because the disk is full. An old file and the checkpoint are
        unchanged.
    """
    kept = getattr(net, "checkpoint", None)
    try:
        files.write(path, "network", *packed(net))
    except OSError as error:
        if kept is None or not Path(kept).exists():
            raise
        text = f"{error.strerror or error} The training is kept in {kept}: the same call of train returns it."
        raise type(error)(error.errno, text) from error
    if kept is not None:
        checkpoint.remove(kept)


def packed(net: EvidenceNetwork) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Take a network apart into a description for JSON, and arrays by name."""
    arrays = _ensemble_arrays(net)
    if net.partner is not None:
        arrays |= {f"partner/{key}": array for key, array in _ensemble_arrays(net.partner).items()}
        arrays["partner/weight"] = np.asarray(net.partner.weight)
    for name in ("log_prior", "log_valid", "log_valid_error"):
        arrays[name] = getattr(net, name)
    for name in _RECORDS:
        part = getattr(net, name)
        if part is not None:
            values = fields_of(part)
            arrays |= {f"{name}/{key}": np.asarray(value) for key, value in values.items()}
    for i, step in enumerate(net.recalibration):
        arrays |= {f"recalibration/{i}/{key}": np.asarray(value) for key, value in fields_of(step).items()}
    if net.densities is not None:
        arrays |= {f"densities/{key}": value for key, value in _density_arrays(net.densities).items()}
    if net.depth is not None:
        for k in range(len(net.names)):
            for name in _OF_LEVELS:
                arrays[f"depth/{k}/{name}"] = getattr(net.depth, name)[k]
    about = {
        "names": net.names,
        "columns": net.columns,
        "masked": net.masked,
        "known": None if net.densities is None else net.densities.known,
        "classes": None if net.densities is None else net.densities.classes,
        "example": described(net.example),
        **_ensemble_about(net),
        "partner": None if net.partner is None else _ensemble_about(net.partner),
        "choice": None if net.choice is None else _choice_to_dict(net.choice),
        "made": net.made,
        "depth": None
        if net.depth is None
        else {
            "checks": [asdict(check) for check in net.depth.checks],
            "rounds": net.depth.rounds,
            "calls": net.depth.calls,
        },
    }
    return about, arrays


def _ensemble_arrays(net: EvidenceNetwork | Partner) -> dict[str, np.ndarray]:
    """Return the arrays of an ensemble: how it scales its inputs, its weights, and its baseline."""
    arrays = {f"scaling/{name}": array for name, array in net.scaling.arrays().items()}
    for i, leaf in enumerate(_leaves(net.networks, net.states)):
        arrays[f"members/{i:04d}"] = np.asarray(leaf)
    arrays["gain"] = net.gain
    if net.baseline is not None:
        for i, gaussians in enumerate((net.baseline.full, *net.baseline.folds)):
            arrays |= {f"baseline/{i}/{key}": value for key, value in fields_of(gaussians).items()}
    return arrays


def _ensemble_about(net: EvidenceNetwork | Partner) -> dict[str, Any]:
    return {
        "squash": net.scaling.squash,
        "layout": None if net.scaling.layout is None else net.scaling.layout.to_dict(),
        "loss": losses.to_dict(net.loss),
        "architecture": networks.to_dict(net.architecture),
    }


def load(
    path: str | os.PathLike[str],
    *,
    network: networks.Architecture | None = None,
    loss: losses.Loss | None = None,
    models: Sequence[Model] = (),
) -> EvidenceNetwork:
    """Read a network that `EvidenceNetwork.save` wrote; its predictions are the same to the bit.

    Parameters
    ----------
    path
        The file.
    network, loss
        Only for a network trained with your own architecture or loss, which the file cannot hold: give what
        was given to `train`.
    models
        Only for a network of models with a `log_density`, which is a function that the file cannot hold: give
        the models that were simulated, or those of them that have one.

    Returns
    -------
    EvidenceNetwork

    Raises
    ------
    FileNotFoundError
        There is no such file.
    evidencenet._common.files.FileError
        The file is damaged (its checksum is compared), is not a network, or was written by a newer version.

    Examples
    --------
    >>> net = load("trend.evnet")  # doctest: +SKIP
    """
    about, arrays = files.read(path, "network")
    _check_functions(about, network, loss)
    with files.readable(Path(path)):
        try:
            net = unpacked(about, arrays, network, loss)
        except (KeyError, IndexError) as error:
            raise files.FileError(f"{path} is incomplete: it lacks {error}. Make it again.") from error
    if net.densities is None or not models:
        return net
    return replace(net, densities=net.densities.with_functions(models))


def unpacked(
    about: dict[str, Any],
    arrays: dict[str, np.ndarray],
    network: networks.Architecture | None,
    loss: losses.Loss | None,
) -> EvidenceNetwork:
    """Put a network together again."""
    example = example_of(about["example"])
    names = tuple(about["names"])
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise files.FileError(f"its models are called {names}; wanted distinct texts")
    keys = tuple(example) if isinstance(example, dict) else None
    densities = _densities(about, keys, under(arrays, "densities"))
    classes = len(names) if densities is None else 1 + max(densities.classes)
    # If all densities are known, there are no networks.
    outputs = losses.outputs(classes) if densities is None or not all(densities.known) else None
    partner = None
    if about.get("partner") is not None:
        second = under(arrays, "partner")
        partner = Partner(
            weight=second["weight"].item(),
            **_ensemble(about["partner"], second, example, outputs, None, None),
        )
    records = {name: record(kind, under(arrays, name)) for name, kind in _RECORDS.items()}
    choice = about["choice"]
    return EvidenceNetwork(
        names=names,
        example=example,
        **_ensemble(about, arrays, example, outputs, network, loss),
        partner=partner,
        log_prior=arrays["log_prior"],
        log_valid=arrays["log_valid"],
        log_valid_error=arrays["log_valid_error"],
        choice=None if choice is None else _choice_from_dict(choice),
        recalibration=tuple(record(Recalibration, part) for part in parts_of(under(arrays, "recalibration"))),
        densities=densities,
        depth=_depth(about["depth"], under(arrays, "depth"), len(names)),
        columns=None if about["columns"] is None else tuple(about["columns"]),
        masked=about["masked"],
        made=about["made"],
        **records,
    )


def _ensemble(
    about: dict[str, Any],
    arrays: dict[str, np.ndarray],
    example: Any,
    outputs: int | None,
    network: networks.Architecture | None,
    loss: losses.Loss | None,
) -> dict[str, Any]:
    """Put an ensemble together again, from what `_ensemble_about` and `_ensemble_arrays` gave."""
    architecture = network or networks.from_dict(about["architecture"])
    layout = None if about.get("layout") is None else Layout.from_dict(about["layout"])
    scaled_example = example if layout is None else arranged_example(layout, example)
    scaled_keys = tuple(scaled_example) if isinstance(scaled_example, dict) else None
    scaling = Scaling.from_arrays(under(arrays, "scaling"), scaled_keys, about["squash"], layout)
    if scaling.numbers is not None:
        scaled_example = np.zeros(scaling.numbers, np.float32)
    members, states = None, None
    if outputs is not None:
        members, states = _members(architecture, scaled_example, outputs, arrays)
    return {
        "scaling": scaling,
        "baseline": _baseline(under(arrays, "baseline")),
        "loss": loss or losses.from_dict(about["loss"]),
        "architecture": architecture,
        "networks": members,
        "states": states,
        "gain": arrays["gain"],
    }


def _depth(about: dict[str, Any] | None, arrays: dict[str, np.ndarray], models: int) -> Depth | None:
    if about is None:
        return None
    levels = {name: tuple(arrays[f"{k}/{name}"] for k in range(models)) for name in _OF_LEVELS}
    checks = tuple(Check(**check) for check in about["checks"])
    return Depth(**levels, checks=checks, rounds=about["rounds"], calls=about["calls"])


def _density_arrays(densities: Densities) -> dict[str, np.ndarray]:
    """Return by name what a file can hold of known densities: everything but the functions."""
    examples = densities.examples if isinstance(densities.examples, dict) else {"": densities.examples}
    arrays = {f"examples/{key}": array for key, array in examples.items()}
    arrays |= {"values": densities.values, "log_shares": densities.log_shares}
    arrays |= {f"held_out/{key}": value for key, value in fields_of(densities.held_out).items()}
    for i, part in enumerate(() if densities.reference is None else densities.reference.components):
        arrays |= {f"reference/{i}/{key}": np.asarray(value) for key, value in fields_of(part).items()}
    return arrays


def _densities(
    about: dict[str, Any], keys: tuple[str, ...] | None, arrays: dict[str, np.ndarray]
) -> Densities | None:
    if about["known"] is None:
        return None
    examples = under(arrays, "examples")
    parts = [record(Component, part) for part in parts_of(under(arrays, "reference"))]
    return Densities(
        tuple(about["names"]),
        tuple(about["known"]),
        (None,) * len(about["names"]),
        Reference(tuple(parts)) if parts else None,
        tuple(about["classes"]),
        arrays["log_shares"],
        record(HeldOut, under(arrays, "held_out")),
        examples[""] if keys is None else {key: examples[key] for key in keys},
        arrays["values"],
    )


def _members(
    architecture: networks.Architecture, example: Any, outputs: int, arrays: dict[str, np.ndarray]
) -> tuple[Any, Any]:
    """Build a network of the architecture, and replace its weights by the saved ones of all members."""
    saved = [array for _, array in sorted(under(arrays, "members").items())]
    _check_sizes(architecture, saved)
    scaled = jax.tree.map(lambda a: a if a.dtype == bool else a.astype(np.float32), example)
    network, state = ensemble.initialise(architecture, scaled, outputs, key=jax.random.key(0))
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)
    wanted, structure = jax.tree.flatten((weights, state))
    if [array.shape[1:] for array in saved] != [np.shape(leaf) for leaf in wanted]:
        raise files.FileError(
            "the network in the file has other layers than its architecture. Pass the same network= that was "
            "given to train."
        )
    weights, states = jax.tree.unflatten(structure, saved)
    return eqx.combine(weights, fixed), states


def _leaves(members: Any, states: Any) -> list[Any]:
    return jax.tree.leaves((eqx.filter(members, eqx.is_inexact_array), states))


def _check_sizes(architecture: Any, saved: Sequence[np.ndarray]) -> None:
    """Refuse a description of a network that is far larger than the saved weights, before it is built."""
    weights = sum(array.size for array in saved)
    numbers = [number for number in _integers(networks.to_dict(architecture)) if number > 0]
    # A layer of n units that is fed by one of n units has n² weights. The first number is what 80 MB hold.
    if max(numbers, default=0) ** 2 > max(1e7, 100 * weights) or weights == 0:
        raise files.FileError(
            f"it describes a network with layers of up to {max(numbers, default=0):,} units, but holds only "
            f"{weights:,} weights"
        )


def _integers(value: Any) -> list[int]:
    if isinstance(value, dict | list | tuple):
        parts = value.values() if isinstance(value, dict) else value
        return [number for part in parts for number in _integers(part)]
    return [value] if type(value) is int else []


def _check_functions(
    about: dict[str, Any], network: networks.Architecture | None, loss: losses.Loss | None
) -> None:
    """Ask for the user's own functions, which a file cannot hold, before anything else is looked at."""
    given = ((network, networks.from_dict, "architecture"), (loss, losses.from_dict, "loss"))
    for function, rebuild, name in given:
        if function is None and isinstance(about.get(name), dict) and about[name].get("custom"):
            rebuild(about[name])


def _choice_to_dict(choice: Choice) -> dict[str, Any]:
    # A trial that failed has an infinite score, for which JSON has no number.
    def trials_to_list(trials: tuple[Trial, ...]) -> list[dict[str, Any]]:
        return [{**asdict(t), "score": t.score if np.isfinite(t.score) else "inf"} for t in trials]

    lists = {"trials": trials_to_list(choice.trials), "longer": trials_to_list(choice.longer)}
    return {**asdict(choice), **lists}


def _choice_from_dict(about: dict[str, Any]) -> Choice:
    def trials_from_list(parts: list[dict[str, Any]]) -> tuple[Trial, ...]:
        return tuple(Trial(part["plan"], float(part["score"]), part["seconds"]) for part in parts)

    return Choice(
        trials_from_list(about["trials"]),
        about["taken"],
        about["draws"],
        trials_from_list(about["longer"]),
        about["layout"],
    )


def fields_of(one: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without those that are None."""
    values = {item.name: getattr(one, item.name) for item in fields(one)}
    return {name: value for name, value in values.items() if value is not None}


def under(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Return the arrays of one part of the file, by the rest of their names."""
    return {key[len(name) + 1 :]: a for key, a in arrays.items() if key.startswith(f"{name}/")}


def record(kind: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Make a record from its arrays and numbers; None if there are none."""
    if not arrays:
        return None
    return kind(**{name: _number(array) if array.ndim == 0 else array for name, array in arrays.items()})


def _number(array: np.ndarray) -> Any:
    """Return a single number; an unsigned integer stays one of NumPy's, because Python has none."""
    return array[()] if array.dtype.kind == "u" else array.item()


def _baseline(arrays: dict[str, np.ndarray]) -> Baseline | None:
    if not arrays:
        return None
    full, *folds = (Gaussians(**part) for part in parts_of(arrays))
    return Baseline(full, tuple(folds))


def parts_of(arrays: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Return the arrays under the numbers 0, 1 and so on."""
    numbers = {key.split("/")[0] for key in arrays}
    return [under(arrays, str(i)) for i in range(len(numbers))]


def described(example: Any) -> Any:
    """Describe the form of an observation for JSON."""
    if isinstance(example, dict):
        return {key: described(array) for key, array in example.items()}
    return [str(example.dtype), *example.shape]


def example_of(about: Any) -> Any:
    """Make zeros in the form of an observation that was `described`."""
    if isinstance(about, dict):
        return {key: example_of(part) for key, part in about.items()}
    kind, *shape = about
    if np.dtype(kind).kind not in "bf" or not all(type(n) is int and n >= 0 for n in shape):
        raise files.FileError(f"its observations are of type {kind} and shape {tuple(shape)}; one is wrong")
    if files.declared_bytes([(tuple(shape), 8)]) > files.FREE_BYTES:
        raise files.FileError(f"its observations have the shape {tuple(shape)}, which is too large")
    return np.zeros(shape, kind)
