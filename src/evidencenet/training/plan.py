"""`Plan`: all that is chosen before training."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from evidencenet import losses, networks


@dataclass(frozen=True)
class Plan:
    """All that is chosen before training.

    Parameters
    ----------
    network, loss
        What is trained, and by which loss.
    squash
        Whether inputs are scaled by asinh.
    baseline
        Whether the networks correct the Gaussian baseline.
    weight_decay
        None is the usual one of the network.
    whiten
        Whether correlations of the inputs are removed.
    log
        Whether the logarithm is taken of numbers that are never negative and vary much.
    project
        Whether inputs are the few combinations of all numbers in which the models differ.
    signal
        Whether inputs are the few combinations that vary by more than their noise, in units of the noise.
    """

    network: networks.Architecture
    loss: losses.Loss
    squash: bool = False
    baseline: bool = False
    weight_decay: float | None = None
    whiten: bool = False
    log: bool = False
    project: bool = False
    signal: bool = False

    def __str__(self) -> str:
        parts = [
            _short_name(self.network),
            "asinh" if self.squash else "standardised",
            *(["log"] if self.log else []),
            *(["whitened"] if self.whiten else []),
            *(["projected"] if self.project else []),
            *(["signal"] if self.signal else []),
            _short_name(self.loss),
            *(["on Gaussians"] if self.baseline else []),
            *([] if self.weight_decay is None else [f"weight decay {self.weight_decay:g}"]),
        ]
        return ", ".join(parts)


def _short_name(thing: Any) -> str:
    """Name a network or loss, with those of its settings that differ from the defaults."""
    if not is_dataclass(thing) or isinstance(thing, type):
        return str(getattr(thing, "__name__", type(thing).__name__))
    values = [(item, getattr(thing, item.name)) for item in fields(thing)]
    special = [f"{item.name}={value!r}" for item, value in values if value != item.default]
    return type(thing).__name__ + (f"({', '.join(special)})" if special else "")
