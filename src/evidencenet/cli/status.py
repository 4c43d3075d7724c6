"""`evidencenet status`: what a store holds, what is missing, and which jobs failed."""

from pathlib import Path
from typing import Annotated

import typer

import evidencenet as en
from evidencenet.cli.options import AsJson, Debug
from evidencenet.cli.session import NOT_COMPLETE, session


def status(
    context: typer.Context,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A .zarr folder that `simulate` fills.")],
    check: Annotated[
        bool, typer.Option("--check", help="Also read every chunk, and compare its checksum.")
    ] = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what a folder of draws holds, what is missing, and which jobs failed.

    It may be called while jobs run.
    """
    with session(context) as run:
        there = en.status(store, check=check)
        run.finish(there.to_dict(), str(there))
    if not there.complete or there.damaged:
        raise typer.Exit(NOT_COMPLETE)
