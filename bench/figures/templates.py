"""The texts of the pages: `bench/texts/NAME.txt`, with places for what a result says.

Owns: what a place may name. `{facts}`, `{reservations}`, `{table}` (the ratios), `{written}` (what reached
the disk) and `{failed}` are made of any comparison; `{result[...]}` is the result itself; other
names are given. A paragraph that comes to nothing is left out. Links are written as for a page in docs/.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.figures import tables
from bench.settings import RECORD_BYTES

TEXTS: Final = Path(__file__).parent.parent / "texts"
_MADE: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "facts": tables.facts,
    "reservations": tables.reservations,
    "table": lambda result: tables.table(result, "github"),
    "written": lambda result: tables.written_table(result, "github"),
    "failed": tables.failure_note,
    "record_bytes": lambda result: RECORD_BYTES,
}


class _Places(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return _MADE[name](self["result"])


def fill_text(name: str, result: dict[str, Any] | None = None, **given: Any) -> str:
    """The text of this name, its places filled. KeyError for a place that nothing fills."""
    text = (TEXTS / f"{name}.txt").read_text().format_map(_Places(given, result=result or {}))
    return tables.join_parts(part.strip("\n") for part in text.split("\n\n"))


def fill_line(name: str, line: str, **given: Any) -> str:
    """The line of a text that begins with this word and a colon, its places filled."""
    lines = dict(each.split(": ", 1) for each in (TEXTS / f"{name}.txt").read_text().splitlines())
    return lines[line].format_map(given)
