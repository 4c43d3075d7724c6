"""`Layout`: what the numbers of x are, and the form in which networks see them.

The shape alone says little: (30, 2) may be 30 points of a plane, or a series of two channels. So the draws
are asked too: whether the order of the places along an axis matters, whether the numbers are letters, whether
a column is one of times. The guess is put in words, and the user can say it instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, map_arrays
from evidencenet.networks.architectures import (
    Architecture,
    Autoregression,
    Categories,
    DeepSet,
    Dense,
    Groups,
    Image,
    Irregular,
    Modes,
    Neighbours,
    Parts,
    Recurrence,
    Regression,
    Shapes,
    Spectrum,
    Squares,
    Table,
    Transitions,
    Windows,
)
from evidencenet.networks.architectures import (
    Sequence as Series,
)

Kind = Literal[
    "numbers",
    "vector",
    "exchangeable",
    "series",
    "channels x time",
    "image",
    "volume",
    "table",
    "graph",
    "set",
    "set of sets",
    "irregular series",
    "categories",
]
_KINDS: tuple[str, ...] = get_args(Kind)

# A set needs this many elements, and a series this length, to be treated as such.
_LEAST_ELEMENTS = 4
_LEAST_LENGTH = 8
# An axis of an image or volume has at least this many places, and one of channels at most so many.
_LEAST_SIDE = 5
_MOST_CHANNELS = 4
# Letters have at most so many kinds. Each kind is at least this part as frequent as on average: counts, whose
# large values are rare, are no letters.
_MOST_KINDS = 12
_RAREST = 0.2
# Draws that are asked, of each model, and places of them. The order of places matters if some statistic of a
# place or pair of places differs from the others by so many standard errors: of the at most 50,000 that are
# compared, one in 10,000 data sets of exchangeable numbers would have one so large.
_ASKED = 20_000
_PLACES = 200
# ... and numbers in all, so that it takes a fraction of a second.
_NUMBERS = 4_000_000
_ERRORS = 7.0
# Sines of more numbers than this cost more than they gain.
_MOST_WAVES = 32
_WAVES = 8
_LARGEST_SPECTRUM = 4096
_LONGEST_MODES = 1024
# Vectors of more columns than this are no regression of one column on a few others.
_MOST_COLUMNS = 12
# Of longer series, not every place is asked how those before explain it: that takes too long.
_LONGEST = 256
# Sets of up to so many elements and columns are asked which elements are near each other.
_MOST_NEAR, _MOST_NEAR_COLUMNS = 128, 3
# A dict of several parts is tried with so many kinds of network for its parts.
_JOINED = 3
# Up to so many models, the usual number of projections is enough.
_FEW_MODELS = 4
# Names of arrays of times.
_TIMES = ("t", "time", "times", "epoch", "date", "mjd", "jd")


@dataclass(frozen=True)
class Part:
    """What one array of a draw is, or several arrays that belong together.

    Parameters
    ----------
    kind
        One of "numbers" (a vector whose order may or may not matter), "vector" (each number has a meaning of
        its own), "exchangeable", "series" (time first), "channels x time", "image", "volume", "table" (of
        exchangeable rows and columns), "graph" (links from nodes, the rows, to the same nodes, the columns),
        "set" (of vectors), "set of sets", "irregular series" and "categories" (a series of letters).
    reason
        Why, in words.
    keys
        Names of its arrays in a dict; values first, in the order of their columns, then the mask. Empty if x
        is one array.
    axes
        The order in which the axes of a draw are put. Empty if they stay.
    add_channel
        Whether an axis of channels, of length one, is added at the end.
    letters
        The values that numbers can have, if they are letters. Each becomes a channel.
    """

    kind: Kind
    reason: str
    keys: tuple[str, ...] = ()
    axes: tuple[int, ...] = ()
    add_channel: bool = False
    letters: tuple[float, ...] = ()

    def arrange(self, array: np.ndarray) -> np.ndarray:
        """Bring an array (n, ...) to the form that networks expect: places first, channels last."""
        if array.dtype == bool:
            return array
        if self.letters:
            return (array[..., None] == np.array(self.letters, array.dtype)).astype(np.float32)
        if self.axes:
            array = np.transpose(array, (0, *(1 + axis for axis in self.axes)))
        return array[..., None] if self.add_channel else array


@dataclass(frozen=True)
class Layout:
    """What x is: one part, or several in a dict.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100, 3, 40)).cumsum(axis=2)
    >>> layout = Layout.guess(x, np.arange(100) % 2)
    >>> print(layout)
    channels x time: the order along the second axis matters, and the first is short
    >>> layout.arrange(x).shape
    (100, 40, 3)
    """

    parts: tuple[Part, ...]

    @staticmethod
    def guess(x: Data, model: np.ndarray) -> "Layout":
        """Guess the layout from draws.

        Parameters
        ----------
        x
            Draws, each array (n, ...).
        model
            The model that each draw came from, (n,).
        """
        if not isinstance(x, dict):
            return Layout((_guess(x, model),))
        return Layout(tuple(_guess_part(x, keys, model) for keys in _belonging(x)))

    @staticmethod
    def named(name: str | Mapping[str, str], x: Data, model: np.ndarray) -> "Layout":
        """Take what the user says x is: one name, or one for some keys of a dict; the others are guessed."""
        if isinstance(name, str):
            if not isinstance(x, dict):
                return Layout((_as_named(name, x, ()),))
            groups = _belonging(x)
            if len(groups) == 1:
                return Layout((_as_named(name, x, groups[0]),))
            raise ValueError(
                f'layout = "{name}" for a dict of {len(groups)} parts; wanted a dict that says what each '
                f'part is, such as layout={{"{groups[0][0]}": "image"}}.'
            )
        if not isinstance(x, dict) or not set(name) <= set(x):
            given = f"the keys {sorted(x)}" if isinstance(x, dict) else "one array"
            raise ValueError(f"layout names the keys {sorted(name)}; x has {given}. Name keys of x.")
        chosen = []
        for keys in _belonging(x):
            said = [name[key] for key in keys if key in name]
            chosen.append(_as_named(said[0], x, keys) if said else _guess_part(x, keys, model))
        return Layout(tuple(chosen))

    def arrange(self, x: Data) -> Data:
        """Bring draws to the form that networks expect: places first, channels last."""
        if not isinstance(x, dict):
            return self.parts[0].arrange(x)
        if len(self.parts) == 1 and self.parts[0].kind == "irregular series":
            return _columns(x, self.parts[0].keys)
        arranged = {key: part.arrange(x[key]) for part in self.parts for key in part.keys}
        return {key: arranged[key] for key in x}

    def of_key(self, key: str) -> Part:
        """Return the part that an array belongs to; the key is empty if x is one array."""
        if len(self.parts) == 1:
            return self.parts[0]
        return next(part for part in self.parts if key in part.keys)

    def __str__(self) -> str:
        if len(self.parts) == 1:
            return f"{self.parts[0].kind}: {self.parts[0].reason}"
        return "; ".join(f"{', '.join(part.keys)} as {part.kind}: {part.reason}" for part in self.parts)

    def to_dict(self) -> list[dict[str, Any]]:
        """Describe the layout for a file."""
        return [asdict(part) for part in self.parts]

    @staticmethod
    def from_dict(about: Sequence[Mapping[str, Any]]) -> "Layout":
        """Rebuild what `to_dict` described."""
        # JSON has lists in the place of tuples.
        fields: list[dict[str, Any]] = [
            {name: tuple(value) if isinstance(value, list) else value for name, value in part.items()}
            for part in about
        ]
        return Layout(tuple(Part(**values) for values in fields))


def candidates(layout: Layout, example: Data, *, models: int = 2) -> list[Architecture]:
    """Architectures that suit a layout; the first is the first to be tried.

    Parameters
    ----------
    layout
        What x is.
    example
        One draw, arranged by the layout.
    models
        How many models there are.
    """
    if len(layout.parts) > 1:
        return _for_several(layout, example)
    return _for_part(layout.parts[0], example, models)


def _for_part(part: Part, x: Any, models: int = 2) -> list[Architecture]:
    numbers = sum(array.size for array in arrays_of(x))
    flat: list[Architecture] = [_squares(models), Dense()]
    if numbers <= _MOST_WAVES:
        flat.append(_dense_with_waves(numbers))
    flat.append(Squares(projections=32, nodes=32, smooth=16))
    # Where elements are missing, nothing has a spectrum.
    whole = not isinstance(x, dict) and _LEAST_LENGTH <= numbers <= _LARGEST_SPECTRUM
    spectrum: list[Architecture] = [Spectrum()] if whole else []
    # Elements of several columns, of which one may be a function of the others.
    columns = sum(array[0].size for array in arrays_of(x) if array.dtype != bool and array.ndim)
    regression: list[Architecture] = [Regression()] if 2 <= columns <= _MOST_COLUMNS else []
    # Single numbers, such as times of events, may come at a rhythm, however many there are.
    may_wave = numbers <= _MOST_WAVES or (part.kind == "set" and columns == 1)
    waves: list[Architecture] = [DeepSet(waves=_WAVES)] if may_wave else []
    places: int = max((len(array) for array in arrays_of(x) if array.ndim), default=0)
    # Elements of few numbers may be places or times, of which some are near each other.
    may_be_near = places <= _MOST_NEAR and columns <= _MOST_NEAR_COLUMNS
    near: list[Architecture] = [Neighbours()] if part.kind == "set" and may_be_near else []
    is_short = places <= _LONGEST
    ordered: list[Architecture] = [Recurrence(), Series(), *([Transitions()] if is_short else [])]
    ordered += [Shapes(), *spectrum]
    # It takes long, so it is tried only where x is known to be a series.
    lags: list[Architecture] = [Autoregression()] if is_short else []
    # Fourier modes of long series take longer than all else.
    modes: list[Architecture] = [Modes()] if whole else []
    together = columns > 1 and numbers <= _LONGEST_MODES
    match part.kind:
        case "vector":
            return flat
        case "numbers":
            return [*flat, *(ordered if numbers >= 2 * _LEAST_LENGTH else [DeepSet()])]
        case "exchangeable":
            return [DeepSet(), *waves, *flat]
        case "series" | "channels x time":
            # The first three are tried for series in a dict.
            ordered[2:2] = lags
            return [*ordered, *(modes if together else []), _squares(models), Dense()]
        case "image" | "volume":
            return [Image(), Shapes(), *modes, *spectrum, Squares(projections=32, nodes=32), Dense()]
        case "table":
            return [Table(), Groups(), DeepSet(), Dense()]
        case "graph":
            # Nodes may have names, as in groups of nodes that are known.
            return [Table(links=True), _squares(models), Table(), Dense()]
        case "set":
            return [DeepSet(), *regression, *waves, *near, Dense()]
        case "set of sets":
            return [Groups(), Dense()]
        case "irregular series":
            return [Irregular(), Windows(), *regression, DeepSet()]
        case "categories":
            return [Categories(), Recurrence(), Series(), Shapes(), DeepSet(), Dense()]
    raise ValueError(f"no networks are known for the layout {part.kind!r}.")


def _squares(models: int) -> Squares:
    """Return `Squares` for so many models: each may differ from the others in a direction of its own.

    Each model has its own sums, so that many models need fewer terms in them (docs/decisions.md, "A search
    that learning curves cannot fool": ten models).
    """
    return Squares() if models <= _FEW_MODELS else Squares(projections=2 * models, nodes=8)


def _for_several(layout: Layout, x: Any) -> list[Architecture]:
    choices: list[list[Any]] = []
    for part in layout.parts:
        if part.kind in ("vector", "numbers"):
            choices.append([None] * _JOINED)
            continue
        arrays = {key: x[key] for key in part.keys}
        encoders = [
            network
            for network in _for_part(part, arrays if len(arrays) > 1 else arrays[part.keys[0]])
            if hasattr(network, "encoder")
        ]
        choices.append([encoders[min(i, len(encoders) - 1)] for i in range(_JOINED)])
    joined = [
        Parts(tuple((part.keys, choice[i]) for part, choice in zip(layout.parts, choices, strict=True)))
        for i in range(_JOINED)
    ]
    flat: list[Architecture] = [Dense(), Squares(projections=32, nodes=32, smooth=16)]
    return [*dict.fromkeys(joined), *flat]


def _dense_with_waves(numbers: int) -> Dense:
    return Dense(
        width=max(128, int(1.1 * numbers) + 20), hidden=64, waves=int(np.clip(64 // numbers, 4, _WAVES))
    )


def _belonging(x: dict[str, np.ndarray]) -> list[tuple[str, ...]]:
    """Divide the arrays of a dict into those that belong together, by one mask or one axis of times."""
    masks = [key for key, array in x.items() if array.dtype == bool]
    values = [key for key, array in x.items() if array.dtype != bool]
    parts: list[tuple[str, ...]] = []
    left = list(values)
    for mask in masks:
        shape = x[mask].shape
        members = [key for key in left if x[key].shape[: len(shape)] == shape]
        left = [key for key in left if key not in members]
        parts.append((*_times_first(x, members, x[mask]), mask))
    for time in [key for key in left if key.lower() in _TIMES and x[key].ndim == 2]:
        members = [key for key in left if x[key].shape[:2] == x[time].shape and key != time]
        if members:
            left = [key for key in left if key not in (time, *members)]
            parts.append((time, *members))
    # Numbers of the same times or elements: arrays of the same length, unless they are letters.
    lengths = {key: x[key].shape[1] for key in left if x[key].ndim in (2, 3) and not _letters(x[key])}
    for length in dict.fromkeys(lengths.values()):
        members = [key for key in left if lengths.get(key) == length]
        if length >= _LEAST_LENGTH and len(members) > 1:
            left = [key for key in left if key not in members]
            parts.append(tuple(members))
    return [*parts, *((key,) for key in left)]


def _times_first(x: dict[str, np.ndarray], keys: list[str], mask: np.ndarray) -> list[str]:
    times = [key for key in keys if x[key].ndim == 2 and mask.ndim == 2 and _rises(x[key], mask)]
    named = [key for key in times if key.lower() in _TIMES]
    first = (named or times)[:1]
    return [*first, *(key for key in keys if key not in first)]


def _rises(time: np.ndarray, mask: np.ndarray | None) -> bool:
    """Say whether numbers (n, N) rise along every draw, and are not the same in all draws."""
    sample = time[:_ASKED]
    if sample.shape[1] < _LEAST_ELEMENTS or np.ptp(sample, axis=0).max() == 0:
        return False
    step = np.diff(sample, axis=1)
    if mask is None:
        return bool((step >= 0).all())
    # Elements that are there need not come first.
    there = mask[: len(sample)]
    if (there[:, :-1] >= there[:, 1:]).all():
        return bool((step[there[:, 1:]] >= 0).all())
    return all(
        np.all(np.diff(row[inside]) >= 0) for row, inside in zip(sample[:1000], there[:1000], strict=True)
    )


def _columns(x: dict[str, np.ndarray], keys: tuple[str, ...]) -> Data:
    """Put the arrays of elements side by side, (n, N, C), beside their mask."""
    masks = [key for key in keys if x[key].dtype == bool]
    values = [x[key] for key in keys if x[key].dtype != bool]
    rows = np.concatenate([array.reshape(*array.shape[:2], -1) for array in values], axis=2)
    return {"x": rows, "mask": x[masks[0]]} if masks else {"x": rows}


def _guess_part(x: dict[str, np.ndarray], keys: tuple[str, ...], model: np.ndarray) -> Part:
    masks = [key for key in keys if x[key].dtype == bool]
    values = [key for key in keys if key not in masks]
    if not values:
        # A boolean array without numbers that belong to it: yes or no, as numbers 0 and 1.
        return Part("vector", "yes or no, not a mask of other arrays", keys)
    if not masks and len(values) == 1:
        part = _guess(x[keys[0]], model)
        return Part(part.kind, part.reason, keys, part.axes, part.add_channel, part.letters)
    mask = x[masks[0]] if masks else None
    if mask is not None and mask.ndim == 3:
        return Part("set of sets", f"{masks[0]!r} says which elements of each group are there", keys)
    if mask is not None and mask.ndim != 2:
        return Part("vector", "no layout is known for a mask of this shape", keys)
    if x[keys[0]].ndim == 2 and len(values) > 1 and _rises(x[keys[0]], mask):
        return Part("irregular series", f"{keys[0]!r} rises along every draw, as times do", keys)
    column = x[keys[0]][:, :, 0] if x[keys[0]].ndim == 3 and x[keys[0]].shape[2] > 1 else None
    if column is not None and _rises(column, mask):
        return Part("irregular series", f"the first column of {keys[0]!r} rises along every draw", keys)
    if mask is None:
        if any(_order_matters(x[key], 1, model) for key in keys):
            return Part("series", "arrays of the same length, whose order matters", keys)
        return Part("set", "arrays of the same length, with no sign that their order matters", keys)
    there = f"{masks[0]!r} says which elements are there"
    if len(values) == 1 and x[keys[0]].ndim == 2 and _rises(x[keys[0]], mask):
        return Part("set", f"{there}, and the numbers rise along every draw, as times of events do", keys)
    if len(values) == 1 or x[keys[0]].ndim == 2:
        if not _order_matters_among(x[keys[0]], mask, model):
            return Part("set", f"{there}, and there is no sign that their order matters", keys)
        if x[keys[0]].ndim == 2:
            return Part("numbers", f"{there}; their order matters: they may be a series or not", keys)
        return Part("series", f"{there}, and their order matters", keys)
    return Part("set", there, keys)


def _guess(array: np.ndarray, model: np.ndarray) -> Part:
    if array.dtype == bool:
        return Part("vector", "yes or no")
    match array.ndim - 1:
        case 1:
            return _guess_vector(array, model)
        case 2:
            return _guess_matrix(array, model)
        case 3:
            return _guess_cube(array, model)
        case 4:
            return _places_and_channels("volume", array.shape[1:], "four axes, one of them of channels")
    return Part("vector", "no layout is known for so many axes")


def _guess_vector(array: np.ndarray, model: np.ndarray) -> Part:
    size = array.shape[1]
    letters = _letters(array)
    if letters and size >= _LEAST_LENGTH:
        return Part("categories", f"whole numbers of {len(letters)} kinds", letters=letters)
    if size < _LEAST_ELEMENTS:
        return Part("vector", "few numbers")
    if _order_matters(array, 1, model):
        return Part("numbers", "the order of the numbers matters: they may be a series or not")
    return Part("exchangeable", "no sign that the order of the numbers matters")


def _guess_matrix(array: np.ndarray, model: np.ndarray) -> Part:
    rows, columns = array.shape[1:]
    if 2 <= columns <= _MOST_CHANNELS + 1 and _rises(array[:, :, 0], None):
        return Part("irregular series", "the first column rises along every draw, as times do")
    if rows == columns and np.array_equal(array[:1000], np.swapaxes(array[:1000], 1, 2)):
        return Part("graph", "symmetric, as links between nodes", add_channel=True)
    if _diagonal_is_constant(array):
        return Part("graph", "the diagonal is constant, as in links between nodes", add_channel=True)
    along_rows, along_columns = (_order_matters(array, axis, model) for axis in (1, 2))
    if (rows >= _LEAST_LENGTH and 4 * columns <= rows) or columns == 1:
        if along_rows:
            return Part("series", "the order along the first axis matters, and the second is short")
        return Part("set", "no sign that the order along the first axis matters")
    if columns >= _LEAST_LENGTH and 4 * rows <= columns:
        if along_columns:
            reason = "the order along the second axis matters, and the first is short"
            return Part("channels x time", reason, axes=(1, 0))
        return Part("set", "no sign that the order along the second axis matters", axes=(1, 0))
    match along_rows, along_columns:
        case False, False:
            return Part("table", "no sign that the order of rows or columns matters", add_channel=True)
        case False, True:
            return Part("set", "the order of columns matters, that of rows does not")
        case True, False:
            return Part("set", "the order of rows matters, that of columns does not", axes=(1, 0))
    if min(rows, columns) >= _LEAST_SIDE:
        return Part("image", "two axes whose order matters", add_channel=True)
    return Part("vector", "few rows and columns, whose order matters")


def _guess_cube(array: np.ndarray, model: np.ndarray) -> Part:
    shape = array.shape[1:]
    if shape[2] <= _MOST_CHANNELS and _diagonal_is_constant(array):
        return Part("graph", "the diagonal is constant, as in links between nodes")
    if shape[2] <= _MOST_CHANNELS and not any(_order_matters(array, axis, model) for axis in (1, 2)):
        return Part("set of sets", "no sign that the order along the first two axes matters")
    if min(shape) > _MOST_CHANNELS:
        return Part("volume", "three long axes", add_channel=True)
    return _places_and_channels("image", shape, "three axes, one of them short")


def _places_and_channels(kind: Kind, shape: tuple[int, ...], reason: str) -> Part:
    """Take the shorter one of the first and the last axis as that of channels."""
    if shape[0] < shape[-1]:
        return Part(kind, f"{reason}: channels first", axes=(*range(1, len(shape)), 0))
    return Part(kind, f"{reason}: channels last")


def _as_named(name: str, x: Data, keys: tuple[str, ...]) -> Part:
    """Make the part that the user names, and check that the arrays can be that."""
    if name not in _KINDS:
        raise ValueError(f"layout = {name!r}; wanted one of {', '.join(map(repr, _KINDS))}.")
    kind: Any = name
    arrays = [x[key] for key in keys] if isinstance(x, dict) else [x]
    first = arrays[0]
    shape = first.shape[1:]
    reason = "as given"
    wanted = {"series": (1, 2), "channels x time": (2,), "image": (2, 3), "volume": (3, 4), "table": (2, 3)}
    wanted |= {
        "graph": (2, 3),
        "exchangeable": (1,),
        "numbers": (1,),
        "categories": (1,),
        "set of sets": (2, 3),
        "set": (1, 2),
    }
    if len(shape) not in wanted.get(name, range(10)):
        axes = " or ".join(map(str, wanted[name]))
        raise ValueError(f'layout = "{name}" wants draws of {axes} axes; these have the shape {shape}.')
    if name == "graph" and shape[0] != shape[1]:
        raise ValueError(f'layout = "graph" wants as many rows as columns; these have the shape {shape}.')
    if name == "categories":
        letters = np.unique(first[:_ASKED])
        if len(letters) > 256:
            raise ValueError(
                f'layout = "categories", but there are {len(letters)} different values; wanted few.'
            )
        return Part(kind, reason, keys, letters=tuple(float(value) for value in letters))
    if name == "irregular series" and sum(array[0].size for array in arrays) < 2 * first.shape[1]:
        raise ValueError('layout = "irregular series" wants times and values; there is one column only.')
    if name == "channels x time":
        return Part(kind, reason, keys, axes=(1, 0))
    places = {"image": 2, "volume": 3, "table": 2, "graph": 2, "set of sets": 2}.get(name)
    if places == len(shape):
        return Part(kind, reason, keys, add_channel=True)
    if name in ("image", "volume"):
        part = _places_and_channels(kind, shape, reason)
        return Part(kind, part.reason, keys, part.axes)
    return Part(kind, reason, keys)


def _letters(array: np.ndarray) -> tuple[float, ...]:
    """Return the values of an array if they are letters: few whole numbers, none of them rare."""
    sample = array[:_ASKED]
    if not np.array_equal(sample, np.round(sample)):
        return ()
    values, counts = np.unique(sample, return_counts=True)
    if not 2 < len(values) <= _MOST_KINDS or counts.min() < _RAREST * counts.mean():
        return ()
    if any(second - first != 1 for first, second in pairwise(values)):
        return ()
    return tuple(float(value) for value in values)


def _diagonal_is_constant(array: np.ndarray) -> bool:
    """Say whether draws (n, N, N, ...) have the same numbers on the diagonal, while the others vary.

    Nodes have no links to themselves, or all the same. It is not asked whether the order of rows or columns
    matters: the diagonal itself would be a sign of it.
    """
    rows, columns = array.shape[1:3]
    if rows != columns or rows < _LEAST_ELEMENTS or len(array) < 2:
        return False
    node = np.arange(rows)
    diagonal = array[:, node, node]
    if not (diagonal == diagonal[:1, :1]).all():
        return False
    # Some links may be too rare to be seen. Where half of the numbers are never there, it is not for that.
    varies = np.ptp(array[:_ASKED], axis=0).reshape(rows, columns, -1).any(axis=2)
    return bool(2 * varies.sum() > rows * (columns - 1))


def _order_matters(array: np.ndarray, axis: int, model: np.ndarray) -> bool:
    """Say whether draws show that the order of places along an axis matters, in some model.

    If it did not, all places would have the same mean and variance, and all pairs of places the same
    covariance, neighbours included. Outliers are cut off, so that they do not decide. That the draws show
    nothing does not prove that the order is without meaning.
    """
    places = array.shape[axis]
    if places < 3:
        return True
    most = max(1000, min(_ASKED, _NUMBERS // array[0].size))
    for k in np.unique(model):
        sample = np.moveaxis(array[np.flatnonzero(model == k)[:most]], axis, 1)
        sample = _bounded(sample.reshape(len(sample), places, -1))
        if _neighbours_differ(sample) or _places_differ(sample[:, :: -(-places // _PLACES)]):
            return True
    return False


def _order_matters_among(array: np.ndarray, mask: np.ndarray, model: np.ndarray) -> bool:
    """Say whether the order of the elements (n, N, ...) matters that a mask (n, N) says are there.

    Elements that are missing are left out, and the others move up. Of the draws that then have at least the
    median number of elements, so many first ones are asked. Which elements are missing must not depend on
    their values; then the first ones of a set are exchangeable too.
    """
    count = mask.sum(axis=1)
    length = int(np.median(count))
    if length < 3:
        return True
    rows = np.flatnonzero(count >= length)[: 2 * _ASKED]
    moved = np.argsort(~mask[rows], axis=1, kind="stable")[:, :length]
    first = np.take_along_axis(array[rows], moved.reshape(*moved.shape, *(1,) * (array.ndim - 2)), axis=1)
    return _order_matters(first, 1, model[rows])


def _bounded(x: np.ndarray) -> np.ndarray:
    """Bring numbers (n, N, C) of each channel to order one, and cut off outliers."""
    first = x[:1000].reshape(-1, x.shape[2])
    low, middle, high = np.quantile(first, [0.25, 0.5, 0.75], axis=0)
    spread = high - low
    if not spread.all():
        # Half of the numbers of a channel are the same. Only then, because squares of 1e160 are infinite.
        spread = np.where(spread > 0, spread, np.std(first, axis=0))
    # The numbers may be tiny variations on a large offset, in double precision.
    return np.clip((x - middle) / np.where(spread > 0, spread, 1.0), -3, 3).astype(np.float32)


def _neighbours_differ(x: np.ndarray) -> bool:
    """Say whether numbers (n, N, C) are more alike, or less, a few places apart than on average."""
    n, places, _ = x.shape
    for values in (x, np.square(x)):
        values = values - values.mean()
        total = values.sum(axis=1)
        # The mean product of two different places of a draw.
        pairs = (np.square(total) - np.square(values).sum(axis=1)) / (places * (places - 1))
        for lag in range(1, min(4, places - 1)):
            near = np.mean(values[:, lag:] * values[:, :-lag], axis=1)
            excess = np.mean(near - pairs, axis=1)
            if abs(excess.mean()) > _ERRORS * max(excess.std() / np.sqrt(n), 1e-9):
                return True
    return False


def _places_differ(x: np.ndarray) -> bool:
    """Say whether places of (n, N, C) differ in mean, in variance, or as pairs, by more than chance."""
    n, places, _ = x.shape
    for values in (x, np.square(x)):
        # What all places of a draw share does not count.
        draws = np.mean(values, axis=2)
        draws = draws - draws.mean(axis=1, keepdims=True)
        error = draws.std(axis=0) / np.sqrt(n)
        if np.any(np.abs(draws.mean(axis=0)) > _ERRORS * np.maximum(error, 1e-9)):
            return True
    # A few channels, since there are many pairs.
    few = x[:, :, :: -(-x.shape[2] // 8)].astype(np.float64)
    centred = few - few.mean()
    products = np.einsum("nic,njc->ij", centred, centred, optimize=True) / (n * few.shape[2])
    squares = np.einsum("nic,njc->ij", np.square(centred), np.square(centred), optimize=True)
    error = np.sqrt(squares / (n * few.shape[2])) / np.sqrt(n)
    off = ~np.eye(places, dtype=bool)
    return bool(np.any(np.abs(products - products[off].mean())[off] > _ERRORS * error[off]))


def arranged_example(layout: Layout, example: Data) -> Data:
    """Arrange one draw."""
    batch = layout.arrange(map_arrays(lambda array: array[None], example))
    return map_arrays(lambda array: array[0] if array.dtype == bool else array[0].astype(np.float32), batch)
