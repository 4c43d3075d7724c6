"""The version, stated once; saved networks carry it."""

__version__ = "0.1.0"
