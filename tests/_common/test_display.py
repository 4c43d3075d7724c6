"""Records outside the terminal: HTML, plain values, data frames."""

import json
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet._common.display import card, frame, plain
from evidencenet.questions.alpha import AlphaChoice, AlphaTrial
from evidencenet.training.search import Choice, Trial
from html_page import Page


def test_card_is_escaped_and_whole() -> None:
    hostile = '<script>alert("&")</script>'
    page = card(hostile, [(hostile, hostile), (hostile, "a < b")], marks=["pass", "fail"], notes=[hostile])
    found = Page(page)
    assert found.tags() == {"div", "strong", "table", "tr", "th", "td", "b", "p"}
    assert found.words.count(hostile) == 5
    assert "http" not in page
    # The text has the notebook's own colour, light or dark: only marks are coloured.
    assert page.replace("background:none", "").count("color:") == 2


def test_marks() -> None:
    page = card("t", [("a", "x"), ("b", "x"), ("c", "x")], marks=["pass", "warn", "fail"])
    assert [page.count(f">{mark}</b>") for mark in ("pass", "warn", "fail")] == [1, 1, 1]
    # A model may be called so.
    assert "</b>" not in card("t", [("pass a", "x"), ("fail", "x")])


def test_plain() -> None:
    values = {
        "numbers": np.array([1.0, np.inf, np.nan]),
        "flags": (np.bool_(True), False),
        "deep": [{"a": np.float32(0.5)}, None, "text", 3],
        "scalar": np.array(2.5),
    }
    found = plain(values)
    assert found == {
        "numbers": [1.0, None, None],
        "flags": [True, False],
        "deep": [{"a": 0.5}, None, "text", 3],
        "scalar": 2.5,
    }
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_frame_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install pandas.*to_dict\(\) gives the same numbers"):
        frame([{"a": 1}], "a")


@pytest.mark.parametrize("name", ["series", "three"])
def test_records_show_themselves(name: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(name)
    answer = case.net.compare(np.asarray(case.fresh.x)[0])
    check = en.validate(case.net, case.fresh)
    for record in (answer, check):
        words = Page(record._repr_html_()).words
        assert all(model in words for model in record.names[1:])
        assert "nan" not in words
        text = json.dumps(record.to_dict(), allow_nan=False)
        assert json.loads(text)["names"] == list(case.net.names)
    table = answer.to_dataframe()
    assert list(table.index) == list(case.net.names)
    np.testing.assert_array_equal(table["probability"], answer.probabilities)
    assert table["log_k"].iloc[0] == 0
    assert table["log_k"].iloc[-1] == answer.pair(len(case.net.names) - 1, 0).log_k
    assert answer.to_dataframe("pair").shape[0] == len(answer.pairs)
    checks = check.to_dataframe()
    assert list(checks.index) == [one.name for one in check.checks]
    assert set(checks["verdict"]) <= {"pass", "warn", "fail"}
    told = check.to_dict()
    assert told["passed"] == check.passed
    assert told["score"]["value"] == check.score.value
    assert len(told["ranges"]) == len(case.net.names) - 1


HOSTILE = "<script>alert(1)</script>"


def shown(record: Any) -> str:
    """The words of a record in a notebook; nothing in it acts, or needs a network."""
    page = Page(record._repr_html_())
    assert page.tags() <= {"div", "strong", "table", "tr", "th", "td", "b", "p"}
    assert "http" not in record._repr_html_()
    # No address in memory, which says nothing and is never the same.
    assert "0x" not in page.words
    return page.words


def test_models_show_themselves() -> None:
    def slopes(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.normal(size=n)

    model = en.Model(HOSTILE, prior=slopes, simulate=lambda rng, slope: slope[:, None])
    assert shown(model) == f"Model {HOSTILE} simulatea lambda priorslopes kindbatch: many draws in a call"
    assert "prior" not in shown(en.Model("flat", partial(slopes, n=1), kind="one"))


def test_simulations_show_themselves() -> None:
    x = np.zeros((6, 3))
    sims = en.Simulations(x, [0, 0, 0, 1, 1, 1], names=("flat", HOSTILE), failed=(0, 1))
    words = shown(sims)
    assert "6 draws of 2 models" in words
    assert f"{HOSTILE}3 draws, and 1 that failed (0.25 of all)" in words
    assert f"flat3 draws {HOSTILE}" in words
    weighted = en.Simulations(x, sims.model, log_weight=[0.0, 0.0, -np.inf, 0.0, 0.0, 0.0])
    assert "M03 draws, worth 2 of equal weight" in shown(weighted)


@pytest.mark.parametrize("name", ["series", "three"])
def test_networks_show_themselves(name: str, request: pytest.FixtureRequest) -> None:
    net = request.getfixturevalue(name).net
    words = shown(net)
    assert all(model in words for model in net.names)
    assert f"trained on{net.history.draws:,} draws" in words
    assert words.count("validated range") == len(net.names) - 1
    assert f"{net.ranges[0].low:.2f} to {net.ranges[0].high:.2f} (natural log)" in words
    idle = int(np.sum(net.gain == 0))
    assert ("add nothing to the baseline" in words) == (idle > 0 and net.baseline is not None)
    one = replace(net, gain=np.array([0.0, *net.gain[1:]]), baseline=None)
    assert "say log K = 0" in shown(one)
    assert HOSTILE in shown(replace(net, names=(HOSTILE, *net.names[1:])))


def test_every_table_is_a_data_frame(series: Case) -> None:
    check = en.validate(series.net, series.fresh)
    bins = check.coverage.to_dataframe()
    assert len(bins) == len(check.coverage.count)
    assert bins["count"].sum() == len(series.fresh)
    np.testing.assert_array_equal(bins["observed"], check.coverage.observed)
    np.testing.assert_array_equal(bins[["from", "to"]], check.coverage.edges)

    history = series.net.history
    curves = history.to_dataframe()
    assert curves.shape == (history.score.size, 3)
    np.testing.assert_array_equal(curves.loc[1, "score"], history.score[1])
    np.testing.assert_array_equal(curves.loc[1, "epoch"], np.arange(history.score.shape[1]))

    choice = Choice((Trial("plain", 0.5, 1.0), Trial("guided", 0.4, 2.0)), "guided", 100)
    tried = choice.to_dataframe()
    assert list(tried.index) == ["plain", "guided"]
    assert list(tried["taken"]) == [False, True]
    assert list(tried["score"]) == [0.5, 0.4]

    trials = [
        AlphaTrial(
            alpha, score=score, error=0.1, spread=0.1, coverage=0.5, overfit=0, overfit_error=1, sound=True
        )
        for alpha, score in ((1.0, 0.5), (2.0, 0.4))
    ]
    powers = AlphaChoice(2.0, tuple(trials), 100)
    assert list(powers.to_dataframe().index) == [1.0, 2.0]
    assert list(powers.to_dataframe()["chosen"]) == [False, True]

    test = en.hypothesis_test(series.net, series.fresh)
    np.testing.assert_array_equal(test.to_dataframe()["power"], test.roc().power)


def test_records_are_short_where_there_is_no_html(series: Case) -> None:
    check = en.validate(series.net, series.fresh)
    for record in (check, check.coverage, series.net.compare(np.asarray(series.fresh.x)[0])):
        assert repr(record) == str(record)
        assert "array(" not in repr(record)
