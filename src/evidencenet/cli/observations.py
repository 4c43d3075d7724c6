"""Observations read from a file, in the form that a network needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import evidencenet as en
from evidencenet._common.arrays import Data, arrays_of, map_arrays
from evidencenet.cli.session import CommandError
from evidencenet.estimator.evaluation import as_batch
from evidencenet.simulation.io.draws import read_data


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of a file; each is answered for by itself."""

    path: Path
    data: Data

    @classmethod
    def read(cls, path: Path, net: en.EvidenceNetwork) -> Self:
        """Read a file of several observations, or of a single one without a first axis."""
        try:
            return cls(path, as_batch(read_data(path), net.example, net.columns, net.masked))
        except ValueError as error:
            named = str(error).startswith(str(path))
            raise CommandError(str(error) if named else f"{path}: {error}") from error

    def __len__(self) -> int:
        return len(arrays_of(self.data)[0])

    def compare(
        self,
        net: en.EvidenceNetwork,
        row: int,
        prior: Sequence[float] | None,
        model: str | None = None,
        against: str | None = None,
    ) -> en.Comparison:
        """Answer for one observation, counted from 0; `model` and `against` are as for `net.compare`."""
        if row >= len(self):
            raise CommandError(
                f"there is no row {row} in {self.path}: it holds {len(self):,} observations, counted from 0."
            )
        one = map_arrays(lambda array: array[row : row + 1], self.data)
        try:
            answer: en.Comparison = net.compare(one, prior, model=model, against=against)
        except ValueError as error:
            raise CommandError(f"{self.path}, row {row}: {error}") from error
        return answer
