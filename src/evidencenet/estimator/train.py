"""`train`: from simulations to an `EvidenceNetwork`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from evidencenet import losses, networks
from evidencenet._common.arguments import explained
from evidencenet._common.blas import one_thread
from evidencenet.estimator.arguments import Request
from evidencenet.estimator.assemble import assemble, completed, exact_network
from evidencenet.estimator.fit import choose_and_fit
from evidencenet.estimator.learn_error import with_learned_error
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.model import Model
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment


@explained(
    "train(sims, seed=2)",
    {
        "*": "Put data and labels together first: train(Simulations(x, labels)). Several stores are a list, "
        "train(['a.zarr', 'b.zarr']), and fresh draws have a name, train(models, draws=1_000_000).",
        "epochs": "recipe=Recipe(epochs=...)",
        "n_epochs": "recipe=Recipe(epochs=...)",
        "batch_size": "recipe=Recipe(batch=...)",
        "batch": "recipe=Recipe(batch=...)",
        "lr": "recipe=Recipe(learning_rate=...)",
        "learning_rate": "recipe=Recipe(learning_rate=...)",
        "weight_decay": "recipe=Recipe(weight_decay=...)",
        "patience": "recipe=Recipe(patience=...)",
        "validation_split": "recipe=Recipe(held_out=...)",
        "held_out": "recipe=Recipe(held_out=...)",
        "verbose": "progress=False or True",
        "quiet": "progress=False",
        "ensemble": "members=...",
        "time_limit": "budget=..., a multiple of the usual time",
        "timeout": "budget=..., a multiple of the usual time",
        "n_members": "members=...",
        "n_networks": "members=...",
        "architecture": "network=...",
        "model": "models=[...] for what is simulated, or network=...",
        "n": "draws=..., the number of all draws together",
        "random_state": "seed=...",
        "rng": "seed=...",
        "n_jobs": "workers=... for fresh draws and stores, or executor=... for the members",
        "store": "the path itself, train('draws.zarr')",
        "stores": "the paths themselves, train(['a.zarr', 'b.zarr'])",
        "path": "the path itself, train('draws.zarr')",
        "paths": "the paths themselves, train(['a.zarr', 'b.zarr'])",
        "observe": "models=[...], whose observe is used; or train(Simulations.read(path, observe=...))",
        "device": '"with jax.default_device(...):" around the call, which else uses all of jax.devices(),',
        "devices": '"with jax.default_device(...):" around the call, which else uses all of jax.devices(),',
        "gpu": '"with jax.default_device(...):" around the call, which else uses all of jax.devices(),',
        "pool": "executor=...",
        "client": "executor=client",
        "n_draws": "draws=..., the number of all draws together",
        "missing": "simulate(..., missing='mask') or Simulations(..., missing='mask')",
    },
)
def train(
    sims: Simulations | str | os.PathLike[str] | Sequence[str | os.PathLike[str] | Model] | None = None,
    *,
    models: Sequence[Model] | None = None,
    draws: float | None = None,
    workers: int = -1,
    loss: losses.Loss | str | None = None,
    network: networks.Architecture | str | None = None,
    members: int = 4,
    recipe: Recipe | None = None,
    baseline: bool | None = None,
    augment: Augment | None = None,
    layout: str | Mapping[str, str] | None = None,
    learn_error: bool = True,
    seed: int | None = 0,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    executor: Any = None,
    budget: float = 1.0,
) -> EvidenceNetwork:
    """Train an ensemble of networks to tell the models apart, and so to give log Bayes factors.

    Parameters
    ----------
    sims
        Draws of two models or more. If the density of a model is known, by `Model(log_density=)`, it is used
        and not learned (see `evidencenet.estimator.densities`). The path of a store of `simulate`, or a list
        of several, trains on draws that need not fit in memory: chunks are read in random order in every
        epoch. Give `models` too if they have `observe`. Other paths read the file. A list of models is taken
        for `models`.
    models, draws
        Instead of `sims`: models that are fast to simulate, and how many draws to train on in all. They are
        simulated while the networks are trained, and none is used twice, so that networks cannot learn them
        by heart, and memory stays the same however many there are. Other draws are held out.
    workers
        How many blocks of fresh draws are simulated, or chunks of a store read, at the same time, in threads;
        −1 for one per processor. The result does not depend on it.
    loss
        One of `evidencenet.losses`, or its name. None is ``Logistic()``; the paper's is
        ``LPopExponential(alpha=2.0)``.
    network
        One of `evidencenet.networks`, or its name, such as "image"; or ``function(x, outputs, key=key)`` that
        returns an Equinox module for draws like `x`.
    members
        Networks in the ensemble. Their mean is the estimate.
    recipe
        How to train. If you name one, nothing is chosen by evidence: the network is the paper's for vectors,
        and else the first that suits the layout; the loss is the paper's, or the logistic one for networks
        with an evidence head; and there is no baseline, unless you name these too.
    baseline
        Whether the networks correct Gaussians fitted to each model's draws, or learn everything themselves.

        Network and baseline that you do not name are chosen by evidence, and so is the scaling of the data:
        alternatives are trained on some of the draws, and the best held-out score of log K decides. The
        result's `choice` lists them.
    augment
        ``augment(rng, x)`` applies a random symmetry of the problem to each draw of a batch, for example a
        change of sign.
    layout
        What x is: "vector", "exchangeable", "series", "channels x time", "image", "volume", "table", "graph",
        "set", "set of sets", "irregular series" or "categories"; for a dict of several parts, a dict of such
        names.
        None guesses it from the draws (see `evidencenet.networks.layout`). A network of your own sees x as
        you gave it.
    learn_error
        Learn the error of log K by training two more networks, each on half of the draws (see
        `evidencenet.estimator.error`). If False, or with fewer than 64 draws to train on, errors are the
        jackknife over the members, as in the paper, which misses what they share.
    seed
        The same seed on the same machine gives the same network, to the bit. None draws one, and says which.
    progress
        Show a bar (or, where there is no terminal, a few lines) on standard error.
    checkpoint
        A file for the state of the training after each epoch. If the file is there already, training
        continues from it, to the same network as without a break. A checkpoint of another run (other draws,
        settings, `augment` or network) is refused, and the message says what differs. `EvidenceNetwork.save`
        removes it, when the network is safely on disk; until then the same call continues from it.
    executor
        Trains each member as a job of its own, perhaps on another machine: a `concurrent.futures.Executor`,
        such as Dask's ``client.get_executor()``. On the same kind of processor the network is the same to the
        bit as without. Trials, and trainings for the error of log K, run here. Not with `checkpoint`.
    budget
        How long training may take, as a multiple of the usual: with 4, every trial and every member may take
        four times as much arithmetic. The usual is about half a minute on one core for a member, and less
        where draws are few. The same budget gives the same network on any number of cores.

    Returns
    -------
    EvidenceNetwork
        Trained; it cannot be changed.

    Examples
    --------
    >>> import numpy as np
    >>> import evidencenet as en
    >>> flat = en.Model("flat", lambda rng, n: rng.normal(size=(n, 20)))
    >>> wide = en.Model("wide", lambda rng, n: 1.5 * rng.normal(size=(n, 20)))
    >>> sims = en.simulate([flat, wide], 20_000, seed=1, progress=False)
    >>> net = en.train(sims, seed=2, progress=False)
    >>> net.log_bayes_factor(np.zeros((1, 20))).shape
    (1,)

    Fresh draws, none of them used twice:

    >>> net = en.train(models=[flat, wide], draws=5_000_000)  # doctest: +SKIP
    """
    with one_thread():
        request = Request.checked(
            sims,
            models,
            draws,
            workers,
            loss,
            network,
            members,
            recipe,
            baseline,
            augment,
            layout,
            learn_error,
            seed,
            progress,
            checkpoint,
            executor,
            budget,
        )
        if request.nothing_to_learn:
            return exact_network(request)
        # Split the draws, choose a plan by trials, and fit an ensemble by it.
        fit = choose_and_fit(request)
        # Judge it by the held-out draws, and learn the error of log K.
        net = assemble(request, fit)
        net = with_learned_error(net, request, fit)
        # Add known densities, if there are any.
        return completed(net, request, fit)
