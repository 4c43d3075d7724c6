"""Show names from users and files without harm to the terminal, table or page that they appear in."""

import os
import unicodedata
from typing import Any

# Longer names are cut in tables and messages; the names themselves are never changed.
_LONGEST = 200


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


def _is_plain(character: str) -> bool:
    # Marks that combine with the letter before them are needed in many languages. "Cf" are marks of direction
    # and of width that are not seen, "Zl" and "Zp" end a line.
    return character.isprintable() and unicodedata.category(character) not in (
        "Cf",
        "Zl",
        "Zp",
        "Cs",
        "Co",
        "Cn",
    )
