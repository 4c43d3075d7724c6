"""The draws that `train`, `validate` and `report` are given: paths, and how their draws are observed."""

import contextlib
from collections.abc import Generator
from pathlib import Path

import evidencenet as en
from evidencenet.cli.spec_file import models_of
from evidencenet.simulation.stored import are_stores

Sources = str | list[str] | dict[str, str]


@contextlib.contextmanager
def models_if_given(spec: Path | None) -> Generator[list[en.Model] | None]:
    """Run the user's file and yield its models; None if there is no file. Errors name its line."""
    if spec is None:
        yield None
    else:
        with models_of(spec) as models:
            yield models


def read_draws(
    given: Sources, names: list[str] | None, label: str, models: list[en.Model] | None
) -> tuple[en.Simulations | str | list[str], list[en.Model] | None]:
    """Return the draws, and the models that are still needed to observe them.

    Stores are left where they are, since they may not fit in memory. If their models are to have other names
    or another order, they are read, as all other files are.
    """
    if are_stores(given) and names is None and not isinstance(given, dict):
        return given, models
    return en.Simulations.read(given, names=names, label=label, observe=models), None
