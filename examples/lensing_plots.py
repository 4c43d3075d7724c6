"""Figures of the lensing example."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import evidencenet as en
from _common import figure
from evidencenet.report import plots
from evidencenet.report.plots import BLACK, BLUE, GREY, ORANGE
from lensing_data import PAIRS, Survey

# Bins of log10 K in the histograms.
_LARGEST = 12.0


def draw_data(survey: Survey, expected: np.ndarray, drawn: np.ndarray) -> Figure:
    """Draw the data and a mock without and with noise, (P,) each, for each pair of redshift bins."""
    made, axes = figure((13, 9), 4, 5, sharex=True)
    centre = np.sqrt(survey.angle.prod(axis=1))
    # Multiplied by the angle, so that the values do not fall by orders of magnitude.
    scale = 1e4 * centre
    error = scale * np.sqrt(np.diag(survey.covariance))
    for number, (i, j) in enumerate(PAIRS):
        for kind, sign in enumerate("+−"):
            axis = axes[number // 5 + 2 * kind, number % 5]
            some = (survey.kind == kind) & (survey.pair == (i, j)).all(axis=1)
            x, bars = centre[some], error[some]
            axis.axhline(0, color=GREY, linewidth=0.6)
            axis.plot(x, (scale * expected)[some], color=ORANGE, label="mock without noise")
            axis.plot(
                1.04 * x,
                (scale * drawn)[some],
                "o",
                color=ORANGE,
                markersize=3,
                fillstyle="none",
                label="mock",
            )
            axis.errorbar(
                x,
                (scale * survey.observed)[some],
                yerr=bars,
                fmt="s",
                color=BLUE,
                markersize=3,
                elinewidth=0.9,
                label="observed",
            )
            axis.set_xscale("log")
            axis.text(0.04, 0.9, f"{i + 1}, {j + 1}", transform=axis.transAxes, fontsize="small")
            if number % 5 == 0:
                axis.set_ylabel(rf"$10^4\,\theta\,\xi_{sign}$ [arcmin]")
    for axis in axes[-1]:
        axis.set_xlabel(r"$\theta$ [arcmin]")
    handles, texts = axes[0, 0].get_legend_handles_labels()
    made.legend(handles, texts, loc="outside upper center", ncols=3, frameon=False)
    return made


def draw_coverage(checks: dict[str, list[en.Validation]]) -> Figure:
    """Draw the coverage test of some trainings, with residuals: as trained on the left, then recalibrated."""
    made, axes = figure((17, 4.4 * len(checks)), len(checks), 4, squeeze=False)
    for (method, both), row in zip(checks.items(), axes, strict=True):
        for check, state, left, right in zip(
            both, ("as trained", "recalibrated"), row[::2], row[1::2], strict=True
        ):
            plots.coverage(check.coverage, left)
            plots.residuals(check.coverage, right)
            right.annotate(f"{method},\n{state}", (0.5, 0.04), xycoords="axes fraction", ha="center")
    return made


def draw_log_k(
    checks: dict[str, list[en.Validation]], observed: dict[str, float], exact: dict[str, Any]
) -> Figure:
    """Draw log10 K of fresh draws under each model, recalibrated, with that of the observation.

    The last bar contains all draws beyond it: with alignment, log10 K goes up to hundreds.
    """
    made, axes = figure((5.8 * len(checks), 4.4), 1, len(checks), squeeze=False)
    ten = np.log(10.0)
    for (method, (_, check)), axis in zip(checks.items(), axes[0], strict=True):
        shown = np.minimum(check.log_k[:, 1], _LARGEST * ten)
        plots.log_k_distributions(shown, check.label, check.names, observed[method], axis, base10=True)
        value, error = exact["log_k"] / ten, exact["error"] / ten
        axis.axvspan(value - error, value + error, color=GREY, alpha=0.4, linewidth=0)
        axis.axvline(value, color=BLACK, linestyle=":")
        text = f"{method}\ndotted: nested sampling, {value:.2f}".replace("-", "−")
        # Left of the last bar, which can be the highest.
        axis.annotate(text, (0.58, 0.97), xycoords="axes fraction", ha="center", va="top")
    return made
