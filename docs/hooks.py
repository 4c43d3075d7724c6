"""Hooks of MkDocs: insert the help of each command, and check that pages load nothing from other hosts."""

import logging
import re
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.evidencenet")

_HELP = re.compile(r"<!-- help of ([a-z ]+) -->")
_MATHJAX = re.compile(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", re.DOTALL)
_ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the help of a command where a page has the comment for it."""
    return _HELP.sub(lambda found: f"```text\n{_help(found[1].split()[1:])}```", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Remove MathJax from notebooks: it comes from another host, and no page needs it."""
    return _MATHJAX.sub("", html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Warn of pages that load anything from another host."""
    for found in _ELSEWHERE.findall(output):
        log.warning("%s loads something from another host: %s", page.file.src_uri, found)
    return output


def on_post_build(config: Any, **_: Any) -> None:
    """Write the search index as a script too: pages that are opened from the disk need it."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    script = f"var __index = {index.read_text(encoding='utf-8')}"
    index.with_suffix(".js").write_text(script, encoding="utf-8")


def _help(command: list[str]) -> str:
    from typer.testing import CliRunner

    from evidencenet.cli import app

    result = CliRunner().invoke(app, [*command, "--help"], prog_name="evidencenet", terminal_width=100)
    if result.exit_code:
        raise RuntimeError(f"evidencenet {' '.join(command)} has no help: {result.output}")
    return result.stdout
