"""The tables of docs/scale.md and docs/scale-training.md, made of what `scale.py` measured."""

from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def tables(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the tables of each page, by the name that they have in its comments."""
    one = found["simulation"]
    pages = {
        "scale.md": {
            "rates": _rates(one["rates"]),
            "messages": _messages(one["messages"]),
            "store": _store(one["stores"], one["small_draws"]),
            "on paper": _on_paper(one["on_paper"]),
        }
    }
    if "training" in found:
        half = found["training"]
        pages["scale-training.md"] = {
            "memory": _memory(half["memory"]),
            "speed": _speed(half["speed"]),
            "fresh": _fresh(half["fresh"]),
        }
    return pages


def _table(head: str, *rows: str, column: str = "---:") -> str:
    """Put the rows of a table together. The columns after the first are numbers, unless `column` says so."""
    line = "|".join(["---", *[column] * (head.count("|") - 2)])
    return "\n".join([head, f"|{line}|", *rows])


def _rates(rows: list[Any]) -> str:
    lines = []
    for row in rows:
        lines.append(
            f"| {row['kind']} | {row['workers']} | {row['waiting']:,.0f} | {row['busy']:,.0f} | "
            f"{row['gaussian']:,.0f} | {row['chunk_ms']:.2g} ms |"
        )
    return _table("| kind | workers | waiting | pure Python | NumPy | a chunk costs |", *lines)


def _messages(sent: dict[str, float]) -> str:
    return _table(
        "| for each chunk | |",
        f"| bytes of the task that travels to a worker | {sent['task_bytes']:,.0f} |",
        f"| bytes that come back for each draw of 100 numbers | {sent['result_bytes_a_draw']:.0f} |",
        f"| messages that a Dask scheduler receives | {sent['received_a_chunk']:.1f} |",
        f"| messages that it sends | {sent['sent_a_chunk']:.1f} |",
    )


def _store(sizes: dict[str, Any], small: dict[str, Any]) -> str:
    fast, slow = sizes["fast"], sizes["slow"]
    return _table(
        "| | |",
        f"| bytes a draw of 100 numbers in double precision | {fast['bytes_a_draw']:.0f} |",
        f"| files for {fast['draws']:,} such draws, in {fast['chunks']} chunks | {fast['files']} |",
        f"| files for each chunk of 64 MB | {fast['files_a_chunk']:.1f} |",
        f"| files for {small['draws']:,} draws of {small['numbers']} numbers, one call | "
        f"{small['files_of_one']} |",
        f"| the same, {small['parts']} jobs (`--part`) | {small['files_of_parts']} |",
        f"| the same, if 10% of the draws of one model fail | {small['files_of_parts_if_some_fail']} |",
        f"| files after {slow['writes']} writes of a slow simulator | {slow['files']} |",
        f"| time of one such write, with all that is put together | {sizes['ms_a_write']:.0f} ms |",
        f"| draws and store together | {sizes['write_mb_s']:.0f} MB/s |",
        f"| `en.status` of {fast['chunks']} chunks | {sizes['status_ms']:.1f} ms |",
    )


def _on_paper(paper: dict[str, float]) -> str:
    files = f"{paper['chunks']:,.0f} and {paper['files']:,.0f}"
    busy, gathered = 100 * paper["scheduler_busy"], paper["draws"] * paper["bytes_a_draw"] / 1e9
    total, second = paper["messages_of_one_scheduler"], paper["messages_a_second"]
    return _table(
        "| | an array of 1,000 jobs (`--part`) | one Dask scheduler (`executor=`) |",
        f"| time of the simulator | {paper['hours']:.0f} hours | {paper['hours']:.0f} hours |",
        f"| bytes of the store | {paper['store_tb']:.2f} TB | {paper['store_tb']:.2f} TB |",
        f"| chunks and files | {files}, and {paper['files_of_job_records']:,.0f} records of jobs | {files} |",
        f"| tasks | none | {paper['tasks_of_one_scheduler']:.1g}, {paper['tasks_a_second']:.0f} a second |",
        f"| messages of the scheduler | none | {total:.1g}, {second:.0f} a second |",
        f"| draws that go through it | none | {paper['sent_mb_a_second']:.0f} MB a second |",
        f"| the process that calls `simulate` is busy | – | {busy:.0f}% of the time |",
        f"| memory | that of a chunk, in each job | **{gathered:,.0f} GB in the process that calls "
        "`simulate`**, which gathers all draws |",
        column="---",
    )


def _memory(rows: list[dict[str, float]]) -> str:
    lines = [
        f"| {row['gigabytes']:g} | {row['draws']:,} | {row['train_seconds']:.0f} | {row['seconds']:.0f} | "
        f"{row['peak_megabytes']:,.0f} |"
        for row in rows
    ]
    return _table("| data, GB | draws trained on | training, s | all, s | peak of memory, MB |", *lines)


def _speed(rates: dict[str, dict[str, float]]) -> str:
    names = {"memory": "in memory", "store": "in a store", "fresh": "fresh"}
    lines = [
        f"| {names[name]} | {rate['draws_per_second']:,.0f} | {100 * rate['part']:.0f}% |"
        for name, rate in rates.items()
    ]
    return _table("| draws | draws and members per second | part of memory |", *lines)


def _fresh(found: dict[str, float]) -> str:
    return _table(
        "| fresh draws | RMSE of log10 K | stated error | seconds on the clock |",
        f"| {found['draws']:,.0f} | {found['rmse_log10_k']:.4f} | {found['stated']:.4f} | "
        f"{found['seconds']:.0f} |",
    )


def written(text: str, name: str, table: str) -> str:
    """Return the text of a page with another table between the comments that name it."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page has no place for {name!r}; wanted one line {begin} and one line {end}.")
    return f"{text[: text.index(begin)]}{begin}\n\n{table}\n\n{text[text.index(end) :]}"


def write(found: dict[str, Any], docs: Path = DOCS) -> None:
    """Put the tables into the pages."""
    for page, parts in tables(found).items():
        text = (docs / page).read_text(encoding="utf-8")
        for name, table in parts.items():
            text = written(text, name, table)
        (docs / page).write_text(text, encoding="utf-8")
