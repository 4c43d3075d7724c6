import subprocess
import sys
from functools import partial
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from evidencenet.report import plots
from evidencenet.report.svg import inline_svg

LABELS = np.repeat([0, 1], 200)
LOG_K = 2 * (np.random.default_rng(1).normal(size=400) + 2 * LABELS) - 2


def figure(name="one", names=("flat", "trend"), title="A title", text="Words.", observed=1.0):
    draw = partial(plots.log_k_distributions, LOG_K, LABELS, names, observed)
    return inline_svg(draw, (4.0, 3.3), name=name, title=title, text=text)


def ids(svg):
    return [found.attrib["id"] for found in ElementTree.fromstring(svg).iter() if "id" in found.attrib]


def texts(svg):
    return ["".join(found.itertext()) for found in ElementTree.fromstring(svg).iter("text")]


def test_alternatives_and_size():
    root = ElementTree.fromstring(figure())
    assert root.tag == "svg"
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"] == "one-title one-desc"
    assert [(found.tag, found.attrib["id"], found.text) for found in list(root)[:2]] == [
        ("title", "one-title", "A title"),
        ("desc", "one-desc", "Words."),
    ]
    assert root.attrib["viewBox"] == "0 0 288 237.6"
    assert not {"width", "height"} & set(root.attrib)


def test_ids_are_unique_and_resolved():
    first, second = figure("one"), figure("two")
    both = ids(first) + ids(second)
    assert len(both) == len(set(both)) > 10
    for svg in (first, second):
        for found in ElementTree.fromstring(svg).iter():
            for key, value in found.attrib.items():
                if key == "href":
                    assert value[1:] in ids(svg)
                if "url(" in value:
                    assert value.split("url(#")[1].split(")")[0] in ids(svg)
    assert "clip-path" in first
    assert "<pattern" in first


def test_nothing_that_acts_on_the_page():
    svg = figure()
    tags = {found.tag for found in ElementTree.fromstring(svg).iter()}
    assert not tags & {"style", "metadata", "script"}
    assert "http" not in svg


def test_colours_follow_the_page():
    svg = figure()
    for colour in ("var(--blue, #0072b2)", "var(--orange, #e69f00)", "var(--ink, #000000)"):
        assert colour in svg
    assert "#000000" not in svg.replace("var(--ink, #000000)", "")
    assert "#ffffff" not in svg


def test_names_stay_as_they_are():
    names = ("<script>alert(1)</script>", '"&<b> $x$ #000000')
    svg = figure(names=names, title=names[0], text=names[1] + "\0")
    assert "<script" not in svg
    assert "<b>" not in svg
    assert 'drawn from "&<b> $x$ #000000' in texts(svg)
    assert "drawn from <script>alert…)</script>" in texts(svg)
    assert [part.text for part in list(ElementTree.fromstring(svg))[:2]] == [names[0], names[1] + " "]


def test_letters_that_the_font_lacks():
    assert "drawn from 模型" in texts(figure(names=("模型", "😀")))


def test_same_text_whatever_the_settings():
    expected = figure()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        assert figure() == expected
        assert dict(matplotlib.rcParams) == before
    assert figure(observed=2.0) != expected


def test_settings_are_restored_after_an_error():
    before = dict(matplotlib.rcParams)

    def fail(axis):
        raise RuntimeError("drawing failed")

    with pytest.raises(RuntimeError, match="drawing failed"):
        inline_svg(fail, (4.0, 3.0), name="a", title="b", text="c")
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_left_alone():
    code = """
import sys, numpy as np, evidencenet.report.page as r
assert not {"matplotlib", "jinja2"} & set(sys.modules), "imported too early"
from evidencenet.report.svg import inline_svg
inline_svg(lambda axis: axis.plot([1, 2]), (3, 3), name="a", title="b", text="c")
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
