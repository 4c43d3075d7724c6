"""Save an `EvidenceNetwork` to one file, and load it again."""

import os
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evidencenet import losses, networks
from evidencenet._common import files
from evidencenet.checks.range import HeldOut
from evidencenet.checks.recalibration import Recalibration
from evidencenet.estimator.densities import Densities
from evidencenet.estimator.error import ErrorModel
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.novelty import Novelty
from evidencenet.estimator.reference import Component, Reference
from evidencenet.networks import ensemble
from evidencenet.simulation.model import Model
from evidencenet.training.gaussians import Baseline, Gaussians
from evidencenet.training.loop import History
from evidencenet.training.scaling import Scaling
from evidencenet.training.search import Choice, Trial

# Records that consist of arrays and numbers alone, by the name of their field in the network.
_RECORDS: dict[str, Any] = {
    "history": History,
    "held_out": HeldOut,
    "novelty": Novelty,
    "errors": ErrorModel,
}


def save(net: EvidenceNetwork, path: str | os.PathLike[str]) -> None:
    """Write a network to one file."""
    files.write(path, "network", *packed(net))


def packed(net: EvidenceNetwork) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Take a network apart into what JSON can say, and arrays by name."""
    arrays = {f"scaling/{name}": array for name, array in net.scaling.arrays().items()}
    for i, leaf in enumerate(_leaves(net.networks, net.states)):
        arrays[f"members/{i:04d}"] = np.asarray(leaf)
    for name in ("gain", "log_prior", "log_valid", "log_valid_error"):
        arrays[name] = getattr(net, name)
    for name in _RECORDS:
        found = getattr(net, name)
        if found is not None:
            known = {key: value for key, value in fields_of(found).items() if value is not None}
            arrays |= {f"{name}/{key}": np.asarray(value) for key, value in known.items()}
    if net.baseline is not None:
        for i, part in enumerate((net.baseline.full, *net.baseline.folds)):
            arrays |= {f"baseline/{i}/{key}": value for key, value in fields_of(part).items()}
    for i, step in enumerate(net.recalibration):
        arrays |= {f"recalibration/{i}/{key}": np.asarray(value) for key, value in fields_of(step).items()}
    if net.densities is not None:
        arrays |= {f"densities/{key}": value for key, value in _density_arrays(net.densities).items()}
    about = {
        "names": net.names,
        "known": None if net.densities is None else net.densities.known,
        "classes": None if net.densities is None else net.densities.classes,
        "example": described(net.example),
        "squash": net.scaling.squash,
        "loss": losses.to_dict(net.loss),
        "architecture": networks.to_dict(net.architecture),
        "choice": None if net.choice is None else _choice(net.choice),
        "made": net.made,
    }
    return about, arrays


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
        Only for a network trained with your own architecture or loss, which the file cannot hold: the same
        that was given to `train`.
    models
        Only for a network of models with a `log_density`, which is a function that the file cannot hold: the
        models that were simulated, or those of them that have one.

    Returns
    -------
    EvidenceNetwork

    Raises
    ------
    FileNotFoundError
        There is no such file.
    evidencenet._common.files.FileError
        The file is damaged, is not a network, or was written by a newer version.

    Examples
    --------
    >>> net = load("trend.evnet")  # doctest: +SKIP
    """
    about, arrays = files.read(path, "network")
    try:
        net = unpacked(about, arrays, network, loss)
    except (KeyError, IndexError) as error:
        raise files.FileError(f"{path} is incomplete: it lacks {error}. Make it anew.") from error
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
    architecture = network or networks.from_dict(about["architecture"])
    keys = tuple(example) if isinstance(example, dict) else None
    densities = _densities(about, keys, under(arrays, "densities"))
    classes = len(names) if densities is None else 1 + max(densities.classes)
    # Where all densities are known there are no networks.
    members, states = None, None
    if densities is None or not all(densities.known):
        members, states = _members(architecture, example, losses.outputs(classes), arrays)
    records = {name: record(kind, under(arrays, name)) for name, kind in _RECORDS.items()}
    choice = about["choice"]
    return EvidenceNetwork(
        names=names,
        example=example,
        scaling=Scaling.from_arrays(under(arrays, "scaling"), keys, about["squash"]),
        baseline=_baseline(under(arrays, "baseline")),
        loss=loss or losses.from_dict(about["loss"]),
        architecture=architecture,
        networks=members,
        states=states,
        gain=arrays["gain"],
        log_prior=arrays["log_prior"],
        log_valid=arrays["log_valid"],
        # Older files do not have it.
        log_valid_error=arrays.get("log_valid_error", np.zeros(len(names))),
        choice=choice
        and Choice(
            _trials(choice["trials"]),
            choice["taken"],
            choice["draws"],
            _trials(choice.get("longer", [])),
        ),
        # Files of the first format have none.
        recalibration=tuple(record(Recalibration, part) for part in parts_of(under(arrays, "recalibration"))),
        densities=densities,
        made=about.get("made", {}),
        **records,
    )


def _density_arrays(densities: Densities) -> dict[str, np.ndarray]:
    """Name all that a file can hold of known densities."""
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
    # Files of the first formats have none.
    if about.get("known") is None:
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
    """Build a network of the architecture, and put the saved weights of all members in its place."""
    scaled = jax.tree.map(lambda a: a if a.dtype == bool else a.astype(np.float32), example)
    network, state = ensemble.initialise(architecture, scaled, outputs, key=jax.random.key(0))
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)
    wanted, structure = jax.tree.flatten((weights, state))
    saved = [array for _, array in sorted(under(arrays, "members").items())]
    if [array.shape[1:] for array in saved] != [np.shape(leaf) for leaf in wanted]:
        raise files.FileError(
            "the network in the file has other layers than the architecture it is to be loaded into. "
            "Pass the same network= that was given to train."
        )
    weights, states = jax.tree.unflatten(structure, saved)
    return eqx.combine(weights, fixed), states


def _leaves(members: Any, states: Any) -> list[Any]:
    return jax.tree.leaves((eqx.filter(members, eqx.is_inexact_array), states))


def _choice(choice: Choice) -> dict[str, Any]:
    # A trial that failed has an infinite score, for which JSON has no number.
    def told(trials: tuple[Trial, ...]) -> list[dict[str, Any]]:
        return [{**asdict(t), "score": t.score if np.isfinite(t.score) else "inf"} for t in trials]

    return {**asdict(choice), "trials": told(choice.trials), "longer": told(choice.longer)}


def _trials(told: list[dict[str, Any]]) -> tuple[Trial, ...]:
    return tuple(Trial(t["plan"], float(t["score"]), t["seconds"]) for t in told)


def fields_of(one: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name."""
    return {item.name: getattr(one, item.name) for item in fields(one)}


def under(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Return the arrays of one part of the file, by the rest of their names."""
    return {key[len(name) + 1 :]: a for key, a in arrays.items() if key.startswith(f"{name}/")}


def record(kind: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Make a record of arrays and numbers again; None if there are none."""
    if not arrays:
        return None
    return kind(**{name: array.item() if array.ndim == 0 else array for name, array in arrays.items()})


def _baseline(arrays: dict[str, np.ndarray]) -> Baseline | None:
    if not arrays:
        return None
    full, *folds = (Gaussians(**part) for part in parts_of(arrays))
    return Baseline(full, tuple(folds))


def parts_of(arrays: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Return what is under the numbers 0, 1 and so on."""
    number = 1 + max((int(key.split("/")[0]) for key in arrays), default=-1)
    return [under(arrays, str(i)) for i in range(number)]


def described(example: Any) -> Any:
    """Say what an observation looks like, as JSON can."""
    if isinstance(example, dict):
        return {key: described(array) for key, array in example.items()}
    return [str(example.dtype), *example.shape]


def example_of(about: Any) -> Any:
    """Make zeros in the form of an observation that was `described`."""
    if isinstance(about, dict):
        return {key: example_of(part) for key, part in about.items()}
    kind, *shape = about
    return np.zeros(shape, kind)
