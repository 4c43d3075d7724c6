"""Figures of the extensions: what they hold, and that they can be drawn."""

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import evidencenet as en
from evidencenet._common.estimate import Estimate
from evidencenet.questions.design import Design
from evidencenet.questions.forecast import Forecast
from evidencenet.report import plots

RNG = np.random.default_rng(1)
TEST = en.HypothesisTest.of(RNG.normal(size=900) - 0.5, RNG.normal(1, size=800) - 0.5, names=("no $", "yes"))


def blank(columns: int = 1) -> Any:
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
    axes = blank(2)
    assert TEST.plot(axes, observed=1.5) is axes
    axes[0].figure.canvas.draw()
    texts = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert texts == [r"drawn from no \$", "drawn from yes", "observed: 1.50"]
    line = axes[1].lines[0]
    roc = TEST.roc()
    np.testing.assert_array_equal(line.get_xdata(), np.r_[0, roc.size, 1])
    np.testing.assert_array_equal(line.get_ydata(), np.r_[0, roc.power, 1])
    assert f"area {TEST.auc}" in [text.get_text() for text in axes[1].get_legend().get_texts()]
    with pytest.raises(ValueError, match="draws on two axes, got 1"):
        TEST.plot([blank()])


def test_forecast_by_one_parameter() -> None:
    record = made(("slope_$1",), (4,))
    axis = record.plot(blank())
    axis.figure.canvas.draw()
    assert axis.get_xlabel() == r"slope_\$1"
    points = axis.containers[0].lines[0]
    np.testing.assert_allclose(points.get_xdata(), (record.edges[0][1:] + record.edges[0][:-1]) / 2)
    np.testing.assert_array_equal(points.get_ydata(), record.probability.value)
    assert "20 : 1 for free" in axis.get_ylabel()


def test_forecast_by_two_parameters_is_a_map() -> None:
    record = made(("a", "b"), (4, 3))
    axis = record.plot(blank())
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
    axis = record.plot(blank())
    axis.figure.canvas.draw()
    texts = [text.get_text() for text in axis.get_legend().get_texts()]
    assert "wanted: 0.9" in texts
    assert (f"answer: {record.answer}" in texts) == (record.answer is not None) == (settings[0] == 10)
    if settings[0] == "day":
        assert [label.get_text() for label in axis.get_xticklabels()] == list(settings)
