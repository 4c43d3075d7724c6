"""Failed draws: count them, stop a simulation in which there are too many, and tell of the others."""

import math
from dataclasses import dataclass, field

from evidencenet._common.warnings import log
from evidencenet.simulation.chunks import Chunk, words

# A simulation stops if more draws failed than `max_failed` allows, by so many standard errors:
# a model that fails just as often as allowed is then stopped by chance once in 30,000 looks.
_SIGMAS = 4.0
# The failed fraction is not judged before so many draws: from 50 it is known to ±0.07.
_LEAST_DRAWS = 50


class SimulationError(RuntimeError):
    """Too many draws of a model failed."""


@dataclass
class Tally:
    """How many draws of one model were made, and how many of them failed.

    Parameters
    ----------
    model
        The name of the model.
    max_failed
        The failed fraction that is allowed.
    """

    model: str
    max_failed: float
    drawn: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)
    failure: Exception | str | None = field(default=None, init=False)

    def add(self, chunk: Chunk) -> None:
        """Count a chunk; raise if too many draws failed."""
        self.failure = self.failure or chunk.failure
        self.drawn, self.lost = self.drawn + len(chunk.valid), self.lost + chunk.lost
        doubt = _SIGMAS * math.sqrt(self.max_failed * (1 - self.max_failed) * self.drawn)
        all_failed = self.lost == self.drawn >= patience(self.max_failed)
        judged = self.drawn >= _LEAST_DRAWS
        if all_failed or (judged and self.lost > self.max_failed * self.drawn + doubt):
            raise self._too_many()

    @property
    def early(self) -> bool:
        """Whether many draws failed, and too few were made to judge it."""
        return self.drawn < _LEAST_DRAWS and self.lost > self.max_failed * self.drawn

    def tell(self) -> None:
        """Write a line to the log if draws failed."""
        if self.lost:
            text = "model %r: %d of %d draws failed, the first by %s; log K accounts for it"
            log.warning(text, self.model, self.lost, self.drawn, words(self.failure))

    def _too_many(self) -> SimulationError:
        missing = ""
        if "NaN" in words(self.failure):
            missing = " If NaN means that a number is missing, give missing='mask'."
        error = SimulationError(
            f"model {self.model!r}: {self.lost} of {self.drawn} draws failed "
            f"({self.lost / self.drawn:.0%}), more than max_failed={self.max_failed:.0%}; the first failure "
            f"was {words(self.failure)}. Correct the simulator or the prior, or raise max_failed if such "
            f"failures belong to the model.{missing}"
        )
        error.__cause__ = self.failure if isinstance(self.failure, Exception) else None
        return error


def patience(max_failed: float) -> int:
    """Return how many failures in a row, from the start, happen to a working model once in a million."""
    return max(_LEAST_DRAWS, math.ceil(math.log(1e-6) / math.log(max(max_failed, 0.5))))
