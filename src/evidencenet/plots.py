"""One figure for each record: every function draws on one axis and returns it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidencenet.coverage import Coverage, check_log_k

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe–Ito: told apart by colour-blind readers, and in grey print.
_BLUE, _ORANGE, _BLACK, _GREY = "#0072B2", "#E69F00", "#000000", "#767676"

# The sign convention K = p(x|M1)/p(x|M0) reaches every figure from here.
_RATIO = r"$K = p(x|M_1)\,/\,p(x|M_0)$"
_PROBABILITY = r"predicted probability $p(M_1|x)$"
_ABOVE: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "frameon": False}


class History(Protocol):
    """What `history` needs of a training record."""

    @property
    def train_loss(self) -> NDArray[np.floating]:
        """Training loss, shape (members, epochs); NaN after a member stopped."""
        ...

    @property
    def score(self) -> NDArray[np.floating]:
        """Held-out score in nats, shape (members, epochs); NaN after a member stopped."""
        ...

    @property
    def best_epoch(self) -> NDArray[np.integer]:
        """Index, from 0, of the epoch each member was taken from, shape (members,)."""
        ...


def coverage(record: Coverage, axis: "Axes | None" = None) -> "Axes":
    """Draw the fraction of draws from model 1 against its predicted probability.

    Parameters
    ----------
    record
        Result of `evidencenet.coverage.coverage`.
    axis
        Matplotlib axis to draw on; a new figure if None.

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
        xlabel=_PROBABILITY,
        ylabel=r"fraction of draws from $M_1$",
    )
    axis.set_aspect("equal")
    # Above the axis: with few draws the intervals fill all of it.
    title = f"Blind coverage {verdict}: p-value {record.p_value:.2g}, {record.n:,} draws"
    axis.legend(title=title, **_ABOVE, ncols=2)
    return axis


def residuals(record: Coverage, axis: "Axes | None" = None) -> "Axes":
    """Draw the rescaled residuals of the coverage test with bands of one and two standard deviations.

    Parameters
    ----------
    record
        Result of `evidencenet.coverage.coverage`.
    axis
        Matplotlib axis to draw on; a new figure if None.

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
    axis.set(xlim=(-0.03, 1.03), ylim=(-reach, reach), xlabel=_PROBABILITY, ylabel="rescaled residual")
    axis.legend(**_ABOVE, ncols=3)
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
    axis.set(xlim=frame, ylim=frame, xlabel=f"exact {symbol},  {_RATIO}", ylabel=f"estimated {symbol}")
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
        Names of models 0 and 1.
    observed
        Natural log K of an observation, drawn as a vertical line.
    axis
        Matplotlib axis to draw on; a new figure if None.
    base10
        Show log10 K instead of the natural log.

    Returns
    -------
    axis
        The axis, with one histogram a model, each of unit area.
    """
    log_k, labels = check_log_k(log_k, labels)
    names = ("$M_0$", "$M_1$") if names is None else tuple(names)
    if len(names) != 2:
        raise ValueError(f"names must be those of two models, got {names}.")
    unit = np.log(10.0) if base10 else 1.0
    shown = log_k / unit
    finite = np.isfinite(shown)
    edges = np.histogram_bin_edges(shown[finite], bins=int(np.clip(np.sqrt(len(shown)) / 2, 10, 60)))
    axis = _axis(axis, (5.6, 3.8))
    for model, colour, hatch in ((0, _BLUE, None), (1, _ORANGE, "///")):
        values = shown[finite & (labels == model)]
        height = np.histogram(values, edges)[0] / (np.diff(edges) * max(len(values), 1))
        fill = axis.stairs(
            height, edges, fill=True, facecolor=colour, edgecolor=colour, alpha=0.3, linewidth=0
        )
        fill.set(hatch=hatch, label=f"drawn from {names[model]}")
        axis.stairs(height, edges, color=colour, linewidth=1.4)
    symbol = _symbol(base10)
    if observed is not None:
        axis.axvline(observed / unit, color=_BLACK, linewidth=1.6, label=f"observed: {observed / unit:.2f}")
    axis.set(xlabel=f"{symbol},  {_RATIO}", ylabel=f"density in {symbol}")
    axis.legend(**_ABOVE, ncols=3)
    return axis


def history(record: History, axis: "Axes | None" = None) -> "Axes":
    """Draw the learning curves of every member of an ensemble.

    Parameters
    ----------
    record
        Training history with `train_loss` and `score`, each (members, epochs), and `best_epoch`, (members,).
    axis
        Matplotlib axis to draw on; a new figure if None.

    Returns
    -------
    axis
        The axis of the held-out score, with the epoch each member was taken from marked. The training loss,
        in units of its own, has a second axis on the right.
    """
    from matplotlib.ticker import MaxNLocator

    axis = _axis(axis, (5.8, 3.8))
    score, loss = np.atleast_2d(record.score), np.atleast_2d(record.train_loss)
    epochs = np.arange(1, score.shape[1] + 1)
    right = axis.twinx()
    drawn = []
    for i in range(len(score)):
        first = i == 0
        drawn += right.plot(
            epochs,
            loss[i],
            color=_ORANGE,
            linestyle="--",
            linewidth=1,
            label="training loss" if first else None,
        )
        drawn += axis.plot(
            epochs, score[i], color=_BLUE, linewidth=1.4, label="held-out score" if first else None
        )
    best = np.atleast_1d(record.best_epoch)
    drawn += axis.plot(
        best + 1, score[np.arange(len(score)), best], "o", color=_BLACK, markersize=4.5, label="kept"
    )
    axis.set(xlabel="epoch", ylabel="held-out score [nats]")
    right.set_ylabel("training loss")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    # The left axis lies on top, so that marks are not hidden by the training loss.
    axis.set_zorder(right.get_zorder() + 1)
    axis.patch.set_visible(False)
    shown = [line for line in drawn if not str(line.get_label()).startswith("_")]
    axis.legend(handles=shown, **_ABOVE, ncols=3)
    return axis


def _axis(axis: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return the axis given, or that of a new figure."""
    if axis is not None:
        return axis
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _symbol(base10: bool) -> str:
    return r"$\log_{10} K$" if base10 else r"$\ln\,K$"
