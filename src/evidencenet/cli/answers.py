"""`evidencenet validate`, `compare` and `report`: what a network is worth, and what it says."""

from pathlib import Path
from typing import Annotated

import typer

import evidencenet as en
from evidencenet import wording
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
from evidencenet.comparison import against_first, beyond, log_k_text
from evidencenet.progress import Progress

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
        answers = []
        with Progress("comparing", len(rows), enabled=run.progress and len(rows) > 100) as bar:
            for number in rows:
                answers.append(observed.compare(network, number, given))
                bar.update(len(answers))
        pairs = list(zip(rows, answers, strict=True))
        run.finish(
            {"answers": [{"row": number, **answer.to_dict()} for number, answer in pairs]},
            str(answers[0]) if len(answers) == 1 else _table(pairs),
            kept=out,
            made_from=made_from(net, obs),
        )
        if any(_unlike(answer) for answer in answers):
            raise typer.Exit(NOT_ALIKE)


def report(
    context: typer.Context,
    net: Network,
    sims: Annotated[
        list[str] | None, typer.Argument(metavar="SIMS", help=f"To validate on. {SIMS_HELP}")
    ] = None,
    observed: Annotated[
        Path | None, typer.Option(metavar="OBS", help="A file of the observation to answer for.")
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

    It needs no network to be read. Without SIMS there are no checks, without --observed no answer.
    """
    given, shares = sources(sims or []), numbers(prior, "--prior")
    with session(context) as run:
        new_file(out, force)
        network = en.load(net)
        answer = check = None
        if observed is not None:
            data = Observations.read(observed, network)
            if row is None and len(data) > 1:
                raise CommandError(f"{observed} holds {len(data):,} observations; --row says which is meant.")
            answer = data.compare(network, row or 0, shares)
        if sims:
            draws = en.Simulations.read(given, names=words(names), label=label)
            check = en.validate(network, draws)
        en.write_report(out, network, check, answer, title=title)
        run.finish(
            {
                "out": str(out),
                "validation": None if check is None else check.to_dict(),
                "answer": None if answer is None else answer.to_dict(),
            },
            f"written to {out}",
            kept=record_of(out),
            made_from=made_from(net, given, observed or []),
        )


def _unlike(answer: en.Comparison) -> bool:
    """Whether no model makes such data: all that is warned of, but for log K beyond its range."""
    log_k, _, ranges = against_first(answer)
    return not set(answer.warnings) <= set(beyond(answer.names, log_k, ranges))


def _table(pairs: list[tuple[int, en.Comparison]]) -> str:
    """One line for each observation."""
    names = pairs[0][1].names
    width = max(len(name) for name in ("best model", *names))
    of = names[1] if len(names) == 2 else "each"
    last = f"natural log K of {of} against {names[0]}"
    lines = [f"{'row':>5}  {'best model':<{width}}  {'probability':<11}  {last}"]
    for number, answer in pairs:
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
