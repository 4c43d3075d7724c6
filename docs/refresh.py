"""Run the code of documentation pages, and write what it prints and draws into the pages.

    python docs/refresh.py docs/ten-minutes.md docs/how-to/many-models.md

Use it when the words or the numbers of the output have changed. Read the text around the output afterwards:
it may quote a number.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pages import figures, programs, run


def refresh(path: Path) -> int:
    """Run a page from top to bottom; replace its outputs and figures, and return how many outputs changed."""
    text = path.read_text(encoding="utf-8")
    changed = 0
    with tempfile.TemporaryDirectory() as folder:
        for shown, done in zip(programs(text), run(path, Path(folder)), strict=True):
            if shown.shown and shown.shown != done.printed:
                block = f"```python\n{shown.code}```\n\n```text\n"
                text = text.replace(f"{block}{shown.shown}```", f"{block}{done.printed}```")
                changed += 1
        for name in figures(text):
            shutil.copy(Path(folder) / name, path.parent / "figures" / name)
    path.write_text(text, encoding="utf-8")
    return changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="+", type=Path)
    for page in parser.parse_args().pages:
        print(f"{page}: {refresh(page)} outputs changed")
