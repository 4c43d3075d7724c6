"""`evidencenet validate`, `compare` and `report`: what a network is worth, and what it says."""

from pathlib import Path
from typing import Annotated, Any

import typer

import evidencenet as en
from evidencenet._common import wording
from evidencenet._common.progress import Progress
from evidencenet.cli.observations import Observations
from evidencenet.cli.options import (
    SIMS_HELP,
    AsJson,
    Debug,
    Force,
    Label,
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
from evidencenet.estimator.answer import against_first, beyond, log_k_text

# Each has its own figure and words on a page that is to be read.
_MOST_ANSWERS = 20

_Sims = Annotated[list[str], typer.Argument(metavar="SIMS", help=SIMS_HELP)]
_Kept = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write what --json prints to this file.")
]


def validate(
    context: typer.Context,
    net: Network,
    sims: _Sims,
    names: Names = None,
    label: Label = "model",
    out: _Kept = None,
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Check a network on draws that it has not seen.

    Exit code 3 if a check fails.
    """
    given = sources(sims)
    with session(context) as run:
        if out is not None:
            new_file(out, force)
        check = en.validate(en.load(net), en.Simulations.read(given, names=words(names), label=label))
        run.finish(check.to_dict(), str(check), kept=out, made_from=made_from(net, given))
        if not check.passed:
            raise typer.Exit(NOT_VALID)


def compare(
    context: typer.Context,
    net: Network,
    obs: Annotated[Path, typer.Argument(metavar="OBS", help="A file of one or several observations.")],
    row: Row = None,
    prior: Prior = None,
    out: _Kept = None,
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Give log K of observations, its error, and what to beware of.

    Each row of OBS is answered for by itself: observations that share parameters are to be simulated, and
    trained on, as one. Exit code 4 if an observation is unlike the draws of every model; a log K beyond what
    held-out draws confirm is told as a bound, and is no error.
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
                answers[number] = observed.compare(network, number, given)
                bar.update(len(answers))
        run.finish(
            {"answers": _rows(answers)},
            str(answers[rows[0]]) if len(answers) == 1 else _table(answers),
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
    names: Names = None,
    label: Label = "model",
    title: Annotated[str | None, typer.Option(help="Of the page; the models if not given.")] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("report.html"),
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write one HTML page of the answer, the checks and the making.

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
                    f"{observed} holds {len(data):,} observations, and a page at most {_MOST_ANSWERS}; --row "
                    "says which is meant, and evidencenet compare answers for all."
                )
            rows = range(len(data)) if row is None else [row]
            answers = {number: data.compare(network, number, shares) for number in rows}
        if sims:
            draws = en.Simulations.read(given, names=words(names), label=label)
            check = en.validate(network, draws)
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
        )


def _rows(answers: dict[int, en.Comparison]) -> list[dict[str, Any]]:
    return [{"row": number, **answer.to_dict()} for number, answer in answers.items()]


def _unlike(answer: en.Comparison) -> bool:
    """Whether no model makes such data: all that is warned of, but for log K beyond its range."""
    log_k, _, ranges = against_first(answer)
    return not set(answer.warnings) <= set(beyond(answer.names, log_k, ranges))


def _table(answers: dict[int, en.Comparison]) -> str:
    """One line for each observation."""
    names = next(iter(answers.values())).names
    width = max(len(name) for name in ("best model", *names))
    of = names[1] if len(names) == 2 else "each"
    last = f"natural log K of {of} against {names[0]}"
    lines = [f"{'row':>5}  {'best model':<{width}}  {'probability':<11}  {last}"]
    for number, answer in answers.items():
        best = answer.lead.best
        chance = wording.probability(float(answer.probabilities[best]))
        unlike = "; unlike the draws of every model" if _unlike(answer) else ""
        lines.append(f"{number:>5}  {names[best]:<{width}}  {chance:<11}  {_log_k(answer)}{unlike}")
    return "\n".join(lines)


def _log_k(answer: en.Comparison) -> str:
    log_k, error, ranges = against_first(answer)
    texts = [log_k_text(*each) for each in zip(log_k[1:], error[1:], ranges, strict=True)]
    if len(texts) == 1:
        return texts[0]
    return "; ".join(f"{name} {text}" for name, text in zip(answer.names[1:], texts, strict=True))
