"""One figure for each record: every function draws on one axis and returns it; `validation` on three."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidencenet.coverage import Coverage, check_log_k

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe–Ito: told apart by colour-blind readers, and in grey print.
_BLUE, _ORANGE, _BLACK, _GREY = "#0072B2", "#E69F00", "#000000", "#767676"

# Longer names of models are cut in the middle.
_LONGEST_NAME = 24


class History(Protocol):
    """What `history` needs of a training record."""

    @property
    def train_loss(self) -> NDArray[np.floating]:
        """Training loss, shape (members, 1 + epochs), entry 0 before training; NaN where there is none."""

    @property
    def score(self) -> NDArray[np.floating]:
        """Held-out score in nats, shape (members, 1 + epochs); NaN or infinite where there is none."""

    @property
    def best_epoch(self) -> NDArray[np.integer]:
        """After how many epochs each member was taken, shape (members,)."""


class Validation(Protocol):
    """What `validation` needs of the check of a network."""

    @property
    def names(self) -> tuple[str, ...]:
        """The K models."""

    @property
    def log_k(self) -> NDArray[np.floating]:
        """Log K of each draw against model 0, shape (n, K)."""

    @property
    def label(self) -> NDArray[np.integer]:
        """The model of each draw, shape (n,)."""

    @property
    def coverages(self) -> tuple[Coverage, ...]:
        """Coverage of each model against all others; for two models only that of model 1."""


def coverage(record: Coverage, axis: "Axes | None" = None, *, name: str | None = None) -> "Axes":
    """Draw the fraction of draws from model 1 against its predicted probability.

    Parameters
    ----------
    record
        Result of `evidencenet.coverage.coverage`.
    axis
        Matplotlib axis to draw on; a new figure if None.
    name
        Name of the model whose probability is tested; M1 if None.

    Returns
    -------
    axis
        The axis, with one point a bin, its Clopper–Pearson interval, and the diagonal of perfect coverage.

    Examples
    --------
    >>> from evidencenet.coverage import coverage as check
    >>> axis = coverage(check([-1.0, 1.0], [0, 1]))  # doctest: +SKIP
    """
    axis = _axis(axis, (4.8, 4.6))
    axis.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1, label="perfect", zorder=1)
    reach = np.maximum([record.observed - record.low, record.high - record.observed], 0.0)
    axis.errorbar(
        record.predicted,
        record.observed,
        yerr=reach,
        fmt="o",
        color=_BLUE,
        markersize=4.5,
        elinewidth=1.2,
        capsize=2.5,
        label=f"observed, {100 * record.level:g}% interval",
    )
    verdict = "passed" if record.passed else "failed"
    axis.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        xlabel=_probability(name),
        ylabel=f"fraction drawn from {_model(name, 1)}",
    )
    axis.set_aspect("equal")
    # Above the axis: with few draws the intervals fill all of it.
    title = f"Blind coverage {verdict}: p-value {record.p_value:.2g}, {record.n:,} draws"
    _legend(axis, title=title)
    return axis


def residuals(record: Coverage, axis: "Axes | None" = None, *, name: str | None = None) -> "Axes":
    """Draw the rescaled residuals of the coverage test with bands of one and two standard deviations.

    Parameters
    ----------
    record
        Result of `evidencenet.coverage.coverage`.
    axis
        Matplotlib axis to draw on; a new figure if None.
    name
        Name of the model whose probability is tested; M1 if None.

    Returns
    -------
    axis
        The axis. Residuals beyond ±10 are drawn as triangles at the edge.
    """
    axis = _axis(axis, (5.6, 3.6))
    for width, colour in ((2, "#E3EEF5"), (1, "#BFD9EA")):
        axis.axhspan(-width, width, color=colour, linewidth=0, zorder=0)
    axis.axhline(0, color=_GREY, linestyle="--", linewidth=1, zorder=1)
    label = "one bin"
    if np.isfinite(record.std_residual):
        label = f"mean {record.mean_residual:.2f}, std {record.std_residual:.2f}"
    edge = 10.0
    reach = max(3.5, 1.15 * min(edge, float(np.abs(record.residual).max())))
    inside = np.abs(record.residual) <= edge
    axis.plot(record.predicted[inside], record.residual[inside], "o", color=_BLUE, markersize=5, label=label)
    for marker, beyond in (("^", record.residual > edge), ("v", record.residual < -edge)):
        height = np.full(int(beyond.sum()), edge if marker == "^" else -edge)
        if beyond.any():
            sign = "> " if marker == "^" else "< −"
            axis.plot(
                record.predicted[beyond], height, marker, color=_ORANGE, markersize=6, label=f"{sign}{edge:g}"
            )
    axis.set(xlim=(-0.03, 1.03), ylim=(-reach, reach), xlabel=_probability(name), ylabel="rescaled residual")
    _legend(axis)
    return axis


def log_k(
    estimate: ArrayLike,
    exact: ArrayLike,
    axis: "Axes | None" = None,
    *,
    error: ArrayLike | None = None,
    base10: bool = True,
) -> "Axes":
    """Draw estimated against exact log Bayes factors.

    Parameters
    ----------
    estimate, exact
        Natural log K, shape (n,).
    axis
        Matplotlib axis to draw on; a new figure if None.
    error
        Standard error of `estimate`, natural log, shape (n,).
    base10
        Show log10 K instead of the natural log.

    Returns
    -------
    axis
        The axis, with the root-mean-square difference, in the unit shown, as title.
    """
    unit = np.log(10.0) if base10 else 1.0
    estimate, exact = (
        np.asarray(estimate, dtype=np.float64) / unit,
        np.asarray(exact, dtype=np.float64) / unit,
    )
    if estimate.ndim != 1 or estimate.shape != exact.shape or len(exact) == 0:
        raise ValueError(
            "estimate and exact must be one-dimensional, not empty and of equal length, "
            f"got shapes {estimate.shape} and {exact.shape}."
        )
    bars = None if error is None else np.asarray(error, dtype=np.float64) / unit
    axis = _axis(axis, (4.8, 4.6))
    if bars is None:
        crowded = len(exact) > 1000
        size, alpha = (2.0, 0.35) if crowded else (4.0, 0.8)
        (dots,) = axis.plot(
            exact, estimate, "o", color=_BLUE, markersize=size, alpha=alpha, markeredgewidth=0
        )
        dots.set_rasterized(crowded)  # thousands of vector dots make a PDF slow to open
    else:
        axis.errorbar(
            exact, estimate, yerr=bars, fmt="o", color=_BLUE, markersize=3.5, elinewidth=1, alpha=0.8
        )
    # One frame for both axes puts the diagonal from corner to corner.
    ends = min(exact.min(), estimate.min()), max(exact.max(), estimate.max())
    margin = 0.04 * (ends[1] - ends[0]) or 1.0
    frame = (float(ends[0] - margin), float(ends[1] + margin))
    axis.plot(frame, frame, color=_BLACK, linestyle="--", linewidth=1)
    symbol = _symbol(base10)
    rmse = np.sqrt(np.mean((estimate - exact) ** 2))
    axis.set(xlim=frame, ylim=frame, xlabel=f"exact {symbol},  {_ratio(1)}", ylabel=f"estimated {symbol}")
    axis.set_title(f"RMSE of {symbol}: {rmse:.3g}", fontsize="medium")
    axis.set_aspect("equal")
    return axis


def log_k_distributions(
    log_k: ArrayLike,
    labels: ArrayLike,
    names: Sequence[str] | None = None,
    observed: float | None = None,
    axis: "Axes | None" = None,
    *,
    model: int = 1,
    base10: bool = False,
) -> "Axes":
    """Draw how log K is distributed under each of two models.

    Parameters
    ----------
    log_k
        Natural log K, shape (n,).
    labels
        Model each draw came from, 0 or 1, shape (n,).
    names
        Names of the two models, as they are: a dollar sign starts no mathematics.
    observed
        Natural log K of an observation, drawn as a vertical line.
    axis
        Matplotlib axis to draw on; a new figure if None.
    model
        Number of the model that label 1 stands for, where there are more than two.
    base10
        Show log10 K instead of the natural log.

    Returns
    -------
    axis
        The axis, with one histogram a model, each of unit area. The outermost bars hold all draws beyond.
    """
    log_k, labels = check_log_k(log_k, labels)
    if names is not None and len(names) != 2:
        raise ValueError(f"names must be those of two models, got {tuple(names)}.")
    symbols = [_model(None if names is None else names[i], number) for i, number in enumerate((0, model))]
    unit = np.log(10.0) if base10 else 1.0
    shown = log_k / unit
    sides = [shown[labels == label] for label in (0, 1)]
    # A long tail would leave the rest a few bars wide.
    finite = [side[np.isfinite(side)] for side in sides]
    ends = np.ravel([np.quantile(side, (0.01, 0.99)) for side in finite if len(side) > 0])
    edges = np.histogram_bin_edges(ends, bins=int(np.clip(np.sqrt(len(shown)) / 2, 10, 60)))
    axis = _axis(axis, (5.6, 3.8))
    handles: list[Any] = []
    for side, colour, hatch in zip(sides, (_BLUE, _ORANGE), (None, "///"), strict=True):
        counts = np.histogram(np.clip(side, edges[0], edges[-1]), edges)[0]
        height = counts / (np.diff(edges) * len(side))
        fill = axis.stairs(height, edges, fill=True, facecolor=colour, alpha=0.3, linewidth=0)
        # A patch of its own: in SVG a hatch has the transparency of what it fills.
        line = axis.stairs(height, edges, fill=True, facecolor="none", edgecolor=colour, linewidth=1.4)
        if hatch is not None:
            line.set_hatch(hatch)
        handles.append((fill, line))
    texts = [f"drawn from {name}" for name in symbols]
    symbol = _symbol(base10)
    if observed is not None:
        texts.append(f"observed: {observed / unit:.2f}".replace("-", "−"))
        handles.append(axis.axvline(observed / unit, color=_BLACK, linewidth=1.6, label=texts[-1]))
    axis.set(xlabel=f"{symbol},  {_ratio(model)}", ylabel=f"density in {symbol}")
    _legend(axis, handles, texts)
    return axis


def validation(record: Validation, axes: "Sequence[Axes] | None" = None) -> "Sequence[Axes]":
    """Draw the coverage test, its residuals, and log K under each model, side by side.

    Parameters
    ----------
    record
        Result of `evidencenet.validate`.
    axes
        Three Matplotlib axes to draw on; a new figure if None.

    Returns
    -------
    axes
        The three. Of more than two models they show the one whose coverage test has the lowest p-value, and
        its log K against model 0 (that of model 1, if model 0 has the lowest).
    """
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(1, 3, figsize=(14.0, 4.6), layout="constrained")[1]
    if len(axes) != 3:
        raise ValueError(f"validation draws on three axes, got {len(axes)}.")
    worst = int(np.argmin([test.p_value for test in record.coverages]))
    tested = worst if len(record.names) > 2 else 1
    shown = max(tested, 1)
    coverage(record.coverages[worst], axes[0], name=record.names[tested])
    residuals(record.coverages[worst], axes[1], name=record.names[tested])
    pair = np.isin(record.label, (0, shown))
    names = (record.names[0], record.names[shown])
    log_k_distributions(
        record.log_k[pair, shown], record.label[pair] == shown, names, axis=axes[2], model=shown
    )
    return axes


def history(record: History, axis: "Axes | None" = None) -> "Axes":
    """Draw the learning curves of every member of an ensemble.

    Parameters
    ----------
    record
        Training history: `train_loss` and `score`, each (members, 1 + epochs) with entry 0 before training,
        and `best_epoch`, (members,). What is not finite is left out.
    axis
        Matplotlib axis to draw on; a new figure if None.

    Returns
    -------
    axis
        The axis of the held-out score, marked where each member was taken. The training loss,
        in units of its own, has a second axis on the right.
    """
    from matplotlib.ticker import MaxNLocator

    axis = _axis(axis, (5.8, 3.8))
    score, loss = (
        np.where(np.isfinite(table), table, np.nan)
        for table in (np.atleast_2d(record.score), np.atleast_2d(record.train_loss))
    )
    epochs = np.arange(score.shape[1])
    right = axis.twinx()
    drawn = []
    for i in range(len(score)):
        names = ("training loss", "held-out score") if i == 0 else (None, None)
        drawn += right.plot(epochs, loss[i], "--", color=_ORANGE, linewidth=1, label=names[0])
        drawn += axis.plot(epochs, score[i], color=_BLUE, linewidth=1.4, label=names[1])
    best = np.atleast_1d(record.best_epoch)
    drawn += axis.plot(
        best, score[np.arange(len(score)), best], "o", color=_BLACK, markersize=4.5, label="kept"
    )
    axis.set(xlabel="epoch", ylabel="held-out score [nats]")
    right.set_ylabel("training loss")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    # The left axis lies on top, so that marks are not hidden by the training loss.
    axis.set_zorder(right.get_zorder() + 1)
    axis.patch.set_visible(False)
    shown = [line for line in drawn if not str(line.get_label()).startswith("_")]
    _legend(axis, shown, [str(line.get_label()) for line in shown])
    return axis


def _axis(axis: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return the axis given, or that of a new figure."""
    if axis is not None:
        return axis
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _symbol(base10: bool) -> str:
    return r"$\log_{10} K$" if base10 else r"$\ln\,K$"


# The sign convention K = p(x|M1)/p(x|M0) reaches every figure from here.
def _ratio(model: int) -> str:
    return rf"$K = p(x|M_{{{model}}})\,/\,p(x|M_0)$"


def _probability(name: str | None) -> str:
    if name is None:
        return r"predicted probability $p(M_1|x)$"
    return f"predicted p({_model(name, 1)} | x)"


def _model(name: str | None, number: int) -> str:
    """Return a model's name as text that Matplotlib shows unchanged, or its symbol if it has no name."""
    if name is None:
        return f"$M_{{{number}}}$"
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 11]}…{name[-10:]}"
    # Control characters have no glyph, and make an SVG file invalid.
    return "".join(letter if letter.isprintable() else " " for letter in name).replace("$", r"\$")


def _legend(axis: "Axes", handles: Any = None, texts: Any = None, *, title: str | None = None) -> None:
    """Put the legend above the axis: inside, few draws or many curves would lie under it."""
    if handles is None:
        handles, texts = axis.get_legend_handles_labels()
    # Letters are about 5.6 points wide, a handle takes six of them, and a legend may stand out a little.
    room = 1.25 * axis.get_window_extent().width / axis.figure.dpi * 72 / 5.6
    columns = len(texts) if sum(len(text) + 6 for text in texts) <= room else 1
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    axis.legend(handles, texts, title=title, frameon=False, ncols=columns, **place)
