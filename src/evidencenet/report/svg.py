"""Figures as SVG elements, of which one HTML page can hold several."""

import re
import warnings
from collections.abc import Callable
from io import StringIO
from typing import Any
from xml.etree import ElementTree

# Colours that the page sets itself, by CSS variables, to suit a light or a dark screen.
_COLOURS = {
    "#000000": "ink",
    "#767676": "grey",
    "#0072b2": "blue",
    "#e69f00": "orange",
    "#bfd9ea": "band",
    "#e3eef5": "wide-band",
}
# Letters stay letters: they can be read aloud, searched for, and shown in the reader's own font.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "evidencenet", "font.size": 10}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline_svg(
    draw: Callable[..., Any], size: tuple[float, float], *, name: str, title: str, text: str
) -> str:
    """Draw a figure and return it as an SVG element for an HTML page.

    The same call gives the same text. Matplotlib's settings, and pyplot, are left as they were.

    Parameters
    ----------
    draw
        ``draw(axis=axis)`` draws on a Matplotlib axis.
    size
        Width and height in inches of 72 units; letters are 10 units high. The page may scale it.
    name
        Prefix of the ids in the element; each figure of a page needs its own.
    title, text
        The title and a description of the figure, for those who cannot see it.

    Returns
    -------
    svg
        Escaped already. Colours are CSS variables such as ``var(--blue, #0072b2)``.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    # The reader's browser finds glyphs that Matplotlib's own font lacks.
    with warnings.catch_warnings(), style.context(_STYLE, after_reset=True):
        warnings.filterwarnings("ignore", message="Glyph")
        figure = Figure(figsize=size, layout="constrained")
        axis = figure.add_subplot()
        draw(axis=axis)
        # The page says beside the figure what the title of the legend says.
        if (legend := axis.get_legend()) is not None:
            legend.set_title(None)  # type: ignore[arg-type]
        file = StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    _clean(root, name)
    for position, (tag, words) in enumerate((("title", title), ("desc", text))):
        element = ElementTree.Element(tag, id=f"{name}-{tag}")
        element.text = "".join(letter if letter.isprintable() else " " for letter in words)
        root.insert(position, element)
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    return ElementTree.tostring(root, encoding="unicode")


def _clean(root: ElementTree.Element, name: str) -> None:
    """Remove what an HTML page does not need, and give the ids that are used the prefix `name`."""
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    for parent in root.iter():
        for child in list(parent):
            # A style element would apply to the whole page.
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    used = set()
    for element in root.iter():
        # Inline SVG has no namespaces: HTML knows its elements by their names.
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        for key, value in element.attrib.items():
            if key == "href" and value.startswith("#"):
                used.add(value[1:])
                element.attrib[key] = f"#{name}-{value[1:]}"
            else:
                used |= set(_REFERENCE.findall(value))
                element.attrib[key] = _REFERENCE.sub(rf"url(#{name}-\1)", value)
        for colour, variable in _COLOURS.items():
            if colour in element.get("style", ""):
                element.attrib["style"] = element.attrib["style"].replace(
                    colour, f"var(--{variable}, {colour})"
                )
    for element in root.iter():
        if (own := element.attrib.pop("id", None)) in used:
            element.attrib["id"] = f"{name}-{own}"
