"""Packages that only some kinds of files need."""

import importlib
from typing import Any


def package(name: str, what: str) -> Any:
    """Import a package, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{what} need the package {name.split('.')[0]}, which is not installed; install it with: "
            "pip install 'evidencenet[files]'"
        ) from error
