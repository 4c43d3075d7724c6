"""Numbers as a reader would write them: odds, bounds, probabilities, values with errors."""

import math
import re
from collections.abc import Sequence

# Jeffreys (1961), appendix B: grades of evidence by powers of √10.
_JEFFREYS = ("barely worth mentioning", "substantial", "strong", "very strong", "decisive")
# Kass & Raftery (1995), section 3.2: grades of 2 log K.
_KASS_RAFTERY = ((2.0, "not worth more than a bare mention"), (6.0, "positive"), (10.0, "strong"))
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Probabilities below this, or as near to 1, are written as powers of ten, or as more than 0.9999.
_TINY = 1e-4
# More decimals than this say nothing: the error of log K is hardly ever known to 1e-6.
_MOST_DECIMALS = 6


def odds(log_k: float) -> str:
    """Write the Bayes factor of a natural log K as odds.

    Examples
    --------
    >>> odds(0.0), odds(7.0), odds(1000.0)
    ('1 : 1', '1,100 : 1', '1.97 × 10⁴³⁴ : 1')
    """
    if math.isinf(log_k):
        return "1 : 0" if log_k > 0 else "0 : 1"
    return f"{_three_figures(log_k / math.log(10))} : 1"


def jeffreys(log_k: float) -> str:
    """Jeffreys' words for the strength of evidence, whichever model it favours.

    Examples
    --------
    >>> jeffreys(-2.0)
    'substantial evidence'
    """
    grade = int(min(4, abs(log_k) / (0.5 * math.log(10))))
    return f"{_JEFFREYS[grade]}{'' if grade == 0 else ' evidence'}"


def kass_raftery(log_k: float) -> str:
    """Kass and Raftery's words for the strength of evidence, whichever model it favours.

    Examples
    --------
    >>> kass_raftery(-2.0)
    'positive'
    """
    return next((words for most, words in _KASS_RAFTERY if 2 * abs(log_k) <= most), "very strong")


def bound(value: float, *, above: bool, decimals: int = 1) -> str:
    """Write a bound, rounded so that less is claimed.

    Examples
    --------
    >>> bound(9.28, above=True), bound(-1.08, above=False)
    ('> 9.2', '< -1.0')
    """
    # 1e-9 allows for rounding: 0.3 · 10 is less than 3 in binary.
    scaled = value * 10**decimals
    whole = math.floor(scaled + 1e-9) if above else math.ceil(scaled - 1e-9)
    return f"{'>' if above else '<'} {whole / 10**decimals + 0.0:.{decimals}f}"


def with_error(value: float, error: float) -> str:
    """Write a number with two figures of its error, and as many decimals of its own.

    Examples
    --------
    >>> with_error(1.23456, 0.0234)
    '1.235 ± 0.023'
    """
    if not math.isfinite(error):
        return f"{value:.3g} (no error: a single member)"
    decimals = _decimals_of(error)
    return f"{fixed(value, decimals)} ± {error:.{decimals}f}"


def fixed(value: float, decimals: int = 2) -> str:
    """Write a number with a fixed number of decimals, and zero without a sign.

    Examples
    --------
    >>> fixed(-0.001), fixed(-1.234)
    ('0.00', '-1.23')
    """
    # Adding 0.0 to a rounded −0.0 removes its sign.
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def probabilities(values: Sequence[float], errors: Sequence[float] | None = None) -> list[str]:
    """Write the probabilities of all models with the same number of decimals, so that they can be compared.

    Parameters
    ----------
    values
        They add up to 1.
    errors
        Their standard errors; None or NaN to leave them out.

    Examples
    --------
    >>> probabilities([0.25, 0.75]), probabilities([0.0909, 0.9091])
    (['0.250', '0.750'], ['0.091', '0.909'])
    >>> probabilities([0.2, 0.8], [0.004, 0.004])
    ['0.2000 ± 0.0040', '0.8000 ± 0.0040']
    >>> probabilities([2e-7, 1 - 2e-7])
    ['2 × 10⁻⁷', '> 0.9999']
    """
    given = [math.nan] * len(values) if errors is None else [float(error) for error in errors]
    shown = [error for error in given if math.isfinite(error) and error > _TINY / 10]
    usual = [min(p, 1 - p) for p in values if _TINY <= p <= 1 - _TINY]
    # Two figures of the smallest probability, or of the largest error.
    decimals = max([3, *(1 - math.floor(math.log10(p)) for p in usual)])
    if shown:
        decimals = max(3, _decimals_of(max(shown)))
    texts = []
    for p, error in zip(values, given, strict=True):
        if not _TINY <= p <= 1 - _TINY:
            texts.append(probability(p))
        elif math.isfinite(error) and shown:
            texts.append(f"{p:.{decimals}f} ± {error:.{decimals}f}")
        else:
            texts.append(f"{p:.{decimals}f}")
    return texts


def probability(p: float) -> str:
    """Write a single probability; one that rounds to 1 is written as a bound.

    Examples
    --------
    >>> probability(0.25), probability(1.0), probability(2e-7)
    ('0.25', '> 0.9999', '2 × 10⁻⁷')
    """
    if p > 1 - _TINY:
        return "> 0.9999"
    text = _three_figures(math.log10(p)) if p > 0 else "< 10⁻³⁰⁰"
    # Rounded to three figures, 0.9997 would be 1.
    return fraction(p) if text == "1" else text


def fraction(p: float) -> str:
    """Write a fraction with enough decimals to tell it from 0 and from 1.

    Examples
    --------
    >>> fraction(0.5), fraction(0.999912), fraction(1.0)
    ('0.500', '0.999912', '1')
    """
    least = min(p, 1 - p)
    if least <= 0:
        return f"{p:g}"
    return f"{p:.{min(max(3, 1 - math.floor(math.log10(least))), 12)}f}"


def p_value(p: float) -> str:
    """Write a p-value."""
    return _three_figures(math.log10(p)) if p > 0 else "0"


def typeset(text: str) -> str:
    """Replace the hyphen of a negative number by a minus sign, and let no line break within a number.

    Examples
    --------
    >>> typeset("-1.0")
    '−1.0'
    """
    # Only before a number: a hyphen in a word stays one.
    text = re.sub(r"(?<!\w)-(?=[\d.])", "−", text)
    for sign in "±×:>":
        text = text.replace(f" {sign} ", f"\N{NO-BREAK SPACE}{sign}\N{NO-BREAK SPACE}")
    return text


def _decimals_of(error: float) -> int:
    """Return the number of decimals that shows two figures of an error."""
    return min(max(1 - math.floor(math.log10(error)), 0), _MOST_DECIMALS) if error > 0 else 3


def _three_figures(log10: float) -> str:
    """Write a number given its decimal logarithm; the number itself may be too large for a float."""
    if -4 <= log10 < 6:
        return f"{float(f'{10**log10:.3g}'):,.10g}"
    power = math.floor(log10)
    mantissa = f"{10 ** (log10 - power):.3g}"
    if mantissa == "10":
        mantissa, power = "1", power + 1
    return f"{mantissa} × 10{str(power).translate(_RAISED)}"
