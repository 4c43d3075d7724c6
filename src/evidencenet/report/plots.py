"""Figures: each function draws one record on one axis, or on the few axes that belong together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidencenet._common import wording
from evidencenet._common.harmless import harmless
from evidencenet.checks.coverage import Coverage, check_log_k
from evidencenet.checks.range import HeldOut, Range
from evidencenet.checks.scores import of_pair
from evidencenet.estimator.answer import Comparison
from evidencenet.questions.design import Design
from evidencenet.questions.forecast import Forecast
from evidencenet.questions.hypothesis import HypothesisTest
from evidencenet.simulation.rare_draws import RareDraws

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers can tell apart, and which differ in grey print.
BLUE, ORANGE, BLACK, GREY = "#0072B2", "#E69F00", "#000000", "#767676"
# Bands behind the data, the second one fainter.
BAND, WIDE_BAND = "#BFD9EA", "#E3EEF5"
# Longer names of models are cut in the middle: two of them then fit side by side under a figure.
_LONGEST_NAME = 24
# Residuals beyond this are drawn at the edge of the figure.
_LARGEST_RESIDUAL = 10.0
# Letters of a legend are about 5.6 points wide, and a handle is as wide as six of them: measured for
# Matplotlib's own font of 10 points.
_LETTER, _HANDLE = 5.6, 6


def new_axis(axis: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return the axis given, or that of a new figure."""
    if axis is not None:
        return axis
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def symbol(base10: bool) -> str:
    """Return the symbol of log K."""
    return r"$\log_{10} K$" if base10 else r"$\ln\,K$"


def log_k_label(base10: bool, names: Sequence[str] | None = None) -> str:
    """Return the label of an axis of log K. It says which model is against which; all figures use it."""
    if names is None:
        return rf"{symbol(base10)},  $K = p(x|M_1)\,/\,p(x|M_0)$"
    against, model = (model_text(name, i) for i, name in enumerate(names))
    return f"{symbol(base10)} of {model} against {against}"


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
    return harmless(name).replace("$", r"\$")


def legend(axis: "Axes", handles: Any = None, texts: Any = None, *, title: str | None = None) -> None:
    """Put the legend above the axis, where it hides no data."""
    if handles is None:
        handles, texts = axis.get_legend_handles_labels()
    # The legend may be a quarter wider than the axis.
    room = 1.25 * axis.get_window_extent().width / axis.figure.dpi * 72 / _LETTER
    columns = len(texts) if sum(len(text) + _HANDLE for text in texts) <= room else 1
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    axis.legend(handles, texts, title=title, frameon=False, ncols=columns, **place)


class History(Protocol):
    """What `history` needs of a training record."""

    @property
    def score(self) -> NDArray[np.floating]:
        """Held-out score in nats, shape (members, 1 + epochs); NaN or infinite where there is none."""

    @property
    def best_epoch(self) -> NDArray[np.integer]:
        """The epoch whose weights each member has, shape (members,)."""


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

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Validated range of log K of each further model against model 0."""


class Network(Protocol):
    """What `network` needs of a trained network."""

    @property
    def names(self) -> tuple[str, ...]:
        """The K models."""

    @property
    def history(self) -> Any:
        """How training went."""

    @property
    def held_out(self) -> HeldOut:
        """Log K of held-out draws."""

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Validated range of log K of each further model against model 0."""


def coverage(record: Coverage, axis: "Axes | None" = None, *, name: str | None = None) -> "Axes":
    """Draw the fraction of draws from model 1 against its predicted probability.

    Parameters
    ----------
    record
        Result of `evidencenet.checks.coverage.coverage`.
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
    >>> from evidencenet.checks.coverage import coverage as check
    >>> axis = coverage(check([-1.0, 1.0], [0, 1]))  # doctest: +SKIP
    """
    axis = new_axis(axis, (4.8, 4.6))
    axis.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="perfect", zorder=1)
    reach = np.maximum([record.observed - record.low, record.high - record.observed], 0.0)
    axis.errorbar(
        record.predicted,
        record.observed,
        yerr=reach,
        fmt="o",
        color=BLUE,
        markersize=4.5,
        elinewidth=1.2,
        capsize=2.5,
        label=f"observed, {100 * record.level:g}% interval",
    )
    verdict = "passed" if record.passed else "failed"
    axis.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        xlabel=probability(name),
        ylabel=f"fraction drawn from {model_text(name, 1)}",
    )
    axis.set_aspect("equal")
    title = f"Blind coverage {verdict}: p-value {record.p_value:.2g}, {record.n:,} draws"
    legend(axis, title=title)
    return axis


def residuals(record: Coverage, axis: "Axes | None" = None, *, name: str | None = None) -> "Axes":
    """Draw the rescaled residuals of the coverage test with bands of one and two standard deviations.

    Parameters
    ----------
    record
        Result of `evidencenet.checks.coverage.coverage`.
    axis
        Matplotlib axis to draw on; a new figure if None.
    name
        Name of the model whose probability is tested; M1 if None.

    Returns
    -------
    axis
        The axis. Residuals beyond ±10 are drawn as triangles at the edge.
    """
    axis = new_axis(axis, (5.6, 3.6))
    for width, colour in ((2, WIDE_BAND), (1, BAND)):
        axis.axhspan(-width, width, color=colour, linewidth=0, zorder=0)
    axis.axhline(0, color=GREY, linestyle="--", linewidth=1, zorder=1)
    label = "one bin"
    if np.isfinite(record.std_residual):
        label = f"mean {wording.fixed(record.mean_residual)}, std {record.std_residual:.2f}".replace("-", "−")
    edge = _LARGEST_RESIDUAL
    reach = max(3.5, 1.15 * min(edge, float(np.abs(record.residual).max())))
    shown = np.abs(record.residual) <= edge
    axis.plot(record.predicted[shown], record.residual[shown], "o", color=BLUE, markersize=5, label=label)
    for marker, beyond in (("^", record.residual > edge), ("v", record.residual < -edge)):
        height = np.full(int(beyond.sum()), edge if marker == "^" else -edge)
        if beyond.any():
            sign = "> " if marker == "^" else "< −"
            axis.plot(
                record.predicted[beyond], height, marker, color=ORANGE, markersize=6, label=f"{sign}{edge:g}"
            )
    axis.set(xlim=(-0.03, 1.03), ylim=(-reach, reach), xlabel=probability(name), ylabel="rescaled residual")
    legend(axis)
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
    axis = new_axis(axis, (4.8, 4.6))
    if bars is None:
        crowded = len(exact) > 1000
        size, alpha = (2.0, 0.35) if crowded else (4.0, 0.8)
        (dots,) = axis.plot(exact, estimate, "o", color=BLUE, markersize=size, alpha=alpha, markeredgewidth=0)
        dots.set_rasterized(crowded)  # thousands of vector dots make a PDF slow to open
    else:
        axis.errorbar(
            exact, estimate, yerr=bars, fmt="o", color=BLUE, markersize=3.5, elinewidth=1, alpha=0.8
        )
    # Both axes have the same limits, so that the diagonal goes from corner to corner.
    ends = min(exact.min(), estimate.min()), max(exact.max(), estimate.max())
    margin = 0.04 * (ends[1] - ends[0]) or 1.0
    frame = (float(ends[0] - margin), float(ends[1] + margin))
    axis.plot(frame, frame, color=BLACK, linestyle="--", linewidth=1)
    sign = symbol(base10)
    rmse = np.sqrt(np.mean((estimate - exact) ** 2))
    axis.set(xlim=frame, ylim=frame, xlabel=f"exact {log_k_label(base10)}", ylabel=f"estimated {sign}")
    axis.set_title(f"RMSE of {sign}: {rmse:.3g}", fontsize="medium")
    axis.set_aspect("equal")
    return axis


def log_k_distributions(
    log_k: ArrayLike,
    labels: ArrayLike,
    names: Sequence[str] | None = None,
    observed: ArrayLike | None = None,
    axis: "Axes | None" = None,
    *,
    model: int = 1,
    base10: bool = False,
    validated: Range | None = None,
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
        Natural log K of an observation, or of several, drawn as vertical lines.
    axis
        Matplotlib axis to draw on; a new figure if None.
    model
        Number of the model that label 1 stands for, if there are more than two. It is shown if `names` is
        None.
    base10
        Show log10 K instead of the natural log.
    validated
        The validated range of natural log K, drawn as a band.

    Returns
    -------
    axis
        The axis, with one histogram a model, each of unit area. The outermost bars include all draws beyond.
    """
    log_k, labels = check_log_k(log_k, labels)
    if names is not None and len(names) != 2:
        raise ValueError(f"names must be those of two models, got {tuple(names)}.")
    symbols = [model_text(None if names is None else names[i], number) for i, number in enumerate((0, model))]
    unit = np.log(10.0) if base10 else 1.0
    shown = log_k / unit
    sides = [shown[labels == label] for label in (0, 1)]
    # Bars between the 1% and 99% quantiles: with a long tail, most draws would otherwise share a few bars.
    finite = [side[np.isfinite(side)] for side in sides]
    ends = np.ravel([np.quantile(side, (0.01, 0.99)) for side in finite if len(side) > 0])
    edges = np.histogram_bin_edges(ends, bins=int(np.clip(np.sqrt(len(shown)) / 2, 10, 60)))
    axis = new_axis(axis, (5.6, 3.8))
    handles: list[Any] = []
    for side, colour, hatch in zip(sides, (BLUE, ORANGE), (None, "///"), strict=True):
        counts = np.histogram(np.clip(side, edges[0], edges[-1]), edges)[0]
        height = counts / (np.diff(edges) * len(side))
        fill = axis.stairs(height, edges, fill=True, facecolor=colour, alpha=0.3, linewidth=0)
        # The hatch is a second patch, because in SVG it has the transparency of what it fills.
        line = axis.stairs(height, edges, fill=True, facecolor="none", edgecolor=colour, linewidth=1.4)
        if hatch is not None:
            line.set_hatch(hatch)
        handles.append((fill, line))
    texts = [f"drawn from {name}" for name in symbols]
    sign = symbol(base10)
    if observed is not None and np.size(observed) > 0:
        lines = np.ravel(np.asarray(observed, dtype=np.float64)) / unit
        single = f"observed: {wording.fixed(float(lines[0]))}".replace("-", "−")
        texts.append(single if len(lines) == 1 else f"{len(lines)} observations")
        handles.append(_observations(axis, lines, edges, texts[-1]))
    if validated is not None and not validated.empty and not validated.unlimited:
        low, high = validated.low / unit, validated.high / unit
        texts.append(f"validated: {wording.fixed(low)} to {wording.fixed(high)}".replace("-", "−"))
        handles.append(axis.axvspan(low, high, color=WIDE_BAND, linewidth=0, zorder=0, label=texts[-1]))
    label = log_k_label(base10, names)
    axis.set(xlabel=label if names else label.replace("M_1", f"M_{{{model}}}"), ylabel=f"density in {sign}")
    legend(axis, handles, texts)
    return axis


def _observations(axis: "Axes", lines: NDArray[np.float64], edges: NDArray[np.float64], text: str) -> Any:
    """Draw vertical lines; those far beyond the histogram as arrows, so that the histogram stays visible."""
    span = edges[-1] - edges[0]
    low, high = edges[0] - span, edges[-1] + span
    style: dict[str, Any] = {"color": BLACK, "linewidth": 1.6 if len(lines) == 1 else 0.9}
    drawn = [axis.axvline(at, label=text, **style) for at in np.clip(lines, low, high)]
    for marker, edge, beyond in (("<", low, lines < low), (">", high, lines > high)):
        if beyond.any():
            axis.plot([edge], [0.5], marker, color=BLACK, markersize=8, transform=axis.get_xaxis_transform())
    return drawn[0]


def rare_draws(record: RareDraws, axis: "Axes | None" = None) -> "Axes":
    """Draw how plain and rare draws of each model spread along the log-odds against the model.

    Parameters
    ----------
    record
        Rare draws.
    axis
        Matplotlib axis to draw on; a new figure if None.

    Returns
    -------
    axis
        The axis, with two lines a model, plain draws dashed: how many draws there are in each nat of the
        log-odds of the other models to it, on a log scale.
    """
    axis = new_axis(axis, (5.6, 3.8))
    own = record.score[np.arange(len(record)), record.model]
    low, high = np.floor(np.quantile(own, 0.001)), np.ceil(own.max())
    edges = np.arange(low, max(high, low + 1) + 1)
    for k, name in enumerate(record.names):
        colour = (BLUE, ORANGE)[k] if k < 2 else f"C{k}"
        for rows, style, kind in (
            (record.plain, "--", "plain draws"),
            (~record.plain, "-", "rare draws"),
        ):
            counts = np.histogram(own[rows & (record.model == k)], edges)[0].astype(float)
            counts[counts == 0] = np.nan
            text = f"{kind} of {model_text(name, k)}"
            axis.stairs(counts, edges, color=colour, linestyle=style, linewidth=1.4, label=text)
    axis.set_yscale("log")
    axis.set_xlabel("log-odds of the other models to the one that made the draw")
    axis.set_ylabel("draws per nat")
    legend(axis)
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
    names = (record.names[0], record.names[shown])
    draws = of_pair(record.log_k, record.label, shown, 0)
    log_k_distributions(*draws, names, axis=axes[2], validated=record.ranges[shown - 1])
    return axes


def network(record: Network, axes: "Sequence[Axes] | None" = None) -> "Sequence[Axes]":
    """Draw the learning curves, and log K of the held-out draws with its validated range, side by side.

    Parameters
    ----------
    record
        An `evidencenet.EvidenceNetwork`.
    axes
        Two Matplotlib axes to draw on; a new figure if None.

    Returns
    -------
    axes
        The two. Of more than two models, the second shows the second model against the first.
    """
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(1, 2, figsize=(10.4, 4.2), layout="constrained")[1]
    if len(axes) != 2:
        raise ValueError(f"network draws on two axes, got {len(axes)}.")
    history(record.history, axes[0])
    draws = of_pair(np.asarray(record.held_out.log_k, dtype=np.float64), record.held_out.label, 1, 0)
    log_k_distributions(*draws, record.names[:2], axis=axes[1], validated=record.ranges[0])
    return axes


def answer(record: Comparison, axes: "Sequence[Axes] | None" = None) -> "Sequence[Axes]":
    """Draw the probabilities of the models, and log K of every pair with its validated range.

    Parameters
    ----------
    record
        Result of `net.compare` for one observation.
    axes
        Two Matplotlib axes to draw on; a new figure if None.

    Returns
    -------
    axes
        The two. On the second, a point with its error is a log K in the validated range, which is a band. An
        arrow starts at the bound of a log K beyond it.
    """
    if axes is None:
        from matplotlib import pyplot

        height = 1.6 + 0.35 * max(len(record.names), len(record.pairs))
        axes = pyplot.subplots(1, 2, figsize=(10.4, height), layout="constrained")[1]
    if len(axes) != 2:
        raise ValueError(f"answer draws on two axes, got {len(axes)}.")
    _probabilities(record, axes[0])
    _pairs(record, axes[1])
    return axes


def _probabilities(record: Comparison, axis: "Axes") -> None:
    """Draw a bar for each model, the best on top."""
    order = list(record.ranking)
    errors = np.nan_to_num(record.probability_errors[order]) if record.lead.in_range else None
    places = np.arange(len(order))
    style: dict[str, Any] = {"color": BAND, "edgecolor": BLUE, "ecolor": BLACK, "capsize": 3}
    axis.barh(places, record.probabilities[order], xerr=errors, height=0.6, **style)
    texts = wording.probabilities(record.probabilities.tolist())
    axis.set_yticks(places, [f"{model_text(record.names[k], k)}\n{texts[k]}" for k in order])
    axis.invert_yaxis()
    doubt = "" if record.lead.in_range else " (if the network extrapolates well)"
    axis.set(xlim=(0, 1.03), xlabel=f"probability{doubt}")


def _pairs(record: Comparison, axis: "Axes") -> None:
    """Draw log K of each pair: a point with its error, or an arrow from its bound."""
    order = record.ranking
    pairs = [record.pair(a, b) for i, a in enumerate(order) for b in order[i + 1 :]]
    if len(record.names) == 2:
        pairs = [record.pair()]
    # Room for arrows: a third of what else is shown, and at least two nats.
    shown = [0.0]
    for pair in pairs:
        bound = pair.bound
        shown += [pair.estimate] if pair.in_range else [] if bound is None else [bound.value]
        if not pair.range.empty and not pair.range.unlimited:
            shown += [pair.range.low, pair.range.high]
    arrow = max(2.0, (max(shown) - min(shown)) / 3)
    for place, pair in enumerate(pairs):
        bound = pair.bound
        if not pair.range.empty and not pair.range.unlimited:
            ends = pair.range.low, pair.range.high
            axis.barh(place, ends[1] - ends[0], left=ends[0], height=0.6, color=WIDE_BAND, zorder=0)
        if pair.in_range:
            error = pair.error if np.isfinite(pair.error) else None
            axis.errorbar(pair.estimate, place, xerr=error, fmt="o", color=BLUE, capsize=3, markersize=5)
        elif bound is not None:
            end = bound.value + (arrow if bound.above else -arrow)
            style = {"arrowstyle": "->", "color": ORANGE, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
            axis.annotate("", (end, place), (bound.value, place), arrowprops=style)
            axis.plot([bound.value, end], [place, place], "|", color=ORANGE, markevery=[0], markersize=9)
        else:
            axis.text(0, place, "not validated", ha="center", va="center", color=GREY)
    axis.axvline(0, color=GREY, linestyle="--", linewidth=1, zorder=1)
    labels = [f"{model_text(pair.model, 1)}\nagainst {model_text(pair.against, 0)}" for pair in pairs]
    axis.set_yticks(np.arange(len(pairs)), labels)
    axis.set_ylim(len(pairs) - 0.4, -0.6)
    axis.set_xlabel(f"{symbol(False)}; band: validated range")


def history(record: History, axis: "Axes | None" = None) -> "Axes":
    """Draw the learning curves of every member of an ensemble: the held-out score after each epoch.

    Parameters
    ----------
    record
        Training history: `score`, (members, 1 + epochs) with entry 0 before training, and `best_epoch`,
        (members,). What is not finite is left out.
    axis
        Matplotlib axis to draw on; a new figure if None.

    Returns
    -------
    axis
        The axis, marked at the epoch whose weights each member has. The training loss is not drawn, because
        most losses are not in nats: it is in ``net.history.train_loss``.
    """
    from matplotlib.ticker import MaxNLocator

    axis = new_axis(axis, (5.8, 3.8))
    score = np.atleast_2d(record.score)
    score = np.where(np.isfinite(score), score, np.nan)
    epochs = np.arange(score.shape[1])
    for i, curve in enumerate(score):
        axis.plot(epochs, curve, color=BLUE, linewidth=1.2, label="held-out score" if i == 0 else None)
    best = np.atleast_1d(record.best_epoch)
    at_best = score[np.arange(len(score)), best]
    axis.plot(best, at_best, "o", color=BLACK, markersize=4.5, label="epoch of the weights")
    axis.set(xlabel="epoch", ylabel="held-out score [nats]")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(axis)
    return axis


def hypothesis_test(
    record: HypothesisTest, axes: "Sequence[Axes] | None" = None, *, observed: float | None = None
) -> "Sequence[Axes]":
    """Draw log K under the null and the alternative, and the ROC.

    Parameters
    ----------
    record
        Result of `evidencenet.hypothesis_test`.
    axes
        Two Matplotlib axes to draw on; a new figure if None.
    observed
        Natural log K of an observation, drawn as a vertical line.

    Returns
    -------
    axes
        The two.
    """
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(1, 2, figsize=(10.4, 4.4), layout="constrained")[1]
    if len(axes) != 2:
        raise ValueError(f"hypothesis_test draws on two axes, got {len(axes)}.")
    log_k = np.concatenate([record.null, record.alternative])
    label = np.repeat([0, 1], [len(record.null), len(record.alternative)])
    log_k_distributions(log_k, label, record.names, observed, axes[0])
    axes[0].set_xlabel(r"$\ln\,K$, alternative over null")
    roc(record, axes[1])
    return axes


def roc(record: HypothesisTest, axis: "Axes | None" = None) -> "Axes":
    """Draw the power of a test against its size, with a band of one standard error.

    Parameters
    ----------
    record
        Result of `evidencenet.hypothesis_test`.
    axis
        Matplotlib axis to draw on; a new figure if None.
    """
    axis = new_axis(axis, (4.8, 4.6))
    points = record.roc()
    low, high = (np.clip(points.power + sign * points.error, 0, 1) for sign in (-1, 1))
    axis.fill_between(points.size, low, high, color=BAND, linewidth=0)
    size, power = np.r_[0, points.size, 1], np.r_[0, points.power, 1]
    axis.plot(size, power, color=BLUE, linewidth=1.4, label=f"area {record.auc}")
    axis.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="knowing nothing")
    null, alternative = (model_text(name, i) for i, name in enumerate(record.names))
    axis.set(
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        xlabel=f"size: false alarms under {null}",
        ylabel=f"power under {alternative}",
    )
    axis.set_aspect("equal")
    legend(axis)
    return axis


def forecast(record: Forecast, axis: "Axes | None" = None) -> "Axes":
    """Draw the probability that data favour a model, by one of its parameters or by two.

    Parameters
    ----------
    record
        Result of `evidencenet.forecast`, by one or two parameters.
    axis
        Matplotlib axis to draw on; a new figure if None.

    Returns
    -------
    axis
        The axis, with a point and its error for each bin of one parameter, or a map of two.
    """
    if len(record.parameters) not in (1, 2):
        raise ValueError(
            f"a forecast by {len(record.parameters)} parameters cannot be drawn; wanted one or two: "
            "forecast(..., parameter=)."
        )
    axis = new_axis(axis, (5.6, 3.8))
    value, error = np.asarray(record.probability.value), np.asarray(record.probability.error)
    label = f"probability of {wording.odds(record.threshold)} for {model_text(record.names[0], 1)}"
    axis.set_xlabel(model_text(record.parameters[0], 0))
    if len(record.parameters) == 2:
        mesh = axis.pcolormesh(*record.edges, value.T, vmin=0, vmax=1, cmap="viridis")
        axis.set_ylabel(model_text(record.parameters[1], 0))
        axis.figure.colorbar(mesh, ax=axis, label=label)
        return axis
    (ends,) = record.edges
    width = np.diff(ends) / 2
    style = {"fmt": "o", "color": BLUE, "markersize": 4.5, "elinewidth": 1.2}
    axis.errorbar(ends[:-1] + width, value, yerr=error, xerr=width, label="by bin", **style)  # type: ignore[arg-type]
    overall = f"overall: {record.overall}"
    axis.axhline(float(record.overall), color=GREY, linestyle="--", linewidth=1, label=overall)
    axis.set(ylim=(-0.03, 1.03), ylabel=label)
    legend(axis)
    return axis


def design(record: Design, axis: "Axes | None" = None) -> "Axes":
    """Draw the probability that data decide, at each setting of an experiment.

    Parameters
    ----------
    record
        Result of `evidencenet.design`.
    axis
        Matplotlib axis to draw on; a new figure if None.

    Returns
    -------
    axis
        The axis, with the probability wanted as a line and, if there is one, the answer as another.
    """
    axis = new_axis(axis, (5.6, 3.8))
    numbers = all(isinstance(s, int | float | np.number) for s in record.settings)
    places = np.array(record.settings, dtype=np.float64) if numbers else np.arange(len(record.settings))
    if not numbers:
        axis.set_xticks(places, [model_text(str(s), 0) for s in record.settings])
    value, error = np.asarray(record.probability.value), np.asarray(record.probability.error)
    axis.errorbar(places, value, yerr=error, fmt="o", color=BLUE, markersize=4.5, label="forecast")
    axis.axhline(record.wanted, color=GREY, linestyle="--", linewidth=1, label=f"wanted: {record.wanted:g}")
    if record.answer is not None:
        axis.axvline(float(record.answer), color=ORANGE, linewidth=1.4, label=f"answer: {record.answer}")
        reach = float(record.answer.error)
        span = float(record.answer) - reach, float(record.answer) + reach
        axis.axvspan(*span, color=ORANGE, alpha=0.2, linewidth=0)
    odds = wording.odds(float(np.log(record.odds)))
    label = f"probability of {odds} for {model_text(record.names[0], 1)}"
    axis.set(ylim=(-0.03, 1.03), xlabel="setting", ylabel=label)
    legend(axis)
    return axis
