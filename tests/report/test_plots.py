import inspect
import subprocess
import sys
from dataclasses import dataclass
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

import evidencenet as en
from evidencenet import HypothesisTest
from evidencenet._common.estimate import Estimate
from evidencenet.checks.coverage import Coverage, coverage
from evidencenet.checks.range import Range
from evidencenet.questions.design import Design
from evidencenet.questions.forecast import Forecast
from evidencenet.report import plots

LABELS = np.repeat([0, 1], 500)
LOG_K = 2 * (np.random.default_rng(1).normal(size=1000) + 2 * LABELS) - 2
RECORD = coverage(LOG_K, LABELS)
RANGE = Range(-1.5, 2.5, (500, 500), 10, empty=False)
TEST = HypothesisTest.of(LOG_K[LABELS == 0], LOG_K[LABELS == 1])
VALIDATED = "validated: −1.50 to 2.50"
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Record:
    train_loss: np.ndarray
    score: np.ndarray
    best_epoch: np.ndarray


HISTORY = Record(
    train_loss=np.array([[np.nan, 3.0, 2.0, 1.5], [np.nan, 3.1, 2.2, np.nan]]),
    score=np.array([[np.inf, 0.6, 0.5, 0.55], [np.inf, 0.58, 0.57, np.nan]]),
    best_epoch=np.array([2, 2]),
)


def blank():
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def drawn(axis):
    """Render, so that bad labels and limits show as errors, and return the axis."""
    axis.figure.canvas.draw()
    return axis


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def line(axis, label):
    return next(found for found in axis.get_lines() if found.get_label() == label)


def test_coverage():
    record, axis = coverage(LOG_K, LABELS), blank()
    assert drawn(plots.coverage(record, axis)) is axis
    points, _, (bars,) = axis.containers[0].lines
    assert np.array_equal(points.get_xdata(), record.predicted)
    assert np.array_equal(points.get_ydata(), record.observed)
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert ends == pytest.approx(np.stack([record.low, record.high], axis=1))
    assert np.array_equal(line(axis, "perfect").get_xydata(), [[0, 0], [1, 1]])
    assert "passed" in axis.get_legend().get_title().get_text()
    assert "M_1" in axis.get_xlabel()
    failed = drawn(plots.coverage(coverage(2 * LOG_K, LABELS), blank()))
    assert "failed" in failed.get_legend().get_title().get_text()


def test_coverage_record_draws_itself():
    axis = blank()
    assert coverage(LOG_K, LABELS).plot(axis) is axis


def test_residuals():
    record = coverage(LOG_K, LABELS)
    axis = drawn(plots.residuals(record, blank()))
    (label,) = legend(axis)
    assert label == f"mean {record.mean_residual:.2f}, std {record.std_residual:.2f}"
    assert np.array_equal(line(axis, label).get_ydata(), record.residual)
    assert sorted(patch.get_height() for patch in axis.patches) == [2, 4]


def test_residuals_beyond_the_frame():
    log_k = LOG_K.copy()
    log_k[0], log_k[-1] = np.inf, -np.inf  # certain and wrong: infinite residuals
    record = coverage(np.where(np.abs(log_k) < 3, log_k, 50 * log_k), LABELS)
    assert np.abs(record.residual).max() > 10
    axis = drawn(plots.residuals(record, blank()))
    assert {"> 10", "< −10"} <= set(legend(axis))
    assert sum(len(found.get_xdata()) for found in axis.get_lines()[1:]) == len(record.count)


@pytest.mark.parametrize(("base10", "unit", "name"), [(True, np.log(10), r"\log_{10}"), (False, 1.0, r"\ln")])
def test_log_k(base10, unit, name):
    axis = drawn(plots.log_k(LOG_K + 0.5, LOG_K, blank(), base10=base10))
    assert np.asarray(axis.get_lines()[0].get_ydata()) == pytest.approx((LOG_K + 0.5) / unit)
    assert axis.get_title().endswith(f"{0.5 / unit:.3g}")
    assert all(name in text for text in (axis.get_xlabel(), axis.get_ylabel(), axis.get_title()))
    assert axis.get_xlim() == axis.get_ylim()


def test_log_k_with_errors():
    axis = drawn(plots.log_k(LOG_K[:9], LOG_K[:9], blank(), error=np.full(9, 0.2), base10=False))
    (bars,) = axis.containers[0].lines[2]
    assert [np.ptp(segment[:, 1]) for segment in bars.get_segments()] == pytest.approx([0.4] * 9)
    drawn(plots.log_k([1.0], [1.0], blank()))


def test_log_k_distributions():
    axis = drawn(plots.log_k_distributions(LOG_K, LABELS, ("flat", "trend"), 3.2, blank()))
    assert legend(axis) == ["drawn from flat", "drawn from trend", "observed: 3.20"]
    for patch in axis.patches:
        assert isinstance(patch, StepPatch)
        height, edges, _ = patch.get_data()
        assert np.sum(height * np.diff(edges)) == pytest.approx(1)
    assert np.asarray(line(axis, "observed: 3.20").get_xdata()) == pytest.approx(3.2)
    ten = drawn(plots.log_k_distributions(LOG_K, LABELS, observed=np.log(100), axis=blank(), base10=True))
    assert legend(ten)[2] == "observed: 2.00"
    assert r"\log_{10}" in ten.get_xlabel()


def test_the_validated_range_is_a_band():
    axis = drawn(plots.log_k_distributions(LOG_K, LABELS, axis=blank(), base10=True, validated=RANGE))
    assert legend(axis)[2] == "validated: −0.65 to 1.09"
    (band,) = (patch for patch in axis.patches if not isinstance(patch, StepPatch))
    ends = band.get_extents().transformed(axis.transData.inverted())
    assert (ends.x0, ends.x1) == pytest.approx((-1.5 / np.log(10), 2.5 / np.log(10)))
    empty = Range(0.0, 0.0, (5, 5), 10, empty=True)
    assert len(legend(plots.log_k_distributions(LOG_K, LABELS, axis=blank(), validated=empty))) == 2


def test_history():
    axis = drawn(plots.history(HISTORY, blank()))
    assert legend(axis) == ["held-out score", "epoch of the weights"]
    assert np.array_equal(line(axis, "epoch of the weights").get_xydata(), [[2, 0.5], [2, 0.57]])
    # Entry 0 is before training, where there may be neither score nor loss.
    expected = [[0, np.nan], [1, 0.6], [2, 0.5], [3, 0.55]]
    assert np.array_equal(line(axis, "held-out score").get_xydata(), expected, equal_nan=True)
    # One axis: the training loss is not in nats.
    assert axis.figure.axes == [axis]
    assert len(axis.get_lines()) == 3


def test_history_of_members_that_never_got_better():
    score = np.array([[0.5, 0.6, np.inf], [0.5, 0.7, 0.8]])
    record = Record(np.full((2, 3), np.nan), score, np.array([0, 0]))
    axis = drawn(plots.history(record, blank()))
    assert np.array_equal(line(axis, "epoch of the weights").get_xydata(), [[0, 0.5], [0, 0.5]])
    nothing = Record(np.full((1, 2), np.nan), np.full((1, 2), np.inf), np.array([0]))
    drawn(plots.history(nothing, blank()))


@dataclass(frozen=True)
class Check:
    names: tuple[str, ...]
    log_k: np.ndarray
    label: np.ndarray
    coverages: tuple[Coverage, ...]
    ranges: tuple[Range, ...] = (RANGE, RANGE)


def three_axes():
    figure = Figure(figsize=(14, 5))
    FigureCanvasAgg(figure)
    return figure.subplots(1, 3)


def test_validation():
    log_k = np.stack([np.zeros(1000), LOG_K], axis=1)
    record = Check(("flat", "trend"), log_k, LABELS, (coverage(LOG_K, LABELS),))
    axes = three_axes()
    assert plots.validation(record, axes) is axes
    drawn(axes[0])
    assert axes[0].get_xlabel() == axes[1].get_xlabel() == "predicted p(trend | x)"
    assert axes[0].get_ylabel() == "fraction drawn from trend"
    assert legend(axes[2]) == ["drawn from flat", "drawn from trend", VALIDATED]
    with pytest.raises(ValueError, match="three axes, got 2"):
        plots.validation(record, axes[:2])


@pytest.mark.parametrize(("worst", "shown"), [(0, 1), (1, 1), (2, 2)])
def test_validation_of_three_models_shows_the_worst(worst, shown):
    label = np.arange(900) % 3
    log_k = np.random.default_rng(2).normal(size=(900, 3)) * [0, 1, 100] + (label == 2)[:, None] * 7
    good, bad = coverage(LOG_K, LABELS), coverage(2 * LOG_K, LABELS)
    tests = tuple(bad if k == worst else good for k in range(3))
    axes = plots.validation(Check(("a", "b", "c"), log_k, label, tests), three_axes())
    drawn(axes[0])
    assert axes[0].get_xlabel() == f"predicted p({'abc'[worst]} | x)"
    assert legend(axes[2]) == ["drawn from a", f"drawn from {'abc'[shown]}", VALIDATED]
    assert axes[2].get_xlabel().endswith(f"of {'abc'[shown]} against a")
    # Model 2 has a hundred times the spread of model 1: its draws are those in the figure.
    assert (np.ptp(axes[2].get_xlim()) > 50) == (shown == 2)


def test_log_k_distributions_counts_long_tails_in_the_outermost_bars():
    log_k = LOG_K.copy()
    log_k[-3:] = 1000, 2000, np.inf
    axis = drawn(plots.log_k_distributions(log_k, LABELS, axis=blank()))
    assert max(axis.get_xlim()) < 20
    for patch in axis.patches:
        height, edges, _ = patch.get_data()
        assert np.sum(height * np.diff(edges)) == pytest.approx(1)
    drawn(plots.log_k_distributions([-np.inf, np.inf], [0, 1], axis=blank()))


@pytest.mark.parametrize("name", ["$x^2$", "$", r"\$5", "$\\frac{1}$ $", "100%", "_hidden", "a\nb\0", "<b>&"])
def test_names_are_shown_as_they_are(name):
    axis = drawn(plots.log_k_distributions(LOG_K, LABELS, (name, "other"), axis=blank()))
    file = StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        axis.figure.savefig(file, format="svg")
    texts = [
        "".join(found.itertext()) for found in ElementTree.fromstring(file.getvalue()).iter(f"{SVG}text")
    ]
    assert f"drawn from {name}".replace("\n", r"\n").replace("\0", r"\x00").split() in [
        text.split() for text in texts
    ]


def test_long_names_are_cut_and_stacked():
    names = ("first " * 9, "second " * 9)
    axis = drawn(plots.log_k_distributions(LOG_K, LABELS, names, 1.0, blank()))
    assert all(len(text) <= len("drawn from ") + 24 and "…" in text for text in legend(axis)[:2])
    frame = axis.get_legend().get_window_extent()
    assert frame.x0 >= 0
    assert frame.x1 <= axis.figure.bbox.width


def test_several_observations():
    axis = drawn(plots.log_k_distributions(LOG_K, LABELS, observed=[-1.0, 0.5, 2.0], axis=blank()))
    assert "3 observations" in legend(axis)
    lines = [found.get_xdata()[0] for found in axis.get_lines()]
    np.testing.assert_array_equal(lines, [-1.0, 0.5, 2.0])
    none = drawn(plots.log_k_distributions(LOG_K, LABELS, observed=[], axis=blank()))
    assert len(none.get_lines()) == 0


@pytest.mark.parametrize(("observed", "marker"), [(600.0, ">"), (-np.inf, "<")])
def test_an_observation_far_out_leaves_the_histograms_visible(observed, marker):
    near = drawn(plots.log_k_distributions(LOG_K, LABELS, axis=blank())).get_xlim()
    axis = drawn(plots.log_k_distributions(LOG_K, LABELS, observed=observed, axis=blank()))
    assert np.ptp(axis.get_xlim()) < 2.5 * np.ptp(near)
    vertical, arrow = axis.get_lines()
    assert arrow.get_marker() == marker
    assert vertical.get_xdata()[0] == arrow.get_xdata()[0]
    assert f"observed: {observed:.2f}".replace("-", "−") in legend(axis)


def test_every_figure_takes_an_axis_and_returns_it():
    """So that any of them can be part of a figure of one's own."""
    calls = {
        "coverage": lambda axis: plots.coverage(RECORD, axis),
        "residuals": lambda axis: plots.residuals(RECORD, axis),
        "log_k": lambda axis: plots.log_k(LOG_K, LOG_K, axis),
        "log_k_distributions": lambda axis: plots.log_k_distributions(LOG_K, LABELS, axis=axis),
        "history": lambda axis: plots.history(HISTORY, axis),
        "roc": lambda axis: plots.roc(TEST, axis),
    }
    for call in calls.values():
        axis = blank()
        assert call(axis) is axis
    # Figures of several axes, or tested further on.
    elsewhere = {"validation", "answer", "network", "hypothesis_test", "forecast", "design", "rare_draws"}
    # A figure makes its own axis, or axes, if it is given none.
    figures = {
        name
        for name, function in inspect.getmembers(plots, inspect.isfunction)
        if function.__module__ == plots.__name__
        for argument in inspect.signature(function).parameters.values()
        if argument.name in {"axis", "axes"} and argument.default is None
    }
    assert figures == set(calls) | elsewhere


def test_a_figure_is_made_if_no_axis_is_given():
    from matplotlib import pyplot

    with pyplot.rc_context():
        pyplot.switch_backend("agg")
        before = pyplot.get_fignums()
        for axis in (
            plots.coverage(coverage(LOG_K, LABELS)),
            plots.residuals(coverage(LOG_K, LABELS)),
            plots.log_k(LOG_K, LOG_K),
            plots.log_k_distributions(LOG_K, LABELS),
            plots.history(HISTORY),
            plots.validation(Check(("a", "b"), np.stack([LOG_K] * 2, 1), LABELS, (RECORD,)))[0],
        ):
            assert axis.figure not in [pyplot.figure(number) for number in before]
            drawn(axis)
            pyplot.close(axis.figure)  # type: ignore[arg-type]
        assert pyplot.get_fignums() == before


def test_import_leaves_matplotlib_alone():
    code = "import sys, evidencenet.report.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bad_input():
    with pytest.raises(ValueError, match="equal length, got shapes"):
        plots.log_k([1.0, 2.0], [1.0], blank())
    with pytest.raises(ValueError, match="two models, got"):
        plots.log_k_distributions(LOG_K, LABELS, ("one",), axis=blank())
    with pytest.raises(ValueError, match="all labels are 0"):
        plots.log_k_distributions([0.0, 1.0], [0, 0], axis=blank())


# --- Figures of the questions ----------------------------------------------------------------------------


RNG = np.random.default_rng(1)
NAMED_TEST = en.HypothesisTest.of(
    RNG.normal(size=900) - 0.5, RNG.normal(1, size=800) - 0.5, names=("no $", "yes")
)


def subplots(columns: int = 1) -> Any:
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots(1, columns)


def made(parameters: tuple[str, ...], shape: tuple[int, ...]) -> Forecast:
    edges = tuple(np.linspace(0, 1, size + 1) ** 2 for size in shape)
    value = RNG.random(shape)
    value.flat[0] = np.nan
    cells = Estimate(value, np.full(shape, 0.1))
    return Forecast(
        ("free", "zero"), float(np.log(20)), 100, Estimate(0.5, 0.1), parameters, edges, np.ones(shape), cells
    )


def test_hypothesis_test_draws_both_models_and_the_roc() -> None:
    axes = subplots(2)
    assert NAMED_TEST.plot(axes, observed=1.5) is axes
    axes[0].figure.canvas.draw()
    texts = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert texts == [r"drawn from no \$", "drawn from yes", "observed: 1.50"]
    line = axes[1].lines[0]
    roc = NAMED_TEST.roc()
    np.testing.assert_array_equal(line.get_xdata(), np.r_[0, roc.size, 1])
    np.testing.assert_array_equal(line.get_ydata(), np.r_[0, roc.power, 1])
    assert f"area {NAMED_TEST.auc}" in [text.get_text() for text in axes[1].get_legend().get_texts()]
    with pytest.raises(ValueError, match="draws on two axes, got 1"):
        NAMED_TEST.plot([subplots()])


def test_forecast_by_one_parameter() -> None:
    record = made(("slope_$1",), (4,))
    axis = record.plot(subplots())
    axis.figure.canvas.draw()
    assert axis.get_xlabel() == r"slope_\$1"
    points = axis.containers[0].lines[0]
    np.testing.assert_allclose(points.get_xdata(), (record.edges[0][1:] + record.edges[0][:-1]) / 2)
    np.testing.assert_array_equal(points.get_ydata(), record.probability.value)
    assert "20 : 1 for free" in axis.get_ylabel()


def test_forecast_by_two_parameters_is_a_map() -> None:
    record = made(("a", "b"), (4, 3))
    axis = record.plot(subplots())
    axis.figure.canvas.draw()
    shown = axis.collections[0].get_array()
    np.testing.assert_array_equal(
        np.ma.filled(shown, np.nan).reshape(3, 4), np.asarray(record.probability.value).T
    )
    for parameters, shape in (((), ()), (("a", "b", "c"), (2, 2, 2))):
        with pytest.raises(
            ValueError, match=rf"by {len(shape)} parameters cannot be drawn; wanted one or two"
        ):
            plots.forecast(made(parameters, shape))


@pytest.mark.parametrize("settings", [(10, 20, 30), ("day", "month", "year")])
def test_design_marks_what_was_wanted_and_the_answer(settings: tuple[Any, ...]) -> None:
    found = Estimate(np.array([0.5, 0.8, 0.95]), np.full(3, 0.02))
    record = Design(("free", "zero"), settings, 20.0, 0.9, found, 1000)
    axis = record.plot(subplots())
    axis.figure.canvas.draw()
    texts = [text.get_text() for text in axis.get_legend().get_texts()]
    assert "wanted: 0.9" in texts
    assert (f"answer: {record.answer}" in texts) == (record.answer is not None) == (settings[0] == 10)
    if settings[0] == "day":
        assert [label.get_text() for label in axis.get_xticklabels()] == list(settings)


def pair_of_axes():
    figure = Figure(figsize=(10, 4))
    FigureCanvasAgg(figure)
    return figure.subplots(1, 2)


def test_an_answer_draws_itself(three):
    answer = three.net.compare(np.asarray(three.fresh.x)[0])
    axes = pair_of_axes()
    assert answer.plot(axes) is axes
    drawn(axes[0])
    bars = [patch.get_width() for patch in axes[0].patches]
    assert bars == pytest.approx(answer.probabilities[list(answer.ranking)])
    labels = [text.get_text().splitlines() for text in axes[1].get_yticklabels()]
    order = [answer.names[k] for k in answer.ranking]
    assert labels[0] == [order[0], f"against {order[1]}"]
    assert len(labels) == 3
    # Bands are the validated ranges, in the same order.
    bands = [patch for patch in axes[1].patches if patch.get_width() > 0]
    best = answer.ranking
    validated = [answer.pair(a, b).range for i, a in enumerate(best) for b in best[i + 1 :]]
    for band, one in zip(bands[:3], validated, strict=True):
        assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((one.low, one.high))
    # Beyond the range there is an arrow from the bound, and no point.
    far = three.net.compare(100 * np.asarray(three.fresh.x)[-1])
    beyond = sum(not pair.in_range for pair in far.pairs)
    assert beyond > 0
    axes = far.plot(pair_of_axes())
    assert len(axes[1].texts) == beyond
    assert "extrapolates" in axes[0].get_xlabel() or far.lead.in_range
    with pytest.raises(ValueError, match="answer draws on two axes, got 1"):
        answer.plot([blank()])


def test_a_network_draws_itself(three):
    axes = pair_of_axes()
    assert three.net.plot(axes) is axes
    drawn(axes[0])
    assert axes[0].get_ylabel() == "held-out score [nats]"
    assert axes[1].get_xlabel().endswith("of order 1 against order 0")
    with pytest.raises(ValueError, match="network draws on two axes, got 1"):
        three.net.plot([blank()])
