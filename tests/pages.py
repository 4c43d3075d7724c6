"""Pages of the documentation: their code, what they show that it prints, and the commands they name."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import typer
from matplotlib import pyplot

from evidencenet.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# A block of Python with the output right under it, if any; a session of commands is not its output.
_PROGRAM = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(?!\$ )(.*?)^```)?", re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"^```(bash|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Program(NamedTuple):
    """A block of code, what the page says that it prints, and what it printed."""

    code: str
    shown: str
    printed: str = ""


def programs(page: str) -> list[Program]:
    """Find each block of Python and the output shown under it, empty if there is none."""
    return [Program(*found) for found in _PROGRAM.findall(page)]


def run(path: Path, folder: Path) -> list[Program]:
    """Run the code of a page from top to bottom, in a folder of its own."""
    found = programs(path.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "page"}
    done = []
    with matplotlib.rc_context({"backend": "agg"}), contextlib.chdir(folder):
        for program in found:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(program.code, str(path), "exec"), names)
            done.append(program._replace(printed=out.getvalue()))
        pyplot.close("all")
    return done


def words(text: str) -> list[str]:
    """Text without its numbers, which differ from machine to machine in their last figures."""
    return re.sub(r"[-−]?\d[\d,.]*(e-\d+)?", "#", text).split()


def figures(page: str) -> set[str]:
    """Names of the figures that a page shows."""
    return {Path(name).name for name in re.findall(r"!\[[^\]]*\]\((figures/[^)]*)\)", page)}


def links(page: str) -> list[str]:
    """Return other files that a page links to, or shows."""
    without_code = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", without_code)


def commands(page: str) -> list[list[str]]:
    """Each command of the blocks of shell, and of the sessions, where it follows a dollar, in words."""
    found: list[list[str]] = []
    for language, block in _SHELL.findall(page):
        lines = block.replace("\\\n", " ").splitlines()
        if language == "text":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        for line in lines:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            found.append([])
            for word in lexer:
                if set(word) <= set("|&;<>()"):
                    found.append([])
                else:
                    found[-1].append(word)
    return [command for command in found if command]


def fault(command: list[str]) -> str:
    """Say what is wrong with a command that this repository defines; empty if nothing is."""
    name, rest = command[0], command[1:]
    if name == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        return next((f"make has no target {word}" for word in rest if word not in targets), "")
    if name == "python" and rest and rest[0].endswith(".py"):
        return "" if (ROOT / rest[0]).is_file() else f"there is no {rest[0]}"
    if name != "evidencenet":
        return ""
    known: Any = typer.main.get_command(app)
    if rest and not rest[0].startswith("-"):
        known = known.commands.get(rest[0])
        if known is None:
            return f"evidencenet has no command {rest[0]}"
    allowed = {"--help", "-h", "--install-completion", "--show-completion"}
    allowed |= {option for item in known.params for option in (*item.opts, *item.secondary_opts)}
    unknown = [word for word in rest if word.startswith("--") and word.split("=")[0] not in allowed]
    return f"evidencenet {rest[0]} has no option {unknown[0]}" if unknown else ""
