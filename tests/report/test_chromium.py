"""The report as a reader sees it, in a real browser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chromium
import evidencenet as en
from conftest import Case

HOSTILE = (
    "<script>document.title='owned'</script>",
    "\"onload=\"document.title='owned'\" ]]> --> </style><img src=x onerror=document.title='owned'>",
    "W" * 150,
    "\u202eturned round, 模型 نموذج 👩‍🔬",
)
# Where text or a figure stands out of the page to the right, what holds it does not scroll.
STICKING_OUT = """
[...document.querySelectorAll("main *, header *")].filter(element => {
    if (element.closest("svg") && element.tagName !== "svg") return false;
    for (let box = element; box; box = box.parentElement)
        if (getComputedStyle(box).overflowX === "auto") return false;
    return element.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5;
}).map(element => element.outerHTML.slice(0, 80))
"""
# Ratio of luminances of the text and what is behind it, as WCAG defines it; at least 4.5 can be read.
LOWEST_CONTRAST = """
(() => {
    const parts = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const behind = element => {
        for (let box = element; box; box = box.parentElement) {
            const colour = parts(getComputedStyle(box).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return light(colour);
        }
        return 1;
    };
    let lowest = 21;
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!own || ["STYLE", "SCRIPT", "title", "desc"].includes(element.tagName)) continue;
        const style = getComputedStyle(element);
        const text = light(parts(element.closest("svg") ? style.fill : style.color)), page = behind(element);
        lowest = Math.min(lowest, (Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05));
    }
    return lowest;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    program = chromium.found()
    if program is None:
        pytest.skip("no Chromium: tried " + ", ".join(chromium.NAMES))
    with chromium.Browser(program, tmp_path_factory.mktemp("profile")) as started:
        yield started


def records(case: Case) -> tuple[en.EvidenceNetwork, en.Validation, en.Comparison]:
    net = case.net
    return net, en.validate(net, case.fresh), net.compare(np.asarray(case.fresh.x)[-1])


def renamed_answer(answer: en.Comparison, names: tuple[str, ...]) -> en.Comparison:
    """The same answer with other names of the models."""
    other = dict(zip(answer.names, names, strict=True))
    pairs = [replace(p, model=other[p.model], against=other[p.against]) for p in answer.pairs]
    model, against = other[answer.model], other[answer.against]
    return replace(answer, names=names, model=model, against=against, pairs=tuple(pairs))


@pytest.fixture(scope="module")
def pages(small: Case, three: Case, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of all kinds, by name."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {name: folder / f"{name}.html" for name in ("two", "three", "bare", "hostile", "several")}
    net, check, answer = records(small)
    en.write_report(pages["two"], net, check, answer, made={"Seed": 2})
    en.write_report(pages["bare"], net)
    en.write_report(pages["three"], *records(three))
    far = net.compare(np.full(5, 40.0))
    en.write_report(pages["several"], net, check, {"near": answer, "far": far})
    names = HOSTILE[: len(three.net.names)]
    other_net, other_check, other_answer = records(three)
    renamed: Any = [
        replace(other_net, names=names),
        replace(other_check, names=names),
        renamed_answer(other_answer, names),
    ]
    answers = dict.fromkeys(HOSTILE, renamed[2])
    made = {HOSTILE[1]: HOSTILE[1]}
    en.write_report(pages["hostile"], renamed[0], renamed[1], answers, title=HOSTILE[0], made=made)
    return pages


@pytest.mark.parametrize("name", ["two", "three", "bare", "hostile", "several"])
def test_opens_without_complaint_and_alone(
    browser: chromium.Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    assert browser.complaints() == []
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.ask("document.title") != "owned"
    assert browser.ask("document.querySelectorAll('script, img, iframe, [onload], [onerror]').length") == 0
    # The browser has mended nothing: as many figures as were written, each with a name and a description.
    figures = pages[name].read_text(encoding="utf-8").count("<svg")
    assert browser.ask("document.querySelectorAll('figure > svg[role=img]').length") == figures >= 2
    said = "[...document.querySelectorAll('svg')].map(f => f.ariaLabelledByElements.map(e => e.textContent))"
    for title, text in browser.ask(said):
        assert len(title) > 10
        assert len(text) > 10


@pytest.mark.parametrize("name", ["two", "three", "bare", "hostile", "several"])
@pytest.mark.parametrize("width", [320, 360, 1000])
def test_fits_the_screen(browser: chromium.Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.open(pages[name], width=width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(STICKING_OUT) == []
    # A figure is as wide as the screen allows, and its letters are not too small to read.
    assert browser.ask("Math.min(...[...document.querySelectorAll('svg')].map(f => f.clientWidth))") >= 240


def test_key_figures_are_on_the_page(browser: chromium.Browser, pages: dict[str, Path], small: Case) -> None:
    _, check, answer = records(small)
    browser.open(pages["two"])
    words = " ".join(browser.ask("document.body.innerText").split())
    assert answer.in_range
    assert f"{answer.log_k:.2f}".replace("-", "−")[:-1] in words
    assert f"{check.score.value:.4f} ± {check.score.error:.4f}" in words
    assert all(one.name in words for one in check.checks)
    assert "Seed 2" in words
    for p in answer.probabilities:
        assert f"{p:.3f}"[:4] in words
    headings = browser.ask("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert headings[0] == "Answer"


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(browser: chromium.Browser, pages: dict[str, Path], dark: bool) -> None:
    browser.open(pages["two"], dark=dark)
    page = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert page == ("rgb(18, 22, 27)" if dark else "rgb(246, 247, 249)")
    assert browser.ask(LOWEST_CONTRAST) > 4.5


def test_contrast_is_really_looked_at(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["two"])
    browser.ask("document.querySelector('h2').style.color = '#cccccc'")
    assert browser.ask(LOWEST_CONTRAST) < 2


def test_an_overflow_is_noticed(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["two"], width=360)
    browser.ask("document.querySelector('h2').style.width = '500px'")
    assert len(browser.ask(STICKING_OUT)) >= 1


def test_complaints_and_requests_are_noticed(browser: chromium.Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<title>bad</title><img src=missing.png><script>undefined.x</script>")
    browser.open(page)
    assert len(browser.complaints()) == 2
    assert len(browser.requests()) == 2


def test_printed_light_even_from_a_dark_screen(
    browser: chromium.Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    browser.open(pages["two"], dark=True)
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.body).color") == "rgb(26, 31, 38)"
