"""`Observation`: how clean draws are observed, so that their noise can be drawn anew as often as wanted."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidencenet._common.arrays import (
    Data,
    arrays_of,
    finite_rows,
    join,
    kind_of,
    layout,
    layout_text,
    map_arrays,
)
from evidencenet._common.masks import mask_missing, no_infinity
from evidencenet.simulation.model import DrawError, Model

Observe = Callable[..., Any] | Model | Sequence[Callable[..., Any] | Model | None]

# A clean draw is observed again if its observation fails. It was valid once when it was simulated, so it
# is valid again after few tries, unless `observe` is another function than then.
_MOST_TRIES = 1_000
# The observations `x` of a model are drawn in blocks of this many, each with random numbers of its own.
_BLOCK = 1_000
# The first entry of the spawn keys of noise. Those of draws begin with the number of the model.
_NOISE = 2**31


@dataclass(frozen=True, eq=False)
class Observation:
    """How the clean draws of each model are observed.

    Parameters
    ----------
    models
        For each model what observes its clean draws, or None if they are data already.
    names
        The names of the models.
    missing
        Whether NaN is a missing number. If not, such an observation fails.
    """

    models: tuple[Model | None, ...]
    names: tuple[str, ...]
    missing: bool = False

    @staticmethod
    def of(observe: Observe, names: tuple[str, ...], missing: bool = False) -> "Observation | None":
        """Say how the draws of these models are observed, as the user says it; None if by no function.

        Parameters
        ----------
        observe
            A function of a batch, ``observe(rng, clean)``, for all models; a model, whose `observe` is taken;
            or one of these, or None, for each model.
        names
            The models of the draws.
        missing
            Whether NaN is a missing number.
        """
        one_for_all = callable(observe) or isinstance(observe, Model)
        given = [observe] * len(names) if one_for_all else observe
        if not isinstance(given, list | tuple) or len(given) != len(names):
            raise TypeError(
                f"observe must be a function observe(rng, clean), or a list of {len(names)} functions or "
                f"models, one for each of {', '.join(map(repr, names))}; got {kind_of(observe)}"
                + (f" of {len(given)}" if isinstance(given, list | tuple) else "")
            )
        if not one_for_all:
            _check_same_models(given, names)
        models = tuple(_observer(one, name) for one, name in zip(given, names, strict=True))
        return None if all(model is None for model in models) else Observation(models, names, missing)

    @property
    def functions(self) -> tuple[Callable[..., Any] | None, ...]:
        """The functions of the user, one for each model."""
        return tuple(None if model is None else model.observe for model in self.models)

    def draw(self, rng: np.random.Generator, clean: Data, label: np.ndarray) -> Data:
        """Observe each clean draw once, with new noise.

        An observation that fails is drawn again. The clean draw was kept because it did not fail, and so the
        new observation has the law of the valid draws of the model.

        Parameters
        ----------
        rng
            Where the noise comes from.
        clean
            Clean draws, with n rows.
        label
            The model of each, (n,).

        Returns
        -------
        Data
            The observations, with n rows.
        """
        groups = self._groups(label)
        if len(groups) == 1:
            return self._masked(self._valid(groups[0][0], rng, clean))
        whole: Any = None
        for k, rows in groups:
            part = self._valid(k, rng, map_arrays(operator.itemgetter(rows), clean))
            if whole is None:
                whole = map_arrays(lambda array: np.empty((len(label), *array.shape[1:]), array.dtype), part)
            self._check_alike(k, part, groups[0][0], whole)
            map_arrays(lambda out, new, rows=rows: operator.setitem(out, rows, new), whole, part)
        return self._masked(whole)

    def realise(self, clean: Data, label: np.ndarray, seed: int) -> Data:
        """Observe all clean draws once, with noise that depends on the seed alone; the rows stay in order."""
        whole: Any = None
        for k in range(len(self.models)):
            rows = np.flatnonzero(label == k)
            for start in range(0, len(rows), _BLOCK):
                some = rows[start : start + _BLOCK]
                part = self._block(k, start, map_arrays(operator.itemgetter(some), clean), seed)
                if whole is None:
                    whole = map_arrays(
                        lambda array: np.empty((len(label), *array.shape[1:]), array.dtype), part
                    )
                self._check_alike(k, part, 0, whole)
                map_arrays(lambda out, new, some=some: operator.setitem(out, some, new), whole, part)
        return self._masked(whole)

    def realise_pieces(self, k: int, pieces: Iterable[Data], seed: int) -> Iterator[Data]:
        """Observe the clean draws of one model piece by piece, with the noise that `realise` gives them.

        Parameters
        ----------
        k
            The number of the model.
        pieces
            Its clean draws, all of them and in order, in pieces of any length.
        seed
            Seed of the noise.

        Yields
        ------
        x
            The observations, in order, in pieces of about the same lengths.
        """
        start, rest = 0, None
        for piece in pieces:
            clean = piece if rest is None else join(rest, piece)
            n = len(arrays_of(clean)[0])
            # A block has random numbers of its own, so it is observed as a whole: its end is in the next
            # piece, perhaps.
            left = n % _BLOCK
            blocks = []
            for first in range(0, n - left, _BLOCK):
                block = map_arrays(lambda array, first=first: array[first : first + _BLOCK], clean)
                blocks.append(self._block(k, start + first, block, seed))
            if blocks:
                yield self._masked(join(*blocks))
            start += n - left
            rest = map_arrays(lambda array, begin=n - left: array[begin:], clean) if left else None
        if rest is not None:
            yield self._masked(self._block(k, start, rest, seed))

    def _block(self, k: int, start: int, clean: Data, seed: int) -> Data:
        """Observe the block of a model that begins at its draw `start`."""
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_NOISE, k, start)))
        return self._valid(k, rng, clean)

    def _groups(self, label: np.ndarray) -> list[tuple[int, Any]]:
        """Return models, and the rows that each observes: those of all models with the same function."""
        alike: dict[Any, list[int]] = {}
        for k in np.unique(label):
            model = self.models[k]
            alike.setdefault(None if model is None else (model.observe, model.kind), []).append(int(k))
        if len(alike) == 1:
            return [(next(iter(alike.values()))[0], slice(None))]
        return [(models[0], np.flatnonzero(np.isin(label, models))) for models in alike.values()]

    def _valid(self, k: int, rng: np.random.Generator, clean: Data) -> Data:
        """Observe clean draws of one model, those that fail again and again."""
        model = self.models[k]
        if model is None:
            return clean
        n = len(arrays_of(clean)[0])
        x, good = self._tried(model, rng, clean)
        for _ in range(_MOST_TRIES):
            if good.all():
                return x
            bad = np.flatnonzero(~good)
            again, valid = self._tried(model, rng, map_arrays(operator.itemgetter(bad), clean))
            if x is None:
                x = again and map_arrays(lambda array: np.empty((n, *array.shape[1:]), array.dtype), again)
            if again is not None:
                rows = bad[valid]
                map_arrays(lambda out, new, v=valid, r=rows: operator.setitem(out, r, new[v]), x, again)
                good[rows] = True
        raise ValueError(
            f"observe of model {self.names[k]!r} failed {_MOST_TRIES:,} times for the same clean draw: it "
            "raises an error, or gives NaN or infinity. Draws that cannot be observed must fail in simulate; "
            "was it another observe when they were simulated?"
        )

    def _tried(self, model: Model, rng: np.random.Generator, clean: Data) -> tuple[Any, np.ndarray]:
        """Observe clean draws once; return what came, None if it raised, and which are valid."""
        n = len(arrays_of(clean)[0])
        try:
            x = model.observed(rng, clean)
        except (DrawError, MemoryError):
            raise
        except Exception:
            if n == 1:
                return None, np.zeros(1, dtype=bool)
            # Nobody knows which of them failed.
            parts = [
                self._tried(model, rng, map_arrays(lambda a, i=i: a[i : i + 1], clean)) for i in range(n)
            ]
            some = next((part for part, _ in parts if part is not None), None)
            if some is None:
                raise
            x = map_arrays(
                lambda *arrays: np.concatenate(arrays), *(some if p is None else p for p, _ in parts)
            )
            return x, np.concatenate([good for _, good in parts])
        check = no_infinity if self.missing else finite_rows
        return x, np.logical_and.reduce([check(array) for array in arrays_of(x)])

    def _masked(self, x: Data) -> Data:
        if not self.missing:
            return x
        if isinstance(x, dict) or x.ndim != 2:
            raise ValueError(
                f"observe returns {layout_text(layout(x))}; with missing='mask' wanted vectors, in which NaN "
                "is a missing number. For other data return a dict with a mask from observe, such as "
                "{'x': x, 'mask': mask}, and leave out missing"
            )
        return mask_missing(x)[0]

    def _check_alike(self, k: int, part: Data, first: int, whole: Data) -> None:
        if layout(part) != layout(whole):
            raise DrawError(
                f"model {self.names[k]!r} is observed as {layout_text(layout(part))}, but model "
                f"{self.names[first]!r} as {layout_text(layout(whole))}; all draws of all models must have "
                "the same keys, shapes and types. A model without observe is taken as it is"
            )


def _check_same_models(given: Sequence[Any], names: tuple[str, ...]) -> None:
    """Raise if models are given that are not those of the draws, or in another order.

    Draws that nothing names are those of the models "M0", "M1", ...: then the order counts.
    """
    theirs = [one.name if isinstance(one, Model) else name for one, name in zip(given, names, strict=True)]
    if any(own not in (name, f"M{k}") for k, (own, name) in enumerate(zip(names, theirs, strict=True))):
        raise ValueError(
            f"the draws are of {', '.join(map(repr, names))}, and the models that observe them are "
            f"{', '.join(map(repr, theirs))}; wanted the same models in the same order. Give them so, or "
            "name the draws, or give the functions: observe=[model.observe, ...]"
        )


def _observer(given: Any, name: str) -> Model | None:
    """Return a model that observes: the user's, or one that can do nothing else."""
    if given is None:
        return None
    if isinstance(given, Model):
        return None if given.observe is None else given
    if not callable(given):
        raise TypeError(f"observe of model {name!r} must be a function or a Model, got {kind_of(given)}")
    return Model(name, _no_simulator, observe=given)


def _no_simulator(rng: Any, n: int) -> Any:
    raise RuntimeError("these draws come from a file or an array, not from a simulator")
