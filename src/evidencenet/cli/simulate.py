"""`evidencenet simulate`: draw from the models of a Python file, into a file."""

import contextlib
import multiprocessing
import shutil
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

import evidencenet as en
from evidencenet._common.atomic import moved, removed
from evidencenet._common.files import FileError
from evidencenet._common.processors import processors
from evidencenet.cli.options import AsJson, Debug, Force, Quiet, Seed, numbers, whole
from evidencenet.cli.session import CommandError, new_file, record_of, session
from evidencenet.cli.spec_file import models_of, source_of
from evidencenet.simulation.io import containers, tables


def simulate(
    context: typer.Context,
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A Python file that defines `models`.")],
    n: Annotated[int, typer.Option(parser=whole, metavar="N", help="Draws in total, such as 1e6.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The draws: .zarr, .npz, .h5, .parquet or .csv.")],
    seed: Seed = 0,
    fractions: Annotated[
        str | None, typer.Option(metavar="F0,F1,...", help="Share of each model; equal if not given.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(metavar="N", help="How many chunks to draw at the same time; -1: one per processor."),
    ] = 1,
    processes: Annotated[
        bool,
        typer.Option("--processes", help="Workers are processes: for simulators in pure Python."),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Stop a draw after S seconds, as failed; with --processes."),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            parser=whole, metavar="N", help="At most so many draws in one chunk; by time if not given."
        ),
    ] = None,
    max_failed: Annotated[
        float, typer.Option(metavar="F", help="Stop if a larger fraction of a model's draws fails.")
    ] = 0.5,
    part: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Draw only part I of N, from 1 to N, into a shared .zarr folder."),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Draw data from the models of a Python file.

    SPEC is run as a Python script, and must define `models`, a list of evidencenet.Model. If the command is
    stopped, the same command goes on from there. With a larger N, it adds draws to an existing .zarr folder.

    With --part, an array of jobs fills one folder; `evidencenet status` says what is missing.
    """
    shares = numbers(fractions, "--fractions")
    with session(context) as run:
        if timeout is not None and not processes:
            raise CommandError("--timeout needs --processes: a thread cannot be stopped, and a process can.")
        _check_part(part, out, force)
        store = _store(out, n, force)
        run.advice = lambda: (
            f"The draws so far are kept in {store}: the same command goes on from there."
            if store.exists()
            else ""
        )
        options: dict[str, Any] = {
            "seed": seed,
            "fractions": shares,
            "workers": workers,
            "timeout": timeout,
            "chunk": chunk,
            "max_failed": max_failed,
            "store": store,
            "progress": run.progress,
        }
        text = source_of(spec)
        if part is not None:
            with models_of(spec) as models, _workers(processes, workers) as executor:
                options["executor"] = executor
                there = en.simulate(models, n, part=part, **options)
            # The job that completes the folder leaves the record.
            kept = record_of(out) if there.complete else None
            run.finish({"out": str(out), **there.to_dict()}, str(there), kept=kept, spec=text)
            return
        with (
            models_of(spec) as models,
            _removed_if_empty(store),
            _workers(processes, workers) as executor,
        ):
            options["executor"] = executor
            sims = en.simulate(models, n, **options)
        if store != out:
            _move(sims, store, out)
        about = {
            "out": str(out),
            "names": sims.names,
            "draws": sims.counts,
            "failed": sims.failed,
            "shape": sims.shape,
        }
        run.finish(about, f"{sims!r}\nwritten to {out}", kept=record_of(out), spec=text)


@contextlib.contextmanager
def _workers(processes: bool, workers: int) -> Generator[ProcessPoolExecutor | None]:
    """Start worker processes, if they are wanted."""
    if not processes:
        yield None
        return
    count = processors() if workers == -1 else workers
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def _check_part(part: str | None, out: Path, force: bool) -> None:
    """Refuse what jobs that share one folder cannot do."""
    if part is None:
        return
    if out.suffix.lower() != ".zarr":
        raise CommandError(f"--part needs a folder that all jobs fill, such as --out {out.stem}.zarr.")
    if force:
        raise CommandError("--part and --force cannot go together: other jobs fill the same folder.")


def _store(out: Path, n: int, force: bool) -> Path:
    """Return the Zarr folder to draw into; refuse if this cannot be written, or would destroy something."""
    suffix = out.suffix.lower()
    known = (*containers.WRITERS, *tables.WRITERS)
    if suffix not in known:
        raise CommandError(
            f"cannot tell from the suffix {suffix!r} how to write {out}; wanted {', '.join(known)}."
        )
    partial = out.with_name(f"{out.name}.partial.zarr")
    # An empty folder is one that was begun by a command that was killed at once.
    if suffix != ".zarr" or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        new_file(out, force)
        return out if suffix == ".zarr" else partial
    about = _described(out)
    if about is None:
        raise CommandError(f"{out} exists already and was not written by evidencenet; it was not changed.")
    if force:
        return partial
    if about.get("kind") != "store":
        new_file(out, force)
    if sum(about["shares"]) > n:
        raise CommandError(
            f"{out} holds {sum(about['shares']):,} draws already, more than --n {n}. Give another --out, or "
            "--force to replace it."
        )
    return out


def _described(path: Path) -> dict[str, Any] | None:
    try:
        return containers.zarr_description(path)
    except (FileError, OSError):
        return None


@contextlib.contextmanager
def _removed_if_empty(store: Path) -> Generator[None]:
    """Remove the store if an error comes before the first draws."""
    before = store.exists()
    try:
        yield
    except Exception:
        if not before and not any(part.is_dir() for part in store.glob("*/*")):
            shutil.rmtree(store, ignore_errors=True)
        raise


def _move(sims: en.Simulations, store: Path, out: Path) -> None:
    """Put the finished draws in their place; only then is an old file or folder removed."""
    if out.suffix.lower() != ".zarr":
        try:
            sims.write(out)
        except Exception as error:
            raise CommandError(
                f"{error}. The draws are kept in {store}, which can be read as it is."
            ) from error
        removed(store)
        return
    moved(store, out)
