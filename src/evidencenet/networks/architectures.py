"""Network architectures. A network maps one x to raw outputs; batching and ensembles come from outside.

An architecture is anything callable as ``architecture(x, outputs, key=key)`` that returns an Equinox module,
where `x` is one scaled draw (an array, or a dict of arrays) of which only the shape matters. The module is
called as ``module(x)`` and returns shape (outputs,). If it holds Equinox state (batch normalisation), it is
called as ``module(x, state)``, inside a ``vmap`` over the axis ``"batch"``, and returns the new state too.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from evidencenet.networks import modules

Architecture = Callable[..., eqx.Module]


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
        _check_waves(self, self.waves)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        size = modules.flatten(x).size
        width = _paper_width(size) if self.width is None else self.width
        return modules.DenseNetwork(
            size, width, self.hidden, outputs, norm=self.norm, waves=self.waves, rng=generator(key)
        )


@dataclass(frozen=True)
class DeepSet:
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

    Examples
    --------
    >>> draw = {"x": jnp.ones((5, 2)), "mask": jnp.arange(5) < 3}
    >>> DeepSet()(draw, 1, key=jax.random.key(0))(draw).shape
    (1,)
    """

    scale_alike: ClassVar[bool] = True
    share_weights: ClassVar[bool] = True
    exchangeable: ClassVar[bool] = True
    width: int = 32
    hidden: int = 64
    waves: int = 0

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden)
        _check_waves(self, self.waves)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        channels = modules.elements(x)[0].shape[1]
        return modules.SetNetwork(
            channels, self.width, self.hidden, outputs, waves=self.waves, table=False, rng=generator(key)
        )


@dataclass(frozen=True)
class Table:
    """Tables (H, W) or (H, W, C) of exchangeable rows and columns, and graphs by their adjacency matrix.

    A `DeepSet` of the entries, each of which is seen beside the means of its row and of its column (the
    degrees of the two nodes that it links). The output does not depend on the order of rows and columns.

    Parameters
    ----------
    width
        Units of both layers that every entry goes through.
    hidden
        Units of both layers after the mean.
    waves
        Sines and cosines of each number that join it, with frequencies that are learned.
    """

    scale_alike: ClassVar[bool] = True
    share_weights: ClassVar[bool] = True
    exchangeable: ClassVar[bool] = True
    width: int = 32
    hidden: int = 64
    waves: int = 0

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden)
        _check_waves(self, self.waves)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        if isinstance(x, dict) or x.ndim not in (2, 3):
            raise ValueError(
                "Table wants draws of shape (rows, columns), with or without channels; use another network."
            )
        channels = 3 * (x.shape[2] if x.ndim == 3 else 1)
        return modules.SetNetwork(
            channels, self.width, self.hidden, outputs, waves=self.waves, table=True, rng=generator(key)
        )


@dataclass(frozen=True)
class Sequence:
    """Ordered data: convolutions along the first axis, then averages over all of it and over its parts.

    Works on arrays (T, C), on vectors as (T, 1), and on masked dicts as in `DeepSet`. Mean and spread of the
    series, its values less the mean, and the mean products of values up to eight places apart are given too.

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
    """

    scale_alike: ClassVar[bool] = True
    share_weights: ClassVar[bool] = True
    width: int = 16
    hidden: int = 64
    kernel: int = 5
    depth: int = 2
    parts: int = 4

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden, kernel=self.kernel, depth=self.depth)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        length, channels = modules.elements(x)[0].shape
        return _convolutions(self, (length,), channels, outputs, self.parts, key)


@dataclass(frozen=True)
class Image:
    """Images (H, W, C): convolutions, then averages over the whole image.

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
    """

    scale_alike: ClassVar[bool] = True
    share_weights: ClassVar[bool] = True
    width: int = 16
    hidden: int = 64
    kernel: int = 3
    depth: int = 2

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden, kernel=self.kernel, depth=self.depth)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        if isinstance(x, dict) or x.ndim != 3:
            raise ValueError("Image wants draws of shape (height, width, channels); use another network.")
        return _convolutions(self, x.shape[:2], x.shape[2], outputs, 0, key)


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


BUILT_IN = {kind.__name__: kind for kind in (Dense, DeepSet, Table, Sequence, Image, Spectrum)}


def scales_alike(architecture: Architecture) -> bool:
    """Say whether an architecture treats all places alike, so that they must be scaled alike too."""
    return bool(getattr(architecture, "scale_alike", False))


def shares_weights(architecture: Architecture) -> bool:
    """Say whether an architecture uses the same weights in all places, and so overfits less."""
    return bool(getattr(architecture, "share_weights", False))


def is_exchangeable(architecture: Architecture) -> bool:
    """Say whether the order of places means nothing to an architecture."""
    return bool(getattr(architecture, "exchangeable", False))


def to_dict(architecture: Architecture) -> dict[str, Any]:
    """Describe an architecture for a file; a user's own is only marked as such."""
    if type(architecture) in BUILT_IN.values():
        return {"name": type(architecture).__name__, **asdict(architecture)}  # type: ignore[call-overload]
    return {"name": getattr(architecture, "__name__", type(architecture).__name__), "custom": True}


def from_dict(about: dict[str, Any]) -> Architecture:
    """Rebuild what `to_dict` described."""
    if about.get("custom"):
        raise ValueError(
            f"this network was built by your own function {about['name']!r}, which the file does not hold. "
            "Pass it again: load(path, network=...)."
        )
    return BUILT_IN[about["name"]](**{name: value for name, value in about.items() if name != "name"})


def generator(key: jax.Array) -> np.random.Generator:
    """Make a NumPy generator from a key: JAX would compile for seconds to draw the first weights."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _convolutions(
    of: "Sequence | Image", places: tuple[int, ...], channels: int, outputs: int, parts: int, key: jax.Array
) -> eqx.Module:
    return modules.ConvolutionNetwork(
        places,
        channels,
        of.width,
        of.hidden,
        outputs,
        kernel=of.kernel,
        depth=of.depth,
        parts=parts,
        rng=generator(key),
    )


def _paper_width(inputs: int) -> int:
    return int(1.1 * inputs) + 20


def _check_sizes(architecture: Any, **sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{type(architecture).__name__}: {name} = {size}; wanted at least 1 unit.")


def _check_waves(architecture: Any, waves: int) -> None:
    if waves < 0:
        raise ValueError(f"{type(architecture).__name__}: waves = {waves}; wanted 0 or more.")
