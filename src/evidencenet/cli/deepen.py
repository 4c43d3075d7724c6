"""`evidencenet deepen`: extend the validated range of a network with rare draws."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import evidencenet as en
from evidencenet._common.harmless import pair_text
from evidencenet.cli.options import AsJson, Debug, Force, Network, Quiet, Seed, whole
from evidencenet.cli.session import made_from, new_file, record_of, session
from evidencenet.cli.spec_file import models_of


def deepen(
    context: typer.Context,
    net: Network,
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A Python file that defines `models`.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The new network, such as deep.evnet.")],
    reach: Annotated[float, typer.Option(metavar="NATS", min=1, help="How far log K should go.")] = 30.0,
    n: Annotated[int, typer.Option(metavar="N", parser=whole, help="Draws in a level.")] = 20_000,
    calls: Annotated[
        int | None, typer.Option(metavar="N", parser=whole, help="Simulator calls at most, in all.")
    ] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", help="Runs simulated at the same time; -1 for one a processor.")
    ] = 1,
    store: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what is done here; the same command goes on from it."),
    ] = None,
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Extend the validated range of a network as far as draws of its models go.

    The simulators of SPEC are steered to draws that a model makes only rarely, a network is trained on them,
    and held-out rare draws validate it. The models must be those that NET was trained on.
    """
    with session(context) as run:
        new_file(out, force)
        old = en.load(net)
        with models_of(spec) as models:
            deep = en.deepen(
                old,
                models,
                reach=reach,
                n=n,
                seed=seed,
                workers=workers,
                progress=run.progress,
                calls=calls,
                store=store,
            )
        deep.save(out)
        depth = deep.depth
        assert depth is not None
        ranges = [
            f"{pair_text(name, deep.names[0])}: natural log K from {after.low:.2f} to {after.high:.2f} is "
            f"validated (before: {before.low:.2f} to {before.high:.2f})"
            for name, before, after in zip(deep.names[1:], old.ranges, deep.ranges, strict=True)
        ]
        text = "\n".join([*ranges, *map(str, depth.checks), f"{depth.rounds} rounds, {depth.calls:,} calls"])
        run.finish(
            {
                "out": str(out),
                "names": deep.names,
                "ranges": [{"low": one.low, "high": one.high} for one in deep.ranges],
                "before": [{"low": one.low, "high": one.high} for one in old.ranges],
                "checks": [asdict(check) for check in depth.checks],
                "rounds": depth.rounds,
                "calls": depth.calls,
            },
            f"{text}\nwritten to {out}",
            kept=record_of(out),
            made_from=made_from(net, spec),
        )
