import numpy as np
import pytest

from evidencenet._common import wording


@pytest.mark.parametrize(
    ("log_k", "expected"),
    [
        (0.0, "1 : 1"),
        (np.log(22.14), "22.1 : 1"),
        (np.log(0.5), "0.5 : 1"),
        (np.log(123_456), "123,000 : 1"),
        (np.log(9.999e5), "1,000,000 : 1"),
        (np.log(2e6), "2 × 10⁶ : 1"),
        (np.log(9.999e6), "1 × 10⁷ : 1"),
        (-20.0, "2.06 × 10⁻⁹ : 1"),
        (1000.0, "1.97 × 10⁴³⁴ : 1"),
    ],
)
def test_odds(log_k, expected):
    assert wording.odds(log_k) == expected


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.5, "0.5"),
        (0.9994, "0.999"),
        (0.95671, "0.957"),
        (1.0, "> 0.9999"),
        (0.0001, "0.0001"),
        (2e-7, "2 × 10⁻⁷"),
        (0.0, "< 10⁻³⁰⁰"),
    ],
)
def test_probability(p, expected):
    assert wording.probability(p) == expected


def test_p_value():
    assert [wording.p_value(p) for p in (1.0, 0.6057, 3.21e-9, 0.0)] == ["1", "0.606", "3.21 × 10⁻⁹", "0"]


def test_typeset():
    space = "\N{NO-BREAK SPACE}"
    assert wording.typeset("-1.5 ± 0.2") == f"−1.5{space}±{space}0.2"
    assert wording.typeset("2 × 10⁶ : 1") == f"2{space}×{space}10⁶{space}:{space}1"
    assert wording.typeset("-1 to -2") == "−1 to −2"
    assert wording.typeset("held-out (-3)") == "held-out (−3)"


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.5, "0.500"), (0.0471, "0.047"), (0.00016, "0.00016"), (0.99991, "0.999910"), (1.0, "1"), (0.0, "0")],
)
def test_fraction(p, expected):
    assert wording.fraction(p) == expected


@pytest.mark.parametrize(
    ("value", "above", "expected"),
    [
        (9.28, True, "> 9.2"),
        (-1.08, False, "< -1.0"),
        (0.3, True, "> 0.3"),
        (-0.04, False, "< 0.0"),
        (-0.04, True, "> -0.1"),
    ],
)
def test_bound_claims_no_more(value, above, expected):
    assert wording.bound(value, above=above) == expected


def test_bound_with_more_decimals():
    assert wording.bound(2.1715, above=True, decimals=2) == "> 2.17"
