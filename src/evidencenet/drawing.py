"""What all figures share: colours, axes, legends, and the names of things."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe–Ito: told apart by colour-blind readers, and in grey print.
BLUE, ORANGE, BLACK, GREY = "#0072B2", "#E69F00", "#000000", "#767676"
# Bands behind the data, the second one fainter.
BAND, WIDE_BAND = "#BFD9EA", "#E3EEF5"

# Longer names of models are cut in the middle.
_LONGEST_NAME = 24


def new_axis(axis: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return the axis given, or that of a new figure."""
    if axis is not None:
        return axis
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def symbol(base10: bool) -> str:
    """Return the sign of log K."""
    return r"$\log_{10} K$" if base10 else r"$\ln\,K$"


def ratio(model: int) -> str:
    """Return what K is; the sign convention reaches every figure from here."""
    return rf"$K = p(x|M_{{{model}}})\,/\,p(x|M_0)$"


def probability(name: str | None) -> str:
    """Return the label of an axis of predicted probabilities."""
    if name is None:
        return r"predicted probability $p(M_1|x)$"
    return f"predicted p({model_text(name, 1)} | x)"


def model_text(name: str | None, number: int) -> str:
    """Return a model's name as text that Matplotlib shows unchanged, or its symbol if it has no name."""
    if name is None:
        return f"$M_{{{number}}}$"
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 11]}…{name[-10:]}"
    # Control characters have no glyph, and make an SVG file invalid.
    return "".join(letter if letter.isprintable() else " " for letter in name).replace("$", r"\$")


def legend(axis: "Axes", handles: Any = None, texts: Any = None, *, title: str | None = None) -> None:
    """Put the legend above the axis: inside, few draws or many curves would lie under it."""
    if handles is None:
        handles, texts = axis.get_legend_handles_labels()
    # Letters are about 5.6 points wide, a handle takes six of them, and a legend may stand out a little.
    room = 1.25 * axis.get_window_extent().width / axis.figure.dpi * 72 / 5.6
    columns = len(texts) if sum(len(text) + 6 for text in texts) <= room else 1
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    axis.legend(handles, texts, title=title, frameon=False, ncols=columns, **place)
