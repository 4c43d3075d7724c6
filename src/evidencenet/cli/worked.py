"""`evidencenet problems` and `evidencenet demo`: worked problems whose exact answer is known."""

import difflib
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

import evidencenet as en
from evidencenet import demo as demonstration
from evidencenet.cli.options import AsJson, Debug, Epochs, Members, Quiet, Seed, whole
from evidencenet.cli.session import session
from evidencenet.questions.accuracy import measure_accuracy


def _complete(incomplete: str) -> list[str]:
    return [name for name in en.problems.zoo() if name.startswith(incomplete)]


def problems(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The problem to run. Without it, all are listed.", autocompletion=_complete
        ),
    ] = None,
    n: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Draws to train on, all models together.")
    ] = 100_000,
    seed: Seed = 1,
    members: Members = 4,
    epochs: Epochs = None,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the problems whose log K is known exactly, or run one.

    To run a problem means: simulate, train, validate, and compare log K of fresh draws with the exact log K.
    """
    zoo = en.problems.zoo()
    if name is not None and name not in zoo:
        near = difflib.get_close_matches(name, zoo, 3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`evidencenet problems` lists them."
        raise typer.BadParameter(f"there is no problem {name!r}. {hint}", param_hint="'NAME'")
    with session(context) as run:
        if name is None:
            descriptions = {key: _about(make) for key, make in zoo.items()}
            run.finish({"problems": descriptions}, _listed(descriptions))
            return
        recipe = None if epochs is None else en.Recipe(epochs=epochs)
        accuracy = measure_accuracy(
            zoo[name](), n, seed=seed, members=members, recipe=recipe, progress=run.progress
        )
        run.finish(accuracy.to_dict(), f"{accuracy.check}\n\n{accuracy}")


def demo(
    context: typer.Context,
    n: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Number of series to train on.")
    ] = 1_000_000,
    dim: Annotated[int, typer.Option(metavar="N", min=2, help="Length of a series.")] = 100,
    seed: Seed = 1,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="For the figures and the network.")] = Path(
        "demo-output"
    ),
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run the paper's time series, and compare with the exact answers.

    It takes about a minute on two cores.
    """
    with session(context) as run:
        with run.printing():
            rmse = demonstration.main(draws=n, dim=dim, seed=seed, folder=str(out), progress=run.progress)
        run.finish({"rmse_log10_k": rmse, "out": str(out)}, "", kept=out / "run.json")


def _about(make: Any) -> dict[str, Any]:
    # A problem with arguments other than the defaults is a `functools.partial` of its function.
    text = inspect.getdoc(getattr(make, "func", make)) or ""
    return {
        "models": [model.name for model in make().models],
        "about": text.split("\n")[0],
        "arguments": getattr(make, "keywords", {}),
    }


def _listed(descriptions: dict[str, Any]) -> str:
    width = max(map(len, descriptions))
    lines = []
    for name, about in descriptions.items():
        arguments = ", ".join(f"{key} = {value:g}" for key, value in about["arguments"].items())
        lines.append(f"{name:<{width}}  {about['about']}{f' ({arguments})' if arguments else ''}")
    return "\n".join(lines)
