import errno
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet import __version__
from evidencenet._common import atomic
from evidencenet._common.wording import typeset, with_error
from evidencenet.checks.check import Check
from evidencenet.estimator.answer import AnswerWarning
from evidencenet.estimator.train import train
from evidencenet.estimator.validate import validate
from evidencenet.report.page import write_report
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model
from evidencenet.training.recipe import Recipe
from html_page import Page

HOSTILE = ("<script>alert(1)</script>", '"&<b> onload="x" $x^2$ 模型\0', "</title></svg><img src=x>")


def shifted(name, shift):
    return Model(name, lambda rng, n: rng.normal(size=(n, 3)) + shift)


def trained(models):
    sims = simulate(models, 10_000, seed=1, progress=False)
    recipe = Recipe(epochs=2, batch=100)
    return train(sims, recipe=recipe, baseline=True, members=2, seed=2, progress=False)


@pytest.fixture(scope="module")
def two():
    models = [shifted("flat", 0.0), shifted("raised", 1.0)]
    net = trained(models)
    check = validate(net, simulate(models, 2000, seed=3, progress=False))
    return net, check, net.compare(np.full(3, 0.95))


@pytest.fixture(scope="module")
def three():
    models = [shifted("flat", 0.0), shifted("raised", 1.0), shifted("lowered", -1.0)]
    net = trained(models)
    check = validate(net, simulate(models, 3000, seed=3, progress=False))
    return net, check, net.compare(np.full(3, 0.95))


@pytest.fixture
def written(tmp_path):
    def write(*args, **options):
        path = tmp_path / "report.html"
        write_report(path, *args, **options)
        return path.read_text(encoding="utf-8")

    return write


def renamed(parts, names):
    net, check, answer = parts
    given = names[: len(net.names)]
    return [replace(net, names=given), replace(check, names=given), renamed_answer(answer, given)]


def with_range(answer, held, **changes):
    """The same answer of two models, with another validated range, and other numbers."""
    (pair,) = answer.pairs
    return replace(answer, pairs=(replace(pair, range=held, **changes),))


def renamed_answer(answer: en.Comparison, names: tuple[str, ...]) -> en.Comparison:
    """The same answer with other names of the models."""
    other = dict(zip(answer.names, names, strict=True))
    pairs = [replace(p, model=other[p.model], against=other[p.against]) for p in answer.pairs]
    model, against = other[answer.model], other[answer.against]
    return replace(answer, names=names, model=model, against=against, pairs=tuple(pairs))


@pytest.mark.parametrize("case", ["two", "three"])
@pytest.mark.parametrize("with_check", [False, True])
@pytest.mark.parametrize("with_answer", [False, True])
def test_page_is_whole_and_alone(case, with_check, with_answer, request, written):
    net, check, answer = request.getfixturevalue(case)
    text = written(net, check if with_check else None, answer if with_answer else None)
    page = Page(text)
    ids = page.ids()
    assert len(ids) == len(set(ids))
    assert ("answer" in ids, "check" in ids) == (with_answer, with_check)
    assert {"range", "training", "making"} <= set(ids)
    figures = len(net.names) + 2 * with_check
    assert sum(tag == "svg" for tag, _ in page.elements) == figures
    for tag, attrs in page.elements:
        for target in attrs.get("aria-labelledby", "").split():
            assert target in ids
        if tag == "svg":
            assert attrs["role"] == "img"
        assert not any(key.startswith("on") for key in attrs)
        assert attrs.get("href", "#").startswith("#")
    for target in re.findall(r"url\(#([^)]+)\)", text):
        assert target in ids
    assert not {"script", "link", "img", "iframe", "object"} & page.tags()
    assert "http" not in text
    assert "//" not in text
    assert "@import" not in text
    assert "nan" not in re.findall(r"\w+", page.words)


def test_answer_comes_first_in_words(two, written):
    net, check, answer = two
    page = Page(written(net, check, answer))
    words = page.words
    log_k, error = answer.log_k, answer.error
    assert log_k > 1.2
    assert answer.in_range
    decimals = int(1 - np.floor(np.log10(error)))
    assert f"{log_k:.{decimals}f} ± {error:.{decimals}f}" in words
    decimals = int(1 - np.floor(np.log10(error / np.log(10))))
    assert f"log10 K = {log_k / np.log(10):.{decimals}f} ± {error / np.log(10):.{decimals}f}" in words
    assert f"The observation favours raised over flat, with odds of {np.exp(log_k):.3g} : 1:" in words
    assert f"the odds are {np.exp(log_k - error):.3g} : 1 to {np.exp(log_k + error):.3g} : 1" in words
    for p, novelty in zip(answer.probabilities, answer.novelty, strict=True):
        assert f"{p:.3f}"[:4] in words
        assert f"p = {novelty:.3g}" in words
    assert "by Jeffreys" in words
    assert "by Kass & Raftery" in words
    order = [
        words.index(part) for part in ("favours", "Checks", "Validated range", "How training went", "made")
    ]
    assert order == sorted(order)


def test_check(two, written):
    net, check, _ = two
    page = Page(written(net, check))
    words = page.words
    assert check.passed
    quiet = sum(one.verdict == "pass" for one in check.checks)
    assert f"Checks passed {quiet} of 10 without a warning" in words
    marks = [attrs["class"] for tag, attrs in page.elements if "verdict" in attrs.get("class", "")]
    assert marks == [f"verdict {one.verdict}" for one in check.checks]
    for one in check.checks:
        assert one.name in words
        assert " ".join(typeset(one.finding).split()) in words
    assert f"{check.score.gain:.3f} ± {check.score.gain_error:.3f} nats of at most 0.693" in words
    assert f"Log score {check.score.value:.4f} ± {check.score.error:.4f} nats" in words
    low, high = (f"{end:.2f}".replace("-", "−") for end in (check.range.low, check.range.high))
    assert f"{low} to {high} (natural log; 1,000 + 1,000 draws)" in words
    assert "do not match" not in words
    assert "no better than chance" not in words
    assert "in at most 2% of cases" in words


def test_failed_check(two, written):
    net, check, _ = two
    failed = (Check("coverage", "fail", "p = 0.0001 <for> all.", "Do <this>."), *check.checks[1:])
    score = replace(check.score, gain=0.001, gain_error=0.001)
    page = Page(written(net, replace(check, checks=failed, score=score, weighted=((5, 3.0), (5, 3.0)))))
    assert "Checks failed" in page.words
    assert "p = 0.0001 <for> all. Do <this>." in page.words.replace("all.Do", "all. Do")
    assert "this" not in page.tags()
    assert ("span", {"class": "verdict fail"}) in page.elements
    assert "The draws had weights" in page.words
    few = (replace(check.coverage, mean_residual=float("nan"), std_residual=float("nan")),)
    assert "too few draws" in Page(written(net, replace(check, coverages=few))).words


def test_warnings_and_what_is_beyond_the_range(two, written):
    net, _, answer = two
    assert answer.warnings == ()
    assert "the network says" not in Page(written(net, answer=answer)).words
    far = net.compare(np.full(3, 9.0))
    far = replace(far, warnings=(*far.warnings, AnswerWarning("novelty", "beware of <i>")))
    words = Page(written(net, answer=far)).words
    # Beyond the range, and farther out than all held-out draws.
    assert len(far.warnings) == 3
    assert all(f"Warning: {warning}" in words for warning in far.warnings)
    high = np.floor(10 * answer.range.high) / 10
    assert (
        f"> {high:.1f} (97.5% bound, beyond the validated range of 1,000 held-out draws; the network says "
        f"{float(far.log_k):.3g})" in words
    )
    assert f"The held-out draws validate odds of more than {np.exp(high):.3g} : 1:" in words
    assert "The odds carry no error: they are a bound" in words


def test_an_answer_that_nothing_confirms(two, written):
    net, check, answer = two
    empty = replace(answer.range, low=0.0, high=0.0, empty=True)
    vague = with_range(answer, empty)
    words = Page(written(net, answer=vague)).words
    assert "The network favours raised over flat, but the held-out draws cannot validate this" in words
    assert "not validated: the models overlap too little among 1,000 held-out draws" in words
    assert "Jeffreys" not in words
    # What fresh draws confirm is no longer in doubt.
    assert "The observation favours raised over flat" in Page(written(net, check, vague)).words


def test_fresh_draws_may_confirm_what_held_out_draws_cannot(two, written):
    net, check, answer = two
    held = replace(answer.range, high=answer.log_k - 0.1)
    narrow = with_range(answer, held)
    checked = Page(written(net, check, narrow)).words
    assert check.range.contains(answer.log_k)
    assert "beyond the validated range of the draws held out" in checked
    assert f"with odds of {np.exp(answer.log_k):.3g} : 1:" in checked
    reached = replace(check, log_k=np.minimum(check.log_k, held.high))
    assert "of the draws held out in training. The fresh" not in Page(written(net, reached, narrow)).words


def test_weak_and_uncertain_answers(two, written):
    net, _, answer = two

    def told(log_k, error):
        other = replace(answer, ranking=(0, 1))
        return Page(written(net, answer=with_range(other, answer.range, estimate=log_k, error=error))).words

    words = told(-0.3, 0.2)
    assert "hardly tells flat and raised apart: odds of 1.35 : 1 for flat are barely worth" in words
    assert "within two of its errors from 0: another training might favour raised" in words
    words = told(-1.5, float("nan"))
    assert "favours flat over raised" in words
    assert "within two of its errors" not in words
    assert "−1.5 (no error: a single member)" in words
    assert "The odds carry no error" in words


def test_a_failed_check_is_told_beside_the_answer(two, written):
    net, check, answer = two
    failed = replace(check, checks=(Check("coverage", "fail", "Found.", "Do this."), *check.checks[1:]))
    assert "the network failed its check: do not rely" in Page(written(net, failed, answer)).words
    assert "failed its check" not in Page(written(*two)).words


def test_where_the_observation_lies(two, written):
    net, check, answer = two
    words = Page(written(net, check, answer)).words
    log_k, label = check.log_k[:, 1], check.label
    above, below = np.sum(log_k[label == 0] >= answer.log_k), np.sum(log_k[label == 1] <= answer.log_k)
    assert f"Draws of flat with a log K as large as observed{above:,} of 1,000" in words
    assert f"Draws of raised with a log K as small as observed{below:,} of 1,000" in words
    held = net.held_out
    above = np.sum(held.log_k[held.label == 0, 1] >= answer.log_k)
    assert f"as large as observed{above} of 500 (" in Page(written(net, answer=answer)).words


def test_failed_draws_move_the_fresh_draws_with_the_observation(two, written):
    net, check, _ = two
    fails = replace(net, log_valid=np.log([1.0, 0.5]))
    answer = fails.compare(np.full(3, 0.95))
    words = Page(written(fails, check, answer)).words
    log_k = check.log_k[:, 1] + np.log(0.5)
    above = np.sum(log_k[check.label == 0] >= answer.log_k)
    assert 0 < above != np.sum(check.log_k[check.label == 0, 1] >= answer.log_k)
    assert f"as large as observed{above:,} of 1,000" in words
    assert f"{check.range.high + np.log(0.5):.2f} (natural log" in words
    assert "Failed drawsflat 0%, raised 50%" in words


def test_three_models(three, written):
    net, check, answer = three
    page = Page(written(net, check, answer))
    assert "The observation favours raised over flat" in page.words
    assert "Blind coverage of" in page.words
    assert "the worst" in page.words
    # The verdict on the whole, and one on the coverage of each model.
    assert page.words.split("All numbers")[0].count("passed") == 4
    assert {"log-k-1-title", "log-k-2-title"} <= set(page.ids())
    assert np.argmax(answer.probabilities) == 1
    order = [
        name for name in re.findall(r"flat|raised|lowered", page.words.split("ln K against flat")[1])[:3]
    ]
    assert order == ["raised", "flat", "lowered"]


def test_the_two_best_are_set_against_each_other(three, written):
    net, _, answer = three
    held = replace(answer.range, low=-9.0, high=9.0)
    numbers = [(5.0, 0.1), (3.0, 0.1), (-2.0, 0.5)]
    pairs = [
        replace(pair, estimate=log_k, error=error, range=held)
        for pair, (log_k, error) in zip(answer.pairs, numbers, strict=True)
    ]
    swapped = replace(answer, pairs=tuple(pairs), ranking=(1, 2, 0))
    words = Page(written(net, answer=swapped)).words
    assert f"favours raised over lowered, with odds of {np.exp(2.0):.3g} : 1" in words
    assert f"the odds are {np.exp(1.5):.3g} : 1 to {np.exp(2.5):.3g} : 1" in words


def test_how_it_was_made(two, written):
    net, *_ = two
    words = Page(written(net)).words
    for part in (
        "LPopExponential, alpha = 2.0, beta = 1.0",
        "Gaussians fitted to the draws of each model",
        "9,000 (flat 50%, raised 50%), in batches of 100",
        "1,000, for early stopping",
        "an array of (3,) numbers per draw",
        f"Trained withevidencenet {__version__}",
        f"numpy {np.__version__}",
        f"Seed{net.made['seed']} Recipeepochs = 2, batch = ",
    ):
        assert part in words
    for i, best in enumerate(net.history.best_epoch):
        assert f"{best} of 2 {net.history.score[i, best]:.5f}" in words


def test_what_the_caller_adds(two, written, monkeypatch):
    net, *_ = two
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    words = Page(written(net, made={"Analyst": 7, "Command <b>": "train & go"})).words
    assert "Analyst7 Command <b>train & go Page written by" in words
    assert "Date2023-11-14 (of this page)" in words
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert re.search(r"Date\d{4}-\d\d-\d\d \(of this page\)", Page(written(net)).words)


def test_where_the_error_comes_from(two, written):
    net, _, answer = two
    assert "learned by training on halves" in Page(written(net, answer=answer)).words
    words = Page(written(replace(net, errors=None), answer=answer)).words
    assert "the jackknife over the members, which misses what they share" in words
    assert "Its error is the standard error" not in words


def test_what_was_tried(two, written):
    from evidencenet.training.search import Choice, Trial

    net, *_ = two
    assert "What was tried" not in Page(written(net)).words
    choice = Choice((Trial("plain <b>", 0.5, 1.0), Trial("guided", 0.4, 2.0)), "guided", 1234)
    words = Page(written(replace(net, choice=choice))).words
    assert "plain <b> 0.500001.0 guided taken 0.400002.0" in words
    assert "Each was trained on 1,234 draws" in words


@pytest.mark.parametrize("case", ["two", "three"])
def test_hostile_names(case, request, written):
    parts = renamed(request.getfixturevalue(case), HOSTILE)
    plain = Page(written(*request.getfixturevalue(case)))
    page = Page(written(*parts, title="<i>Title</i> & more"))
    assert page.tags() == plain.tags()
    assert page.words.count("<i>Title</i> & more") == 2
    for name in parts[0].names:
        assert " ".join(name.replace("\0", r"\x00").split()) in page.words
    for name in HOSTILE[:2]:
        assert f"drawn from {name[:13]}…{name[-10:]}".replace("\0", r"\x00") in page.svg_texts


def test_no_name_turns_the_text_round(two, written):
    names = ("\u202eflat\u2066", "👩\u200d🔬 ]]> -->\x07")
    text = written(*renamed(two, names))
    assert not set("\u202e\u2066\x07") & set(text)
    words = Page(text).words
    assert r"\u202eflat\u2066" in words
    # What joins the parts of one sign is no order to anyone.
    assert r"👩‍🔬 ]]> -->\x07".replace("👩‍🔬", "👩\u200d🔬") in words


def test_same_page_every_time(two, written):
    assert written(*two) == written(*two)
    assert written(*two) != written(*two[:2])


def test_an_old_report_survives_a_failure(two, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_report(path, two[0])
    old = path.read_text(encoding="utf-8")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "_put", fail)
        with pytest.raises(OSError, match=r"cannot write .*report\.html: the disk is full"):
            write_report(path, *two)
    assert path.read_text(encoding="utf-8") == old
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_bad_input(two, three, tmp_path):
    net, _, answer = two
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing. Make it first"):
        write_report(tmp_path / "missing" / "report.html", net)
    with pytest.raises(
        TypeError, match=r"wanted an instance of Validation, got a Comparison. Without a check"
    ):
        write_report(tmp_path / "report.html", net, answer)
    with pytest.raises(TypeError, match="wanted an instance of EvidenceNetwork, got None"):
        write_report(tmp_path / "report.html", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="wanted an instance of Comparison, got a float"):
        write_report(tmp_path / "report.html", net, None, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the Comparison is about \('flat', 'raised', 'lowered'\)"):
        write_report(tmp_path / "report.html", net, None, {"a": answer, "b": three[2]})
    with pytest.raises(ValueError, match=r"the Validation is about \('flat', 'raised', 'lowered'\)"):
        write_report(tmp_path / "report.html", net, three[1])
    assert list(tmp_path.iterdir()) == []


def test_template_is_in_the_package():
    names = {found.name for found in files("evidencenet.report").joinpath("templates").iterdir()}
    assert {"report.html.jinja", "report.css"} <= names


# --- Several observations, and what only fresh draws confirm ---------------------------------------------


@pytest.fixture(scope="module")
def small_check(small: Case) -> en.Validation:
    return en.validate(small.net, small.fresh)


@pytest.fixture(scope="module")
def answers(small: Case) -> dict[str, en.Comparison]:
    """One observation that speaks for each model, both within the range of the held-out draws."""
    x, log_k = np.asarray(small.fresh.x), small.net.log_bayes_factor(small.fresh.x)
    held = small.net.ranges[0]
    places = [np.argmin(np.abs(log_k - share * end)) for share, end in ((0.7, held.high), (0.7, held.low))]
    return {"June": small.net.compare(x[places[0]]), "July <b>": small.net.compare(x[places[1]])}


def report_of(folder: Path, *records: Any) -> str:
    en.write_report(folder / "report.html", *records)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_several_answers(
    small: Case, small_check: en.Validation, answers: dict[str, en.Comparison], tmp_path: Path
) -> None:
    net, (first, second) = small.net, small.net.names
    page = Page(report_of(tmp_path, net, small_check, answers))
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
    assert (
        "Answer: observation 2" in Page(report_of(tmp_path, net, small_check, list(answers.values()))).words
    )
    # One in a list is as good as one by itself.
    assert report_of(tmp_path, net, small_check, [june]) == report_of(tmp_path, net, small_check, june)
    assert report_of(tmp_path, net, small_check, {}) == report_of(tmp_path, net, small_check)
    assert report_of(tmp_path, net, small_check, []) == report_of(tmp_path, net, small_check)
    assert "Answer: June" in Page(report_of(tmp_path, net, None, {"June": june})).words


def test_fresh_draws_settle_the_warning_and_show_the_number(
    small: Case, small_check: en.Validation, answers: dict[str, en.Comparison], tmp_path: Path
) -> None:
    net, second = small.net, small.net.names[1]
    answer = answers["June"]
    held = replace(net.ranges[0], high=answer.log_k - 0.1)
    narrow = with_range(answer, held)
    warning = f"{narrow.pairs[0]}."
    other = AnswerWarning("novelty", "Something else.")
    narrow = replace(narrow, warnings=(AnswerWarning("range", warning), other))
    alone = Page(report_of(tmp_path, net, None, narrow)).words
    checked = Page(report_of(tmp_path, net, small_check, narrow)).words
    assert f"Warning: {warning}" in alone
    assert f"Warning: {second} against" not in checked
    assert "Warning: Something else." in checked
    assert "of the draws held out in training. The fresh" in checked
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
    page = Page(report_of(tmp_path, net, check, net.compare(np.full(3, 1.5))))
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
