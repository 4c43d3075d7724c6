"""`evidencenet validate`, `compare` and `report`: check a network, and ask it about observations."""

from pathlib import Path
from typing import Annotated, Any

import typer

import evidencenet as en
from evidencenet._common.progress import Progress
from evidencenet.cli.draws import models_if_given, read_draws
from evidencenet.cli.observations import Observations
from evidencenet.cli.options import (
    SIMS_HELP,
    AsJson,
    Debug,
    Force,
    Label,
    Models,
    Names,
    Network,
    Prior,
    Quiet,
    Row,
    numbers,
    sources,
    words,
)
from evidencenet.cli.session import (
    NOT_ALIKE,
    NOT_VALID,
    CommandError,
    made_from,
    new_file,
    record_of,
    session,
)
from evidencenet.cli.spec_file import source_of
from evidencenet.estimator.answer import Comparison, Comparisons

# Each answer has its own section and figure. More of them make a page that nobody reads.
_MOST_ANSWERS = 20

_Sims = Annotated[list[str], typer.Argument(metavar="SIMS", help=SIMS_HELP)]
_Kept = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write what --json prints to this file.")
]


def validate(
    context: typer.Context,
    net: Network,
    sims: _Sims,
    models: Models = None,
    names: Names = None,
    label: Label = "model",
    out: _Kept = None,
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Check a network on draws that it was not trained on.

    Of a .zarr folder with more than a million draws, or 512 MB, random ones are used. Exit code 3 if a check
    fails.
    """
    given = sources(sims)
    with session(context) as run:
        if out is not None:
            new_file(out, force)
        network = en.load(net)
        with models_if_given(models) as defined:
            there, observers = read_draws(given, words(names), label, defined)
            check = en.validate(network, there, models=observers)
        made = made_from(net, given)
        run.finish(check.to_dict(), str(check), kept=out, made_from=made, spec=source_of(models))
        if not check.passed:
            raise typer.Exit(NOT_VALID)


def compare(
    context: typer.Context,
    net: Network,
    obs: Annotated[Path, typer.Argument(metavar="OBS", help="A file of one or several observations.")],
    row: Row = None,
    prior: Prior = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Log K of this model")] = None,
    against: Annotated[str | None, typer.Option(metavar="NAME", help="against this one.")] = None,
    out: _Kept = None,
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Give log K of observations, its error, and warnings.

    Each row of OBS is answered for by itself: observations that share parameters must be simulated together
    as one. Of more than two models, log K is that of the best against the second best, or of --model against
    --against. Exit code 4 if an observation is unlike the draws of every model. A log K beyond the validated
    range is given as a bound, and is no error.
    """
    given = numbers(prior, "--prior")
    with session(context) as run:
        if out is not None:
            new_file(out, force)
        network = en.load(net)
        observed = Observations.read(obs, network)
        rows = range(len(observed)) if row is None else [row]
        answers = {}
        with Progress("comparing", len(rows), enabled=run.progress and len(rows) > 100) as bar:
            for number in rows:
                answers[number] = observed.compare(network, number, given, model, against)
                bar.update(len(answers))
        several = Comparisons(tuple(answers.values()))
        run.finish(
            {"answers": _rows(answers)},
            str(several[0]) if len(several) == 1 else several.table(list(answers)),
            kept=out,
            made_from=made_from(net, obs),
        )
        if any(_unlike(answer) for answer in answers.values()):
            raise typer.Exit(NOT_ALIKE)


def report(
    context: typer.Context,
    net: Network,
    sims: Annotated[
        list[str] | None, typer.Argument(metavar="SIMS", help=f"To validate on. {SIMS_HELP}")
    ] = None,
    observed: Annotated[
        Path | None, typer.Option(metavar="OBS", help="A file of the observations to answer for.")
    ] = None,
    row: Row = None,
    prior: Prior = None,
    models: Models = None,
    names: Names = None,
    label: Label = "model",
    title: Annotated[str | None, typer.Option(help="Of the page; the models if not given.")] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("report.html"),
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write one HTML page: the answers, the checks, and how the network was made.

    It can be read offline. Without SIMS there are no checks, without --observed no answers. Each row of OBS
    is answered for by itself.
    """
    given, shares = sources(sims or []), numbers(prior, "--prior")
    with session(context) as run:
        new_file(out, force)
        network = en.load(net)
        check, answers = None, {}
        if observed is not None:
            data = Observations.read(observed, network)
            if row is None and len(data) > _MOST_ANSWERS:
                raise CommandError(
                    f"{observed} holds {len(data):,} observations, and a page at most {_MOST_ANSWERS}. "
                    "Choose one with --row, or use evidencenet compare, which answers for all."
                )
            rows = range(len(data)) if row is None else [row]
            answers = {number: data.compare(network, number, shares) for number in rows}
        if sims:
            with models_if_given(models) as defined:
                there, observers = read_draws(given, words(names), label, defined)
                check = en.validate(network, there, models=observers)
        files = {"Network": net, "Fresh draws": ", ".join(sims or []), "Observations": observed}
        en.write_report(
            out,
            network,
            check,
            # A single observation needs no name.
            list(answers.values()) if len(answers) < 2 else {f"row {i}": a for i, a in answers.items()},
            title=title,
            made={f"{what} read from": path for what, path in files.items() if path},
        )
        run.finish(
            {
                "out": str(out),
                "validation": None if check is None else check.to_dict(),
                "answers": _rows(answers),
            },
            f"written to {out}",
            kept=record_of(out),
            made_from=made_from(net, given, observed or []),
            spec=source_of(models),
        )


def _rows(answers: dict[int, Comparison]) -> list[dict[str, Any]]:
    return [{"row": number, **answer.to_dict()} for number, answer in answers.items()]


def _unlike(answer: Comparison) -> bool:
    """Whether a model, or all of them, cannot produce these data: any warning except about the range."""
    return any(warning.kind != "range" for warning in answer.warnings)
