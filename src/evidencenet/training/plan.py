"""Choose how to train by evidence: plans are tried on few draws and judged by their held-out score."""

from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from evidencenet import losses, networks

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Plan:
    """All that is chosen before training.

    Parameters
    ----------
    network, loss
        What is trained.
    squash
        Whether inputs are scaled by asinh.
    whiten
        Whether correlations of the inputs are taken out.
    baseline
        Whether the networks correct Gaussians.
    weight_decay
        None is the usual one of the network.
    """

    network: networks.Architecture
    loss: losses.Loss
    squash: bool = False
    baseline: bool = False
    weight_decay: float | None = None
    whiten: bool = False

    def __str__(self) -> str:
        parts = [
            _short(self.network),
            "asinh" if self.squash else "standardised",
            *(["whitened"] if self.whiten else []),
            _short(self.loss),
            *(["on Gaussians"] if self.baseline else []),
            *([] if self.weight_decay is None else [f"weight decay {self.weight_decay:g}"]),
        ]
        return ", ".join(parts)


def _short(thing: Any) -> str:
    """Name a network or loss, with those of its settings that are not the usual ones."""
    if not is_dataclass(thing) or isinstance(thing, type):
        return str(getattr(thing, "__name__", type(thing).__name__))
    values = [(item, getattr(thing, item.name)) for item in fields(thing)]
    special = [f"{item.name}={value!r}" for item, value in values if value != item.default]
    return type(thing).__name__ + (f"({', '.join(special)})" if special else "")
