"""Show names from users and files without harm to the terminal, table or page that they appear in."""

import os
import unicodedata
from collections.abc import Iterable
from typing import Any

# Longer names are cut in tables and messages; the names themselves are never changed.
_LONGEST = 200
# Of characters that are not seen, these two belong to the writing of Persian, Hindi and other languages, and
# join the parts of emoji. They neither move the cursor nor turn the text.
_JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
# Control characters, marks of direction and of width that are not seen, ends of lines, and codes without a
# character. Letters, marks that combine with them, signs and spaces of all languages are plain.
_HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")


def harmless(name: Any) -> str:
    r"""Return a name as one line that a terminal, a log or a page shows as it is.

    Control characters, ends of lines, escapes, and the marks that change the direction of writing are shown
    as Python writes them, for instance ``\n`` or ``\u202e``. Letters of all languages stay.

    Parameters
    ----------
    name
        The name of a model, column or file; anything else is turned into text first.

    Examples
    --------
    >>> print(harmless("flat\n\x1b[31mtrend"))
    flat\n\x1b[31mtrend
    >>> harmless("Größe µ 模型")
    'Größe µ 模型'
    """
    text = os.fspath(name) if isinstance(name, os.PathLike) else str(name)
    text = text if isinstance(text, str) else os.fsdecode(text)
    shown = "".join(c if _is_plain(c) else ascii(c)[1:-1] for c in text[:_LONGEST])
    return shown if len(text) <= _LONGEST else f"{shown}..."


def listed(names: Iterable[Any]) -> str:
    r"""Return names in one line, with commas between them.

    Examples
    --------
    >>> print(listed(["flat", "a\nb"]))
    flat, a\nb
    """
    return ", ".join(map(harmless, names))


def pair_text(model: Any, other: Any) -> str:
    """Name a pair of models: what log K is about.

    Examples
    --------
    >>> pair_text("trend", "flat")
    'trend against flat'
    """
    return f"{harmless(model)} against {harmless(other)}"


def harmless_text(text: str, *, one_line: bool = False) -> str:
    r"""Return a text of any length in the same way; its ends of lines stay, unless it is to be one line.

    Examples
    --------
    >>> print(harmless_text("log K\n\x1b[2J3.1"))
    log K
    \x1b[2J3.1
    """
    kept = "" if one_line else "\n"
    return "".join(c if c in kept or _is_plain(c) else ascii(c)[1:-1] for c in text)


def _is_plain(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) not in _HIDDEN
