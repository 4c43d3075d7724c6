"""The command `evidencenet`, one file for each group of commands: parse, call the library, write.

No mathematics lives here. `session` is what all commands share; `options` are the options they share.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from evidencenet._version import __version__
from evidencenet.cli.answers import compare, report, validate
from evidencenet.cli.deepen import deepen
from evidencenet.cli.simulate import simulate
from evidencenet.cli.status import status
from evidencenet.cli.train import train
from evidencenet.cli.worked import demo, problems

app = typer.Typer(
    no_args_is_help=True,
    # Plain text, because brackets in the examples are not markup.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evidencenet {__version__}")
        raise typer.Exit


_EXAMPLES: dict[Callable[..., None], str] = {
    simulate: """
evidencenet simulate models.py --n 1e6 --seed 1 --out draws.zarr
evidencenet simulate models.py --n 20000 --fractions 1,3 --workers -1 --out draws.npz
evidencenet simulate models.py --n 1e7 --part 3/20 --out draws.zarr""",
    status: """
evidencenet status draws.zarr
evidencenet status draws.zarr --check --json""",
    train: """
evidencenet train draws.zarr --seed 2 --out net.evnet
evidencenet train flat=flat.npy trend=trend.npy --out net.evnet
evidencenet train draws.csv --label class --members 8 --loss l-pop-logistic --out net.evnet
evidencenet train clean.zarr --models models.py --out net.evnet
evidencenet train --models models.py --draws 5e6 --out net.evnet""",
    deepen: """
evidencenet deepen net.evnet models.py --out deep.evnet
evidencenet deepen net.evnet models.py --reach 20 --calls 3e6 --workers -1 --out deep.evnet""",
    validate: """
evidencenet validate net.evnet fresh.zarr
evidencenet validate net.evnet clean.zarr --models models.py
evidencenet validate net.evnet flat=flat2.npy trend=trend2.npy --json > check.json""",
    compare: """
evidencenet compare net.evnet observed.npy
evidencenet compare net.evnet catalogue.csv --row 3 --prior 0.9,0.1
evidencenet compare net.evnet catalogue.csv --json | jq '.answers[].log_k'""",
    report: """
evidencenet report net.evnet fresh.zarr --observed observed.npy
evidencenet report net.evnet --out network.html""",
    problems: """
evidencenet problems
evidencenet problems rastrigin --n 2e5""",
    demo: """
evidencenet demo
evidencenet demo --n 2e4 --dim 20 --out small""",
}
_SESSION = """
evidencenet simulate models.py --n 200_000 --seed 1 --out draws.zarr
evidencenet train draws.zarr --seed 2 --out net.evnet
evidencenet simulate models.py --n 50_000 --seed 3 --out fresh.zarr
evidencenet validate net.evnet fresh.zarr
evidencenet compare net.evnet observed.npy
evidencenet report net.evnet fresh.zarr --observed observed.npy"""
_EXIT_CODES = """
0    done
1    an error: wrong data, failed simulations, a file that already exists
2    the command was not understood
3    validate: a check failed
4    compare: an observation is far from the draws of every model
5    status: draws are missing, or damaged
130  stopped by Ctrl-C; run simulate or train again to continue"""


def _listed(title: str, lines: str) -> str:
    # "\b" tells the help not to join the lines.
    return "\b\n" + title + ":" + lines.replace("\n", "\n  ")


@app.callback(epilog=f"{_listed('A session', _SESSION)}\n\n{_listed('Exit codes', _EXIT_CODES)}")
def _app(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Which of my models made this data, and by what odds? An answer from simulations alone.

    Results go to standard output, everything else to standard error. log K is the natural logarithm of
    p(x | second model) / p(x | first model).
    """


for _command, _lines in _EXAMPLES.items():
    app.command(epilog=_listed("Examples", _lines))(_command)
