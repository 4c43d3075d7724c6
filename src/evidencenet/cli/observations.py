"""Observations in a file, in the form that a network takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import evidencenet as en
from evidencenet._common.arrays import Data, arrays_of, as_data, map_arrays, with_draws
from evidencenet.cli.session import CommandError
from evidencenet.simulation.io.draws import read_data


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of a file; each is answered for by itself."""

    path: Path
    data: Data

    @classmethod
    def read(cls, path: Path, net: en.EvidenceNetwork) -> Self:
        """Read a file of several observations, or of a single one without a first axis of its own."""
        return cls(path, as_data(with_draws(read_data(path), net.example)))

    def __len__(self) -> int:
        return len(arrays_of(self.data)[0])

    def compare(self, net: en.EvidenceNetwork, row: int, prior: Sequence[float] | None) -> en.Comparison:
        """Answer for one observation, counted from 0."""
        if row >= len(self):
            raise CommandError(
                f"there is no row {row} in {self.path}, which holds {len(self):,}, counted from 0."
            )
        try:
            return net.compare(map_arrays(lambda array: array[row : row + 1], self.data), prior)
        except ValueError as error:
            raise CommandError(f"{self.path}, row {row}: {error}") from error
