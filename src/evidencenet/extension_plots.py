"""Figures of the extensions: hypothesis tests, forecasts, designs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evidencenet import wording
from evidencenet.design import Design
from evidencenet.drawing import BAND, BLUE, GREY, ORANGE, legend, model_text, new_axis
from evidencenet.forecast import Forecast
from evidencenet.hypothesis import HypothesisTest
from evidencenet.plots import log_k_distributions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    said = f"probability of {wording.odds(record.threshold)} for {model_text(record.names[0], 1)}"
    axis.set_xlabel(model_text(record.parameters[0], 0))
    if len(record.parameters) == 2:
        mesh = axis.pcolormesh(*record.edges, value.T, vmin=0, vmax=1, cmap="viridis")
        axis.set_ylabel(model_text(record.parameters[1], 0))
        axis.figure.colorbar(mesh, ax=axis, label=said)
        return axis
    (ends,) = record.edges
    width = np.diff(ends) / 2
    style = {"fmt": "o", "color": BLUE, "markersize": 4.5, "elinewidth": 1.2}
    axis.errorbar(ends[:-1] + width, value, yerr=error, xerr=width, label="by bin", **style)  # type: ignore[arg-type]
    overall = f"overall: {record.overall}"
    axis.axhline(float(record.overall), color=GREY, linestyle="--", linewidth=1, label=overall)
    axis.set(ylim=(-0.03, 1.03), ylabel=said)
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
    said = f"probability of {odds} for {model_text(record.names[0], 1)}"
    axis.set(ylim=(-0.03, 1.03), xlabel="setting", ylabel=said)
    legend(axis)
    return axis
