"""`write_report`: one HTML page that holds the answer, the checks and how the network was made."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidencenet.comparison import Comparison
from evidencenet.data import kind_of
from evidencenet.estimator import EvidenceNetwork
from evidencenet.report_answer import pair, told
from evidencenet.report_making import making, training, worst
from evidencenet.validation import Validation
from evidencenet.wording import p_value, probability, typeset

# Controls, but for the ends of lines, and orders to write from right to left.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

Answers = Comparison | Sequence[Comparison] | Mapping[str, Comparison]


def write_report(
    path: str | os.PathLike[str],
    net: EvidenceNetwork,
    check: Validation | None = None,
    answer: Answers | None = None,
    *,
    title: str | None = None,
    made: Mapping[str, Any] | None = None,
) -> None:
    """Write one self-contained HTML page, to be read offline, on a telephone, or printed.

    Parameters
    ----------
    path
        The file; an existing one is replaced only when all is written.
    net
        The network.
    check
        What `validate` said of it; its sections are left out if None.
    answer
        What `net.compare` said of an observation; its sections are left out if None. For several
        observations a list, or a dict by their names.
    title
        Of the page; the names of the models by default.
    made
        What else is known of how the network was made, for the last section: for example
        ``{"Simulator": "version 3.1"}``. Each is shown as its `str`.

    Raises
    ------
    FileNotFoundError
        There is no folder to write the file to.

    Examples
    --------
    >>> write_report("report.html", net, check, net.compare(x_observed))  # doctest: +SKIP
    >>> write_report("both.html", net, check, {"June": june, "July": july})  # doctest: +SKIP
    """
    answers = _by_name(answer)
    _check_arguments(net, check, answers)
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}. Make it first.")
    if title is None:
        title = " against ".join(reversed(net.names)) if len(net.names) == 2 else ", ".join(net.names)
    page = _page(net, check, answers, title, made or {})
    partial_file = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        # A lone surrogate in a name cannot be encoded; the page is not lost for it.
        partial_file.write_text(page, encoding="utf-8", errors="replace", newline="\n")
        os.replace(partial_file, target)
    finally:
        partial_file.unlink(missing_ok=True)


def _harmless(value: Any) -> Any:
    """Put a mark for letters that would turn round, or cut off, the text that follows them."""
    # Figures, which are HTML already, have been cleaned.
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", value)


def _by_name(answer: Any) -> dict[str, Any]:
    """Return answers by the names of their observations; a single one has none."""
    if answer is None or (isinstance(answer, list | tuple) and not answer):
        return {}
    if isinstance(answer, Mapping):
        return {str(name): one for name, one in answer.items()}
    if isinstance(answer, list | tuple) and len(answer) > 1:
        return {f"observation {i}": one for i, one in enumerate(answer, 1)}
    return {"": answer[0] if isinstance(answer, list | tuple) else answer}


def _check_arguments(net: Any, check: Any, answers: Mapping[str, Any]) -> None:
    wanted: list[tuple[Any, Any]] = [(net, EvidenceNetwork), (check, Validation)]
    wanted += [(one, Comparison) for one in answers.values()]
    for value, kind in wanted:
        if value is None and kind is Validation:
            continue
        if not isinstance(value, kind):
            raise TypeError(
                f"write_report(path, net, check, answer) wanted an instance of {kind.__name__}, got "
                f"{kind_of(value)}. Without a check: write_report(path, net, answer=answer)."
            )
        if value.names != net.names:
            raise ValueError(
                f"the {kind.__name__} is about {value.names}, the network compares {net.names}; "
                "pass what was made with this network."
            )


def _page(
    net: EvidenceNetwork,
    check: Validation | None,
    answers: Mapping[str, Comparison],
    title: str,
    made: Mapping[str, Any],
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("evidencenet"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"probability": probability, "p_value": p_value, "typeset": typeset}
    return environment.get_template("report.html.jinja").render(
        title=title,
        net=net,
        check=check,
        answers=told(net, check, answers),
        pairs=[pair(net, check, answers, k) for k in range(1, len(net.names))],
        worst=None if check is None else worst(check),
        training=training(net),
        making=making(net, made),
    )
