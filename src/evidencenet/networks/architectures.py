"""Network architectures. A network maps one x to raw outputs; batching and ensembles come from outside.

An architecture is anything callable as ``architecture(x, outputs, key=key)`` that returns an Equinox module,
where `x` is one scaled draw (an array, or a dict of arrays) of which only the shape matters. The module is
called as ``module(x)`` and returns shape (outputs,). If it holds Equinox state (batch normalisation), it is
called as ``module(x, state)``, inside a ``vmap`` over the axis ``"batch"``, and returns the new state too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from evidencenet.networks import modules

Architecture = Callable[..., eqx.Module]


@dataclass(frozen=True)
class Encoded(ABC):
    """An architecture of two parts: an encoder of its own, and a head that all have in common.

    A subclass is a frozen dataclass of whole numbers, among them `hidden` and `nodes` of the head.
    """

    scale_alike: ClassVar[bool] = True
    share_weights: ClassVar[bool] = True
    # By how much training takes longer than its arithmetic says: loops, for example, are counted once.
    slowness: ClassVar[float] = 1.0
    # Fields that may be 0; the others are 1 or more.
    may_be_zero: ClassVar[tuple[str, ...]] = ("nodes",)

    def __post_init__(self) -> None:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        sizes = {name: value for name, value in values.items() if not isinstance(value, tuple)}
        _check_sizes(self, **{name: size for name, size in sizes.items() if name not in self.may_be_zero})
        _check_not_negative(self, **{name: size for name, size in sizes.items() if name in self.may_be_zero})

    @abstractmethod
    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""

    def __call__(self: Any, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        rng = generator(key)
        encoder = self.encoder(x, rng)
        return modules.EncodedNetwork(encoder, x, self.hidden, outputs, nodes=self.nodes, rng=rng)


@dataclass(frozen=True)
class Dense:
    """The dense network of Jeffrey & Wandelt (2023): a wide layer, then narrow ones with one skip.

    Six dense layers in all. Arrays of any shape, and dicts of arrays, are flattened.

    Parameters
    ----------
    width
        Units of the first layer; None is the paper's int(1.1·d) + 20 for d numbers in a draw.
    hidden
        Units of the four layers that follow.
    norm
        Batch normalisation after the first four layers and LeakyReLU(0.1), as in the paper; else no
        normalisation and a smooth activation, which trains faster and is more accurate.
    waves
        Sines and cosines of each number that join it, with frequencies that are learned: for few numbers and
        a log K that changes many times over their spread.

    Examples
    --------
    >>> network = Dense()(jnp.zeros(20), 1, key=jax.random.key(0))
    >>> network(jnp.ones(20)).shape
    (1,)
    """

    width: int | None = None
    hidden: int = 16
    norm: bool = False
    waves: int = 0

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden)
        _check_not_negative(self, waves=self.waves)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        size = modules.flatten(x).size
        width = _paper_width(size) if self.width is None else self.width
        return modules.DenseNetwork(
            size, width, self.hidden, outputs, norm=self.norm, waves=self.waves, rng=generator(key)
        )


@dataclass(frozen=True)
class DeepSet(Encoded):
    """Exchangeable elements: a network for each element, their mean, and a network of that.

    The elements of a draw are the rows of an array (N, C), the numbers of a vector, or the rows of all arrays
    of a dict; a boolean array of shape (N,) in the dict says which elements are there. The output does not
    depend on the order of the elements, nor on what stands where there is none. Each element is seen beside
    its difference from the mean of all, and the squares and products of these differences.

    Parameters
    ----------
    width
        Units of both layers that every element goes through.
    hidden
        Units of both layers after the mean.
    waves
        Sines and cosines of each number that join it, with frequencies that are learned.
    nodes
        With 1 or more, an evidence head: each log evidence is a log of a sum of so many exponentials, linear
        in the averages and in what the dense layers make of them. With 0, dense layers alone.

    Examples
    --------
    >>> draw = {"x": jnp.ones((5, 2)), "mask": jnp.arange(5) < 3}
    >>> DeepSet()(draw, 1, key=jax.random.key(0))(draw).shape
    (1,)
    """

    exchangeable: ClassVar[bool] = True
    may_be_zero: ClassVar[tuple[str, ...]] = ("waves", "nodes")
    width: int = 32
    hidden: int = 64
    waves: int = 0
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        channels = modules.elements(x)[0].shape[1]
        return modules.SetEncoder(channels, self.width, waves=self.waves, table=False, rng=rng)


@dataclass(frozen=True)
class Neighbours(Encoded):
    """Sets in which elements attract, follow or avoid each other: times of events, points of a plane.

    As `DeepSet`, but each element is seen beside how many others are near it. The cost grows with the square
    of the number of elements.

    Parameters
    ----------
    distances
        Number of distances, each a quarter of the one before.
    width
        Units of both layers that every element goes through.
    hidden
        Units of both layers after the mean.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> draw = {"t": jnp.linspace(0, 1, 9), "mask": jnp.arange(9) < 5}
    >>> Neighbours()(draw, 1, key=jax.random.key(0))(draw).shape
    (1,)
    """

    exchangeable: ClassVar[bool] = True
    distances: int = 4
    width: int = 32
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        capacity, columns = modules.elements(x)[0].shape
        return modules.NeighboursEncoder(capacity, columns, self.distances, self.width, rng)


@dataclass(frozen=True)
class Table(Encoded):
    """Tables (H, W) or (H, W, C) of exchangeable rows and columns, and graphs by their adjacency matrix.

    A `DeepSet` of the entries, each of which is seen beside the means of its row and of its column (the
    degrees of the two nodes that it links). The output does not depend on the order of rows and columns.

    If rows and columns are the same nodes, each pair of nodes is seen with its links both ways, the degrees
    of both nodes, and what they have in common with third nodes; and the nodes are a set too. The output does
    not depend on the order of the nodes, and the diagonal is not taken for links.

    Parameters
    ----------
    width
        Units of both layers that every entry goes through.
    hidden
        Units of both layers after the mean.
    waves
        Sines and cosines of each number that join it, with frequencies that are learned.
    nodes
        With 1 or more, an evidence head: each log evidence is a log of a sum of so many exponentials, linear
        in the averages and in what the dense layers make of them. With 0, dense layers alone.
    links
        Whether rows and columns are the same nodes, as in an adjacency matrix.
    """

    exchangeable: ClassVar[bool] = True
    may_be_zero: ClassVar[tuple[str, ...]] = ("waves", "nodes", "links")
    width: int = 32
    hidden: int = 64
    waves: int = 0
    nodes: int = 16
    links: bool = False

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        if isinstance(x, dict) or x.ndim not in (2, 3):
            raise ValueError(
                "Table wants draws of shape (rows, columns), with or without channels; use another network."
            )
        channels = x.shape[2] if x.ndim == 3 else 1
        if self.links:
            if x.shape[0] != x.shape[1] or len(x) < 2:
                raise ValueError(
                    f"Table(links=True) wants as many rows as columns, two or more, not {x.shape[:2]}; use "
                    "Table()."
                )
            return modules.GraphEncoder(channels, self.width, waves=self.waves, rng=rng)
        return modules.SetEncoder(3 * channels, self.width, waves=self.waves, table=True, rng=rng)


@dataclass(frozen=True)
class Sequence(Encoded):
    """Ordered data: convolutions along the first axis, then averages over all of it and over its parts.

    Works on arrays (T, C), on vectors as (T, 1), and on masked dicts as in `DeepSet`. Mean and spread of the
    series, its values less the mean, and the mean products of values up to eight places apart are given too;
    and so is what linear filters find at any one place.

    Parameters
    ----------
    width
        Channels of each convolution.
    hidden
        Units of both layers after the averages.
    kernel
        Length of a convolution's window.
    depth
        Number of convolutions.
    parts
        The sequence is also averaged over so many parts, since the place may matter.
    nodes
        With 1 or more, an evidence head: each log evidence is a log of a sum of so many exponentials, linear
        in the averages and in what the dense layers make of them. With 0, dense layers alone.
    """

    may_be_zero: ClassVar[tuple[str, ...]] = ("parts", "nodes")
    width: int = 16
    hidden: int = 64
    kernel: int = 5
    depth: int = 2
    parts: int = 4
    nodes: int = 0

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        length, channels = modules.elements(x)[0].shape
        return modules.ConvolutionEncoder(
            (length,),
            channels,
            self.width,
            kernel=self.kernel,
            depth=self.depth,
            parts=self.parts,
            rng=rng,
        )


@dataclass(frozen=True)
class Image(Encoded):
    """Images (H, W, C): convolutions, then averages over the whole image and over parts of it.

    What linear filters find at any one place, such as a faint source, joins the averages.

    Parameters
    ----------
    width
        Channels of each convolution.
    hidden
        Units of both layers after the averages.
    kernel
        Side of a convolution's window.
    depth
        Number of convolutions.
    parts
        The image is also averaged over so many parts along each axis, since the place may matter.
    nodes
        With 1 or more, an evidence head: each log evidence is a log of a sum of so many exponentials, linear
        in the averages and in what the dense layers make of them. With 0, dense layers alone.
    """

    may_be_zero: ClassVar[tuple[str, ...]] = ("parts", "nodes")
    width: int = 16
    hidden: int = 64
    kernel: int = 3
    depth: int = 2
    parts: int = 3
    nodes: int = 0

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        if isinstance(x, dict) or x.ndim not in (3, 4):
            raise ValueError(
                "Image wants draws of shape (height, width, channels), or of three axes of places and one of "
                "channels; use another network."
            )
        return modules.ConvolutionEncoder(
            x.shape[:-1],
            x.shape[-1],
            self.width,
            kernel=self.kernel,
            depth=self.depth,
            # Of a volume at most two along each axis: 27 parts learned less than eight.
            parts=self.parts if x.ndim == 3 else min(self.parts, 2),
            rng=rng,
        )


@dataclass(frozen=True)
class Shapes(Encoded):
    """Series and images with a shape at an unknown place: a pulse, a chirp, a motif of letters, a source.

    Filters look for a shape at every place, and the likelihoods of all places add up. Works on arrays (T, C),
    on vectors as (T, 1), on masked dicts as in `DeepSet`, and on images (H, W, C).

    Parameters
    ----------
    length
        Places that a filter of a series covers. (Filters of images cover 7 × 7.)
    filters
        Number of filters of a series.
    hidden
        Units of both layers after the sums over all places.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> Shapes()(jnp.zeros(64), 1, key=jax.random.key(0))(jnp.ones(64)).shape
    (1,)
    """

    length: int = 25
    filters: int = 16
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        if not isinstance(x, dict) and x.ndim > 2:
            places, channels = x.shape[:-1], x.shape[-1]
        else:
            length, channels = modules.elements(x)[0].shape
            places = (length,)
        return modules.ShapesEncoder(places, channels, self.length, self.filters, rng)


@dataclass(frozen=True)
class Spectrum:
    """Stationary series, images and fields: a dense network of the power of every Fourier mode.

    The places are all axes but the last, of channels; a vector has one channel. Phases are left out.

    Parameters
    ----------
    width
        Units of the first layer; None is int(1.1·d) + 20 for d powers.
    hidden
        Units of the four layers that follow.
    """

    scale_alike: ClassVar[bool] = True
    width: int | None = None
    hidden: int = 16

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        if isinstance(x, dict) or x.ndim == 0:
            raise ValueError("Spectrum wants draws that are one array; use another network.")
        size = jax.eval_shape(modules.spectrum, jnp.zeros(x.shape)).size
        width = _paper_width(size) if self.width is None else self.width
        return modules.SpectrumNetwork(
            modules.DenseNetwork(size, width, self.hidden, outputs, norm=False, waves=0, rng=generator(key))
        )


@dataclass(frozen=True)
class Modes(Encoded):
    """Waves in series, images and volumes of one or several channels: an evidence head of Fourier modes.

    For a wave of one of many frequencies, and for what channels have in common, such as a wave that moves
    from frame to frame: phases between channels count, unlike in `Spectrum`. The places are all axes but the
    last, of channels; a vector has one channel.

    Parameters
    ----------
    mixed
        Combinations of the channels, with learned phases, whose powers are taken; and exponents in the sums
        of exponentials over all modes.
    patterns
        Sums over the modes, each with learned weights, of each power.
    hidden
        Units of both layers after the sums.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> frames = jnp.ones((6, 6, 3))
    >>> Modes()(frames, 1, key=jax.random.key(0))(frames).shape
    (1,)
    """

    slowness: ClassVar[float] = 2.5
    mixed: int = 10
    patterns: int = 4
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        if isinstance(x, dict) or x.ndim == 0:
            raise ValueError("Modes wants draws that are one array; use another network.")
        places, channels = (x.shape, 1) if x.ndim == 1 else (x.shape[:-1], x.shape[-1])
        return modules.ModesEncoder(places, channels, self.mixed, self.patterns, rng)


@dataclass(frozen=True)
class Squares:
    """Few projections of the data and their squares, in an evidence head: for nearly Gaussian data.

    The log likelihood of Gaussian-like data is quadratic in x, and the log evidence is a log of a sum of
    exponentials of it over the parameters. A network of that form learns it quickly, and extrapolates well.
    Arrays of any shape, and dicts of arrays, are flattened.

    Parameters
    ----------
    projections
        How many combinations of the numbers are squared.
    nodes
        Terms in the sum of exponentials of each model.
    smooth
        Outputs of a small dense network that join the projections; 0 for none.

    Examples
    --------
    >>> network = Squares()(jnp.zeros(20), 1, key=jax.random.key(0))
    >>> network(jnp.ones(20)).shape
    (1,)
    """

    projections: int = 8
    nodes: int = 16
    smooth: int = 0

    def __post_init__(self) -> None:
        _check_sizes(self, projections=self.projections, nodes=self.nodes)
        _check_not_negative(self, smooth=self.smooth)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        return modules.SquaresNetwork(
            modules.flatten(x).size,
            self.projections,
            self.smooth,
            outputs,
            nodes=self.nodes,
            rng=generator(key),
        )


@dataclass(frozen=True)
class Recurrence(Encoded):
    """Stationary series: a bank of linear recurrences with learned poles, and its second moments.

    Works on arrays (T, C), on vectors as (T, 1), and on masked dicts as in `DeepSet`. Autoregressions, moving
    averages and their mixtures have likelihoods of this form. The sums from both ends count too: what came
    before the first value is unknown.

    Parameters
    ----------
    poles
        Recurrences h_t = a h_{t−1} + x_t, each with its own complex number a.
    mixed
        Combinations of them that products are taken of.
    hidden
        Units of both layers after the sums over all places.
    nodes
        As in `DeepSet`.
    """

    poles: int = 8
    mixed: int = 6
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        length, channels = modules.elements(x)[0].shape
        if length < 2:
            raise ValueError(
                f"Recurrence wants series of 2 places or more, not {length}; use another network."
            )
        return modules.RecurrenceEncoder(channels, self.poles, self.mixed, rng)


@dataclass(frozen=True)
class Categories(Encoded):
    """Series of letters, given as indicators (T, kinds): counts of letters, and of pairs at some distances.

    Parameters
    ----------
    distances
        Pairs are counted up to so many places apart.
    hidden
        Units of both layers after the counts.
    nodes
        As in `DeepSet`.
    """

    distances: int = 3
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        length, kinds = modules.elements(x)[0].shape
        if length < 2 or kinds < 2:
            raise ValueError(
                f"Categories wants indicators of shape (places, kinds), not {(length, kinds)}; "
                'give layout="categories", or use another network.'
            )
        return modules.CategoriesEncoder(self.distances)


@dataclass(frozen=True)
class Irregular(Encoded):
    """Values at irregular times: sines of the time, fitted to the values, and pairs of neighbours.

    The frequencies of the sines are learned. Elements must be in the order of their times. A draw is an array
    (N, 1 + C) whose first column is the time, or a dict of such an array and a boolean mask (N,). (A dict of
    times, values and mask is brought to this form by its layout.)

    Parameters
    ----------
    waves
        Number of frequencies. They begin with half a cycle over the whole span, up to a cycle for every four
        elements.
    width
        Units of both layers that every element goes through, as in `DeepSet`.
    hidden
        Units of both layers after the sums over all elements.
    nodes
        As in `DeepSet`.
    """

    waves: int = 24
    width: int = 16
    hidden: int = 64
    nodes: int = 32

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        capacity, columns = modules.elements(x)[0].shape
        if columns < 2:
            raise ValueError(
                "Irregular wants a column of times and one or more of values; use another network."
            )
        return modules.IrregularEncoder(columns, capacity, self.waves, self.width, rng)


@dataclass(frozen=True)
class Windows(Encoded):
    """Values at irregular times: sums over windows along the time, for a dip or flare at some time.

    A draw is an array (N, 1 + C) whose first column is the time, or a dict of such an array and a boolean
    mask (N,), as in `Irregular`. Elements may be in any order.

    Parameters
    ----------
    windows
        Number of windows that the span of the times is divided into.
    width
        Units of both layers that every element goes through, as in `DeepSet`.
    local
        Units of both layers that every window goes through, with its neighbours.
    kernel
        Windows that are seen together.
    hidden
        Units of both layers after the sums over all windows.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> draw = {"x": jnp.ones((5, 3)), "mask": jnp.arange(5) < 3}
    >>> Windows()(draw, 1, key=jax.random.key(0))(draw).shape
    (1,)
    """

    exchangeable: ClassVar[bool] = True
    windows: int = 40
    width: int = 16
    local: int = 32
    kernel: int = 5
    hidden: int = 64
    nodes: int = 0

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        columns = modules.elements(x)[0].shape[1]
        if columns < 2:
            raise ValueError(
                "Windows wants a column of times and one or more of values; use another network."
            )
        if self.windows < 2:
            raise ValueError(f"Windows: windows = {self.windows}; wanted 2 or more.")
        return modules.WindowsEncoder(columns, self.windows, self.width, self.local, self.kernel, rng)


@dataclass(frozen=True)
class Regression(Encoded):
    """Sets of vectors whose columns explain each other: regressions, and marks or values at random places.

    A draw is an array (N, C) of two columns or more, or a dict of such arrays and a boolean mask (N,), as in
    `DeepSet`. Each of the last two columns is explained by functions of the others: a constant, a linear
    function, and sines with learned frequencies. Other hypotheses stand beside it: fewer of these functions,
    or squares and products of the first three columns. The noise may be known or unknown, and may differ from
    element to element if a column tells how large it is.

    Parameters
    ----------
    waves
        Sines and cosines that a column is explained by.
    width
        Units of both layers that every element goes through beside that, as in `DeepSet`.
    hidden
        Units of both layers after the sums over all elements.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> draw = {"x": jnp.ones((5, 3)), "mask": jnp.arange(5) < 3}
    >>> Regression()(draw, 1, key=jax.random.key(0))(draw).shape
    (1,)
    """

    exchangeable: ClassVar[bool] = True
    waves: int = 5
    width: int = 16
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        columns = modules.elements(x)[0].shape[1]
        if columns < 2:
            raise ValueError("Regression wants elements of two columns or more; use another network.")
        return modules.RegressionEncoder(columns, min(columns, _RESPONSES), self.waves, self.width, rng)


@dataclass(frozen=True)
class Transitions(Encoded):
    """Series whose next value depends on the last ones in any way: spreads that change, thresholds, growth.

    Works on arrays (T, C), on vectors as (T, 1), and on masked dicts as in `DeepSet`. A network of each value
    and those just before it is averaged over all places.

    Parameters
    ----------
    earlier
        How many places before each are seen.
    width
        Units of both layers that every place goes through.
    hidden
        Units of both layers after the mean.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> Transitions()(jnp.zeros(40), 1, key=jax.random.key(0))(jnp.ones(40)).shape
    (1,)
    """

    earlier: int = 2
    width: int = 32
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        length, channels = modules.elements(x)[0].shape
        if length <= self.earlier:
            raise ValueError(
                f"Transitions wants series of more than {self.earlier} places, not {length}; use another "
                "network, or Transitions(earlier=1)."
            )
        return modules.TransitionsEncoder(channels, self.earlier, self.width, rng)


@dataclass(frozen=True)
class Autoregression(Encoded):
    """Series in which earlier values explain later ones: lags, thresholds, growth, channels that lead others.

    Works on arrays (T, C), on vectors as (T, 1), and on masked dicts as in `DeepSet`. Each place, beside the
    values of the places before it, is an element of a `Regression`.

    Parameters
    ----------
    lags
        How many places before are seen; fewer if there are several channels, or the series is short.
    waves
        Sines and cosines that a value is explained by.
    width
        Units of both layers that every place goes through beside that.
    hidden
        Units of both layers after the sums over all places.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> Autoregression()(jnp.zeros(40), 1, key=jax.random.key(0))(jnp.ones(40)).shape
    (1,)
    """

    slowness: ClassVar[float] = 3.0
    lags: int = 8
    waves: int = 2
    width: int = 16
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        length, channels = modules.elements(x)[0].shape
        lags = max(1, min(self.lags, _MOST_EXPLAINING // channels - 1, length // 3))
        if length < 3:
            raise ValueError(
                f"Autoregression wants series of 3 places or more, not {length}; use another network."
            )
        return modules.AutoregressionEncoder(channels, lags, self.waves, self.width, rng)


@dataclass(frozen=True)
class Groups(Encoded):
    """Sets of sets, (G, N) or (G, N, C): exchangeable groups of exchangeable elements.

    A boolean mask (G, N) in a dict says which elements are there.

    Parameters
    ----------
    width
        Units of both layers that every element goes through, and then every group.
    projected
        Numbers that a group is described by, beside the number, mean and spread of its elements.
    hidden
        Units of both layers after the mean over groups.
    nodes
        As in `DeepSet`.
    """

    exchangeable: ClassVar[bool] = True
    width: int = 32
    projected: int = 8
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        channels = modules.groups(x)[0].shape[2]
        return modules.GroupsEncoder(channels, self.width, self.projected, waves=0, rng=rng)


@dataclass(frozen=True)
class Parts(Encoded):
    """Dicts of several parts, each with its own architecture, joined in one head.

    Parameters
    ----------
    parts
        For each part, the keys of its arrays (values first, then masks) and its architecture. None stands for
        single numbers: they are taken as they are, and a few combinations of them are shown to all places of
        the other parts.
    hidden
        Units of both layers of the head.
    nodes
        As in `DeepSet`.

    Examples
    --------
    >>> network = Parts(((("image",), Image()), (("numbers",), None)))
    >>> draw = {"image": jnp.ones((8, 8, 1)), "numbers": jnp.ones(6)}
    >>> network(draw, 1, key=jax.random.key(0))(draw).shape
    (1,)
    """

    parts: tuple[tuple[tuple[str, ...], Any], ...]
    hidden: int = 64
    nodes: int = 16

    def encoder(self, x: Any, rng: np.random.Generator) -> eqx.Module:
        """Initialise what turns draws like `x` into features."""
        keys = tuple(keys for keys, _ in self.parts)
        if not isinstance(x, dict) or sorted(key for names in keys for key in names) != sorted(x):
            given = sorted(x) if isinstance(x, dict) else "one array"
            raise ValueError(f"Parts is made for draws with the keys {keys}, not {given}.")
        flat = tuple(name for names, architecture in self.parts if architecture is None for name in names)
        numbers = sum(np.size(x[name]) for name in flat)
        shown = modules.Linear(numbers, min(numbers, _SHOWN), rng) if flat and len(flat) < len(x) else None
        channels = None if shown is None else jnp.zeros(min(numbers, _SHOWN))
        encoders = {}
        for names, architecture in self.parts:
            if architecture is None:
                encoders[names[0]] = modules.FlatEncoder()
            else:
                encoders[names[0]] = architecture.encoder(modules.part_of(x, names, channels), rng)
        return modules.PartsEncoder(encoders, shown, keys, flat)


BUILT_IN = {
    kind.__name__: kind
    for kind in (
        Dense,
        DeepSet,
        Neighbours,
        Table,
        Sequence,
        Image,
        Shapes,
        Spectrum,
        Modes,
        Squares,
        Recurrence,
        Categories,
        Irregular,
        Windows,
        Regression,
        Autoregression,
        Transitions,
        Groups,
        Parts,
    )
}
# Columns that are explained by the others, at most.
_RESPONSES = 2
# Columns of a place and those before it, at most, if there are several channels.
_MOST_EXPLAINING = 10
# Combinations of single numbers that are shown to the other parts of a draw.
_SHOWN = 4


def is_built_in(architecture: Architecture) -> bool:
    """Say whether an architecture is one of this library, and not the user's own."""
    return type(architecture) in BUILT_IN.values()


def without_evidence_head(architecture: Architecture) -> Architecture:
    """Return the same kind of network with a plain head; `Dense` for `Squares`, which is nothing else."""
    if isinstance(architecture, Squares):
        return Dense()
    if (
        getattr(architecture, "nodes", 0)
        and is_dataclass(architecture)
        and not isinstance(architecture, type)
    ):
        plain: Architecture = replace(architecture, nodes=0)
        return plain
    return architecture


def scales_alike(architecture: Architecture) -> bool:
    """Say whether an architecture treats all places alike, so that they must be scaled alike too."""
    return bool(getattr(architecture, "scale_alike", False))


def shares_weights(architecture: Architecture) -> bool:
    """Say whether an architecture uses the same weights in all places, and so overfits less."""
    return bool(getattr(architecture, "share_weights", False))


def slowness(architecture: Architecture) -> float:
    """By how much training takes longer than the arithmetic says; of several parts, the most."""
    parts = [part for _, part in architecture.parts] if isinstance(architecture, Parts) else [architecture]
    return max(float(getattr(part, "slowness", 1.0)) for part in parts)


def is_exchangeable(architecture: Architecture) -> bool:
    """Say whether the order of places means nothing to an architecture."""
    return bool(getattr(architecture, "exchangeable", False))


def to_dict(architecture: Architecture) -> dict[str, Any]:
    """Describe an architecture for a file; a user's own is only marked as such."""
    if isinstance(architecture, Parts):
        about = [
            (keys, None if encoded is None else to_dict(encoded)) for keys, encoded in architecture.parts
        ]
        return {"name": "Parts", "parts": about, "hidden": architecture.hidden, "nodes": architecture.nodes}
    if is_built_in(architecture):
        return {"name": type(architecture).__name__, **asdict(architecture)}  # type: ignore[call-overload]
    return {"name": getattr(architecture, "__name__", type(architecture).__name__), "custom": True}


def from_dict(about: dict[str, Any]) -> Architecture:
    """Rebuild what `to_dict` described."""
    if about.get("custom"):
        raise ValueError(
            f"this network was built by your own function {about['name']!r}, which the file does not hold. "
            "Pass it again: load(path, network=...)."
        )
    fields = {name: value for name, value in about.items() if name != "name"}
    if about["name"] == "Parts":
        parts = [(tuple(keys), encoded and from_dict(encoded)) for keys, encoded in about["parts"]]
        fields["parts"] = tuple(parts)
    return BUILT_IN[about["name"]](**fields)


def generator(key: jax.Array) -> np.random.Generator:
    """Make a NumPy generator from a key: JAX would compile for seconds to draw the first weights."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _paper_width(inputs: int) -> int:
    return int(1.1 * inputs) + 20


def _check_sizes(architecture: Any, **sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{type(architecture).__name__}: {name} = {size}; wanted at least 1 unit.")


def _check_not_negative(architecture: Any, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"{type(architecture).__name__}: {name} = {size}; wanted 0 or more.")
