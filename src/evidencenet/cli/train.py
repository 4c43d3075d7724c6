"""`evidencenet train`: read draws from files, train, and write the network to a file."""

from dataclasses import MISSING, asdict, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import evidencenet as en
from evidencenet import losses, networks
from evidencenet.cli.draws import models_if_given, read_draws
from evidencenet.cli.options import (
    SIMS_HELP,
    AsJson,
    Debug,
    Epochs,
    Force,
    Label,
    Members,
    Models,
    Names,
    Quiet,
    Seed,
    sources,
    whole,
    words,
)
from evidencenet.cli.session import made_from, new_file, record_of, session
from evidencenet.cli.spec_file import source_of


class LossName(StrEnum):
    """The losses that numbers alone describe, with the paper's names."""

    SQUARED = "squared"
    POLYNOMIAL = "polynomial"
    CROSS_ENTROPY = "cross-entropy"
    EXPONENTIAL = "exponential"
    LOGISTIC = "logistic"
    ALPHA_EXPONENTIAL = "alpha-exponential"
    ALPHA_LOG_EXPONENTIAL = "alpha-log-exponential"
    POP_EXPONENTIAL = "pop-exponential"
    L_POP_EXPONENTIAL = "l-pop-exponential"
    L_POP_LOGISTIC = "l-pop-logistic"


class RecipeName(StrEnum):
    """The recipes that have a name."""

    PAPER = "paper"


_LOSSES: dict[LossName, type[losses.Loss]] = {
    LossName.SQUARED: losses.Squared,
    LossName.POLYNOMIAL: losses.Polynomial,
    LossName.CROSS_ENTROPY: losses.CrossEntropy,
    LossName.EXPONENTIAL: losses.Exponential,
    LossName.LOGISTIC: losses.Logistic,
    LossName.ALPHA_EXPONENTIAL: losses.AlphaExponential,
    LossName.ALPHA_LOG_EXPONENTIAL: losses.AlphaLogExponential,
    LossName.POP_EXPONENTIAL: losses.PopExponential,
    LossName.L_POP_EXPONENTIAL: losses.LPopExponential,
    LossName.L_POP_LOGISTIC: losses.LPopLogistic,
}


def train(
    context: typer.Context,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The network, such as net.evnet.")],
    sims: Annotated[list[str] | None, typer.Argument(metavar="SIMS", help=SIMS_HELP)] = None,
    models: Models = None,
    draws: Annotated[
        int | None,
        typer.Option(
            parser=whole,
            metavar="N",
            help="Instead of SIMS: train on so many fresh draws of --models, none of them twice.",
        ),
    ] = None,
    seed: Seed = 0,
    members: Members = 4,
    loss: Annotated[
        LossName | None,
        typer.Option(metavar="NAME", help=f"One of {', '.join(LossName)}. logistic by default."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(metavar="A", help="Alpha of the loss, which is l-pop-exponential without --loss."),
    ] = None,
    recipe: Annotated[RecipeName | None, typer.Option(help="Train as in the paper.")] = None,
    epochs: Epochs = None,
    budget: Annotated[
        float, typer.Option(metavar="B", help="How long training may take, as a multiple of the usual.")
    ] = 1.0,
    names: Names = None,
    label: Label = "model",
    force: Force = False,
    quiet: Quiet = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Train an ensemble of networks on draws of two or more models.

    The kind of network and the scaling are chosen by trials on some of the draws. With --recipe or
    --epochs there are no trials: the loss is the paper's, and the network is the first that suits the data.
    A .zarr folder of `simulate` may be larger than memory. If its models have `observe`, give --models: the
    noise is then drawn anew in every epoch. With --models and --draws, all draws are simulated on the way.
    If you stop the command, run it again: it continues where it stopped.
    """
    chosen_loss, chosen_recipe, given = _loss(loss, alpha), named_recipe(recipe, epochs), sources(sims or [])
    _check_sources(sims, models, draws)
    with session(context) as run:
        new_file(out, force)
        checkpoint = out.with_name(f"{out.name}.checkpoint")
        run.advice = lambda: (
            f"The training so far is in {checkpoint}. Run the same command again to continue."
            if checkpoint.exists()
            else ""
        )
        with models_if_given(models) as defined:
            there, observers = (
                (None, defined) if not sims else read_draws(given, words(names), label, defined)
            )
            net = en.train(
                there,
                models=observers,
                draws=draws,
                loss=chosen_loss,
                members=members,
                budget=budget,
                recipe=chosen_recipe,
                seed=seed,
                progress=run.progress,
                checkpoint=checkpoint,
            )
        net.save(out)
        text = f"{net!r}\nwritten to {out}"
        run.finish(
            {"out": str(out), **_about(net)},
            text if net.choice is None else f"{net.choice}\n\n{text}",
            kept=record_of(out),
            made_from=made_from(given),
            spec=source_of(models),
        )


def _check_sources(sims: list[str] | None, models: Path | None, draws: int | None) -> None:
    """Refuse a command that does not say what to train on, or says it twice."""
    if sims and draws is not None:
        raise typer.BadParameter(
            "--draws simulates fresh draws, and SIMS are draws that are there: give one of them.",
            param_hint="'--draws'",
        )
    if sims or (models is not None and draws is not None):
        return
    wanted = "SIMS, or --models and --draws"
    if models is not None:
        wanted = "SIMS, which the models observe, or --draws, the number of fresh draws"
    elif draws is not None:
        wanted = "--models too, a Python file that defines `models`"
    raise typer.BadParameter(f"there is nothing to train on. Give {wanted}.", param_hint="'SIMS'")


def named_recipe(name: RecipeName | None, epochs: int | None) -> en.Recipe | None:
    """Return the recipe of this name, with this number of epochs; None if neither is given."""
    if name is None and epochs is None:
        return None
    recipe = en.Recipe() if name is None else en.Recipe.paper()
    return recipe if epochs is None else replace(recipe, epochs=epochs)


def _loss(name: LossName | None, alpha: float | None) -> losses.Loss | None:
    if name is None and alpha is None:
        return None
    name = name or LossName.L_POP_EXPONENTIAL
    kind: Any = _LOSSES[name]
    known = {item.name: item.default for item in fields(kind)}
    if alpha is None:
        if known.get("alpha", 0.0) is MISSING:
            raise typer.BadParameter(f"the loss {name} needs --alpha as well.", param_hint="'--loss'")
        return kind()
    if "alpha" not in known:
        raise typer.BadParameter(f"the loss {name} has no alpha.", param_hint="'--alpha'")
    try:
        return kind(alpha=alpha)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--alpha'") from error


def _about(net: en.EvidenceNetwork) -> dict[str, Any]:
    """Return what was trained and how training went, for JSON."""
    return {
        "names": net.names,
        "members": len(net.gain),
        "loss": losses.to_dict(net.loss),
        "architecture": networks.to_dict(net.architecture),
        "baseline": net.baseline is not None,
        "choice": None if net.choice is None else asdict(net.choice),
        "history": asdict(net.history),
    }
