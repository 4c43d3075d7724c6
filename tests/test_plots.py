import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from evidencenet import plots
from evidencenet.coverage import coverage

LABELS = np.repeat([0, 1], 500)
LOG_K = 2 * (np.random.default_rng(1).normal(size=1000) + 2 * LABELS) - 2


@dataclass(frozen=True)
class Record:
    train_loss: np.ndarray
    score: np.ndarray
    best_epoch: np.ndarray


HISTORY = Record(
    train_loss=np.array([[3.0, 2.0, 1.5], [3.1, 2.2, np.nan]]),
    score=np.array([[0.6, 0.5, 0.55], [0.58, 0.57, np.nan]]),
    best_epoch=np.array([1, 1]),
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


def test_history():
    axis = drawn(plots.history(HISTORY, blank()))
    assert legend(axis) == ["training loss", "held-out score", "kept"]
    assert np.array_equal(line(axis, "kept").get_xydata(), [[2, 0.5], [2, 0.57]])
    assert np.array_equal(line(axis, "held-out score").get_ydata(), HISTORY.score[0])
    (right,) = (other for other in axis.figure.axes if other is not axis)
    assert len(right.get_lines()) == 2


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
        ):
            assert axis.figure not in [pyplot.figure(number) for number in before]
            drawn(axis)
            pyplot.close(axis.figure)  # type: ignore[arg-type]
        assert pyplot.get_fignums() == before


def test_import_leaves_matplotlib_alone():
    code = "import sys, evidencenet.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bad_input():
    with pytest.raises(ValueError, match="equal length, got shapes"):
        plots.log_k([1.0, 2.0], [1.0], blank())
    with pytest.raises(ValueError, match="two models, got"):
        plots.log_k_distributions(LOG_K, LABELS, ("one",), axis=blank())
    with pytest.raises(ValueError, match="all labels are 0"):
        plots.log_k_distributions([0.0, 1.0], [0, 0], axis=blank())
