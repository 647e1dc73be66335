"""The texts of the pages: `bench/texts/NAME.txt`, with placeholders for the fields of a result.

Owns: the names of placeholders. `{facts}`, `{reservations}`, `{table}` (the ratios), `{written}` (what
reached the disk) and `{failed}` are computed from any comparison; `{result[...]}` is the result itself; other
names are given. An empty paragraph is left out. Links are written as for a page in docs/.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.figures import tables
from bench.settings import RECORD_BYTES

TEXTS: Final = Path(__file__).parent.parent / "texts"
_COMPUTED: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "facts": tables.facts,
    "reservations": tables.reservations,
    "table": lambda result: tables.table(result, "github"),
    "written": lambda result: tables.written_table(result, "github"),
    "failed": tables.failure_note,
    "record_bytes": lambda result: RECORD_BYTES,
}


class _Placeholders(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return _COMPUTED[name](self["result"])


def fill_text(name: str, result: dict[str, Any] | None = None, **given: Any) -> str:
    """The text of this name, its placeholders filled. KeyError for an unknown placeholder."""
    text = (TEXTS / f"{name}.txt").read_text().format_map(_Placeholders(given, result=result or {}))
    return tables.join_parts(part.strip("\n") for part in text.split("\n\n"))


def fill_line(name: str, line: str, **given: Any) -> str:
    """The line of a text that begins with this word and a colon, its placeholders filled."""
    lines = dict(each.split(": ", 1) for each in (TEXTS / f"{name}.txt").read_text().splitlines())
    return lines[line].format_map(given)
