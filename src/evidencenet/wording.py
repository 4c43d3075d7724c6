"""Numbers as a reader would write them."""

import math

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def odds(log_k: float) -> str:
    """Write the Bayes factor of a natural log K as odds.

    Examples
    --------
    >>> odds(0.0), odds(7.0), odds(1000.0)
    ('1 : 1', '1,100 : 1', '1.97 × 10⁴³⁴ : 1')
    """
    return f"{_three_figures(log_k / math.log(10))} : 1"


def with_error(value: float, error: float) -> str:
    """Write a number with two figures of its error, and as many decimals of its own.

    Examples
    --------
    >>> with_error(1.23456, 0.0234)
    '1.235 ± 0.023'
    """
    if not math.isfinite(error):
        return f"{value:.3g} (no error: a single member)"
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 6) if error > 0 else 3
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def probability(p: float) -> str:
    """Write a model's probability; what rounds to certainty is marked as such.

    Examples
    --------
    >>> probability(0.25), probability(1.0), probability(2e-7)
    ('0.25', '> 0.9999', '2 × 10⁻⁷')
    """
    if p > 0.9999:
        return "> 0.9999"
    return _three_figures(math.log10(p)) if p > 0 else "< 10⁻³⁰⁰"


def p_value(p: float) -> str:
    """Write a p-value."""
    return _three_figures(math.log10(p)) if p > 0 else "0"


def typeset(text: str) -> str:
    """Give a number a minus sign for a hyphen, and spaces at which no line breaks.

    Examples
    --------
    >>> typeset("-1.0")
    '−1.0'
    """
    text = text.replace("-", "−")
    for sign in "±×:>":
        text = text.replace(f" {sign} ", f"\N{NO-BREAK SPACE}{sign}\N{NO-BREAK SPACE}")
    return text


def _three_figures(log10: float) -> str:
    """Write a number given its decimal logarithm, which may be far beyond what a float holds."""
    if -4 <= log10 < 6:
        return f"{float(f'{10**log10:.3g}'):,.10g}"
    power = math.floor(log10)
    mantissa = f"{10 ** (log10 - power):.3g}"
    if mantissa == "10":
        mantissa, power = "1", power + 1
    return f"{mantissa} × 10{str(power).translate(_RAISED)}"
