"""Names of models, columns and files: whatever is in them, no output has more lines or turns round."""

import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet._common.files import FileError
from evidencenet._common.harmless import harmless
from evidencenet._common.progress import Progress
from evidencenet.cli.session import show as show_in_terminal
from evidencenet.report.plots import model_text

# A line that looks like ours, an escape that clears the screen, and a mark that turns the text round.
NAMES = ("flat\nWarning: all is well", "\x1b[2Jtrend\r", "\u202ereversed\u2066")
FORBIDDEN = set("\x1b\r\u202e\u2066\x07")


def check_one_line(text: str, name: str) -> None:
    assert not FORBIDDEN & set(text)
    assert len(text.splitlines()) == 1
    assert harmless(name) in text


@pytest.mark.parametrize("case", ["small", "three"])
def test_answers_checks_and_networks(case: str, request: pytest.FixtureRequest) -> None:
    given: Case = request.getfixturevalue(case)
    count = len(given.net.names)
    net, x = replace(given.net, names=NAMES[:count]), np.asarray(given.fresh.x)
    # Texts must be the same as with names that are written out already.
    other = replace(net, names=tuple(map(harmless, net.names)))
    sims, other_sims = (given.fresh.with_fields(names=one.names) for one in (net, other))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = [(net, other), (sims, other_sims)]
        records += [(en.validate(net, sims), en.validate(other, other_sims))]
    records += [(net.compare(rows), other.compare(rows)) for rows in (x[0], x[:4], 50 * x[0])]
    for one, like in records:
        for show in (str, repr, lambda record: record._repr_html_().replace("\n", " ")):
            text = show(one)
            assert text == show(like)
            assert not FORBIDDEN & set(text)
            assert any(harmless(name) in text for name in net.names) or "Comparisons" in type(one).__name__
    if case == "three":
        with pytest.raises(ValueError, match="this network compares 3 models") as caught:
            net.log_bayes_factor(x[0])
        check_one_line(str(caught.value), NAMES[1])
    # The names themselves are unchanged where programs read them.
    assert net.compare(x[0]).to_dict()["names"] == list(net.names)


def test_terminal_progress_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("simulating", 10) as bar:
        bar.update(10, model=NAMES[0] + NAMES[1])
    check_one_line(capsys.readouterr().err.splitlines()[-1], NAMES[1])
    stream = io.StringIO()
    show_in_terminal(f"a {NAMES[1]}\nb", stream)
    assert stream.getvalue() == "a \\x1b[2Jtrend\\r\nb\n"
    check_one_line(model_text(NAMES[1], 1), NAMES[1])


def test_columns_and_files(tmp_path: Path) -> None:
    path = tmp_path / f"{NAMES[0]}.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(FileError) as caught:
        en.Simulations.read(path)
    check_one_line(str(caught.value), NAMES[0])
    arrays: dict[str, Any] = {NAMES[1]: np.zeros((4, 2)), "other": np.zeros((4, 2))}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(FileError, match="no data called 'x'") as caught:
        en.Simulations.read(tmp_path / "a.npz", keys="x")
    check_one_line(str(caught.value), NAMES[1])
    sims = en.Simulations({NAMES[1]: np.zeros((4, 2)), "b": np.zeros(4)}, [0, 0, 1, 1])
    check_one_line(repr(sims).splitlines()[0], NAMES[1])
