"""What a report says of several observations, and of what only fresh draws confirm."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet._common.wording import with_error
from evidencenet.estimator.answer import log_k_text
from html_page import Page


@pytest.fixture(scope="module")
def check(small: Case) -> en.Validation:
    return en.validate(small.net, small.fresh)


@pytest.fixture(scope="module")
def answers(small: Case) -> dict[str, en.Comparison]:
    """One observation that speaks for each model, both within the range of the held-out draws."""
    x, log_k = np.asarray(small.fresh.x), small.net.log_bayes_factor(small.fresh.x)
    held = small.net.ranges[0]
    places = [np.argmin(np.abs(log_k - share * end)) for share, end in ((0.7, held.high), (0.7, held.low))]
    return {"June": small.net.compare(x[places[0]]), "July <b>": small.net.compare(x[places[1]])}


def written(folder: Path, *records: Any) -> str:
    en.write_report(folder / "report.html", *records)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_several_answers(
    small: Case, check: en.Validation, answers: dict[str, en.Comparison], tmp_path: Path
) -> None:
    net, (first, second) = small.net, small.net.names
    page = Page(written(tmp_path, net, check, answers))
    ids = page.ids()
    assert len(ids) == len(set(ids))
    assert {"answers", "answer-1", "answer-2"} <= set(ids)
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert links[:2] == ["#answer-1", "#answer-2"]
    words = page.words
    told = {name: words.split(f"Answer: {name} ")[1] for name in answers}
    assert told["June"].index(second) < told["June"].index(first)
    assert told["July <b>"].index(first) < told["July <b>"].index(second)
    assert f"as large as July <b>, at {answers['July <b>'].log_k:.2f}".replace("-", "−") in words
    assert "are not the product" in words
    assert "2 observations" in page.svg_texts
    june = answers["June"]
    assert "Answer: observation 2" in Page(written(tmp_path, net, check, list(answers.values()))).words
    # One in a list is as good as one by itself.
    assert written(tmp_path, net, check, [june]) == written(tmp_path, net, check, june)
    assert written(tmp_path, net, check, {}) == written(tmp_path, net, check)
    assert written(tmp_path, net, check, []) == written(tmp_path, net, check)
    assert "Answer: June" in Page(written(tmp_path, net, None, {"June": june})).words


def test_fresh_draws_settle_the_warning_and_show_the_number(
    small: Case, check: en.Validation, answers: dict[str, en.Comparison], tmp_path: Path
) -> None:
    net, (first, second) = small.net, small.net.names
    answer = answers["June"]
    assert isinstance(answer.log_k, float)
    assert isinstance(answer.error, float)
    held = replace(net.ranges[0], high=answer.log_k - 0.1)
    warning = f"{second} against {first}: log K {log_k_text(answer.log_k, float('nan'), held)}."
    lead = replace(answer.lead, range=held)
    narrow = replace(answer, range=held, lead=lead, warnings=(warning, "Something else."))
    alone = Page(written(tmp_path, net, None, narrow)).words
    checked = Page(written(tmp_path, net, check, narrow)).words
    assert f"Warning. {warning}" in alone
    assert f"Warning. {second} against" not in checked
    assert "Warning. Something else." in checked
    assert "reach farther" in checked
    assert with_error(answer.log_k, answer.error) in checked
    assert with_error(answer.log_k, answer.error) not in alone


def test_known_densities_leave_nothing_to_learn(tmp_path: Path) -> None:
    def normal(mean: float) -> en.Model:
        return en.Model(
            f"mean {mean:g}",
            lambda rng, n: rng.normal(mean, size=(n, 3)),
            log_density=lambda x: -0.5 * np.sum((x - mean) ** 2, axis=1) - 1.5 * np.log(2 * np.pi),
        )

    models = [normal(0.0), normal(1.0)]
    net = en.train(en.simulate(models, 2000, seed=1, progress=False), seed=2, progress=False)
    check = en.validate(net, en.simulate(models, 2000, seed=3, progress=False))
    page = Page(written(tmp_path, net, check, net.compare(np.full(3, 1.5))))
    words = page.words
    assert "training" not in page.ids()
    assert "It is exact, since the densities are known." in words
    assert "Known densitiesmean 0, mean 1 Trainingnone" in words
    # log K = Σ (x − ½) = 3
    assert "odds of 20.1 : 1" in words
    assert not {"nan", "inf"} & set(words.split())
    shown = Page(net._repr_html_()).words
    assert "known densitiesmean 0, mean 1" in shown
    assert "members" not in shown
