"""A kind's run as its command line asks for it, not begun; for tests."""

from __future__ import annotations

from typing import Any

from bench.runner import Measurement, parser_of


def made(kind: type[Measurement[Any, Any]], *words: str) -> Any:
    parser = parser_of(kind.command_word(), kind.__doc__, kind.options)
    run = kind(parser.parse_args(words))
    run.check(parser)
    return run
