"""The options that several commands share, and functions that read their texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Fixes all random numbers.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="On an error, show Python's traceback.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Members = Annotated[int, typer.Option(metavar="N", min=1, help="Number of networks in the ensemble.")]
Epochs = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Passes through the draws; switches the trials off."),
]
Label = Annotated[
    str, typer.Option(metavar="NAME", help="The column or array of labels, if one file holds all draws.")
]
Names = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Names of the models, in the order of their labels.")
]
Row = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Only this observation of the file, counting from 0.")
]
Prior = Annotated[
    str | None,
    typer.Option(metavar="P0,P1,...", help="Prior probability of each model; equal by default."),
]
Models = Annotated[
    Path | None,
    typer.Option(
        metavar="SPEC", help="A Python file that defines `models`, which observe clean draws of SIMS."
    ),
]
Network = Annotated[Path, typer.Argument(metavar="NET", help="A network file written by `train`.")]

SIMS_HELP = "Draws: one file with labels, or one file for each model, best given as NAME=FILE."


def whole(text: str) -> int:
    """Read a whole number such as 1000000, 1_000_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not number.is_integer():
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 1000000, 1_000_000 or 1e6.")
    return int(number)


def numbers(text: str | None, option: str) -> list[float] | None:
    """Read numbers separated by commas; None stays None."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        message = f"{text!r} is not a list of numbers separated by commas, such as 1,3."
        raise typer.BadParameter(message, param_hint=f"'{option}'") from None


def words(text: str | None) -> list[str] | None:
    """Read names separated by commas; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",")]


def sources(given: Sequence[str]) -> str | list[str] | dict[str, str]:
    """Return where the draws are: one path, several paths, or paths by the name of their model."""
    # An existing file may have an equals sign in its name.
    named = [part for part in given if "=" in part and not Path(part).exists()]
    if not named:
        return given[0] if len(given) == 1 else list(given)
    if len(named) < len(given):
        other = next(part for part in given if part not in named)
        raise typer.BadParameter(
            f"{named[0]!r} names its model and {other!r} does not. Name the model of every file, or of none.",
            param_hint="'SIMS'",
        )
    pairs = [part.partition("=")[::2] for part in named]
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise typer.BadParameter(f"two files are given for the model {name!r}.", param_hint="'SIMS'")
    return dict(pairs)
