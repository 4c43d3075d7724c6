"""Arguments: whole numbers, the seed, and messages for calls that do not fit a function."""

import difflib
import functools
import inspect
import numbers
import secrets
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from evidencenet._common.warnings import InputWarning

# Seeds that are drawn have at most nine digits: easy to copy, and two of a thousand agree once in 2,000.
_LARGEST_SEED = 10**9
Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


def whole(name: str, value: Any, least: int) -> int:
    """Return a whole number that is at least `least`; 1e5 is one too.

    Examples
    --------
    >>> whole("n", 1e5, 1)
    100000
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or value != value // 1:
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    number: Any = value
    return int(number)


def checked_seed(seed: Any, *, stacklevel: int = 3) -> int:
    """Return a seed; for None, draw one and say which in a warning `stacklevel` calls up."""
    if seed is None:
        seed = secrets.randbelow(_LARGEST_SEED)
        warnings.warn(
            f"seed=None: the seed {seed} was drawn. Give seed={seed} to get the same result again.",
            InputWarning,
            stacklevel=stacklevel,
        )
    if not isinstance(seed, numbers.Real):
        raise TypeError(
            f"seed must be a whole number, got {_short(seed)}; give the number itself, such as seed=1"
        )
    return whole("seed", seed, 0)


def explained(usage: str, hints: Mapping[str, str]) -> Callable[[Function], Function]:
    """Make calls with wrong arguments say what to write instead.

    Parameters
    ----------
    usage
        The usual call.
    hints
        What to write instead of arguments that people try: by name, or ``"*"`` for too many without a name.

    Examples
    --------
    >>> @explained("area(width, height)", {"w": "width=..."})
    ... def area(width, height):
    ...     return width * height
    >>> area(2, w=3)
    Traceback (most recent call last):
    TypeError: area has no argument 'w'; write width=... instead. The usual call is area(width, height).
    """

    def decorate(function: Function) -> Function:
        return _checking(function, function.__name__, usage, hints)

    return decorate


def explained_class(usage: str, hints: Mapping[str, str]) -> Callable[[Class], Class]:
    """Do the same as `explained` for the arguments of a class."""

    def decorate(kind: Class) -> Class:
        # Not setattr on an instance: classes can be changed, also if their instances are frozen.
        kind.__init__ = _checking(kind.__init__, kind.__name__, usage, hints)  # type: ignore[misc]
        return kind

    return decorate


def no_attribute(thing: Any, name: str, hints: Mapping[str, str]) -> str:
    """Say that something has no attribute of a name, and which one may be meant.

    Examples
    --------
    >>> no_attribute(1.5, "reel", {})
    "a float has no attribute 'reel'. Did you mean real?"
    """
    # Fields without a default are not attributes of the class.
    known = {*dir(type(thing)), *getattr(type(thing), "__dataclass_fields__", ())}
    public = sorted(one for one in known if not one.startswith("_"))
    close = [name.lower()] if name.lower() in public else difflib.get_close_matches(name, public, n=1)
    meant = hints.get(name.lower()) or (close[0] if close else "")
    kind = type(thing).__name__
    text = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind} has no attribute {name!r}"
    return f"{text}. Did you mean {meant}?" if meant else text


def _checking(function: Any, name: str, usage: str, hints: Mapping[str, str]) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checking(*args: Any, **options: Any) -> Any:
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            raise TypeError(_misfit(name, signature, args, options, usage, hints, error)) from None
        return function(*args, **options)

    return checking


def _misfit(
    name: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    usage: str,
    hints: Mapping[str, str],
    error: TypeError,
) -> str:
    """Say what is wrong with the arguments of a call."""
    end = f"The usual call is {usage}."
    parameters = [parameter for parameter in signature.parameters if parameter not in ("self", "cls")]
    unknown = [option for option in options if option not in parameters]
    if unknown:
        close = difflib.get_close_matches(unknown[0], parameters, n=1)
        advice = hints.get(unknown[0]) or (f"{close[0]}=..." if close else "")
        known = f"write {advice} instead" if advice else f"it has {', '.join(parameters)}"
        return f"{name} has no argument {unknown[0]!r}; {known}. {end}"
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(args) > sum(parameter.kind in kinds for parameter in signature.parameters.values()):
        advice = f" {hints['*']}" if "*" in hints else ""
        return f"{name} got too many arguments without a name.{advice} {end}"
    return f"{name}: {error}. {end}"


def _short(value: Any) -> str:
    """Show a value, or its type if that is long."""
    text = repr(value)
    return text if len(text) <= 30 and " at 0x" not in text.lower() else f"a {type(value).__name__}"
