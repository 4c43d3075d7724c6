"""The versions of the software behind a result: with the seed and the settings, they allow to repeat it."""

import platform
from importlib.metadata import version

from evidencenet._version import __version__

_LIBRARIES = ("jax", "equinox", "optax", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Return the versions of this library, of Python, and of the libraries that the numbers come from."""
    return {
        "evidencenet": __version__,
        "python": platform.python_version(),
        **{library: version(library) for library in _LIBRARIES},
    }
