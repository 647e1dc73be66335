"""The statements that an application may not use in apply: its transaction holds the mark, and ends
afterwards.

Owns: the words of SQL that end a transaction, or outlive it, and the error (savepoints are allowed); what an
application may not return, since it would be applied later, or never.
Does not: look into functions of a database. What gets past is found afterwards, by each store in its way.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import Final


class ForbiddenInApply(Exception):
    """An application tried to end the transaction that it was given, or to get around it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: the transaction holds the mark as well, and ends after apply")


_QUOTED: Final = re.compile(
    r"""[eE]'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*`
      | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$""",
    re.DOTALL | re.VERBOSE,
)
_FORBIDDEN: Final = re.compile(
    r"""(?:^|;)\s*
    ( COMMIT | END | ABORT | BEGIN | START | PREPARE\s+TRANSACTION
    | ROLLBACK (?! \s+ (?:(?:WORK|TRANSACTION)\s+)? TO\b )
    | SET (?! \s+ (?:LOCAL|CONSTRAINTS)\b ) | RESET | DISCARD | USE
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Begin or end a transaction, or outlive it in a connection that others use next. RELEASE and ROLLBACK TO are
about savepoints."""


@functools.lru_cache(maxsize=128)
def forbidden_words(statement: str) -> str | None:
    """Returns the first words of a statement in this text that an application may not use; empty for none."""
    found = _FORBIDDEN.search(_QUOTED.sub(" ", statement))
    return found and " ".join(found[1].upper().split())


def check_applied(returned: object) -> None:
    """Raises TypeError where `apply` has returned a coroutine or generator: it would never run, and the mark
    would move over what was not applied."""
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        if inspect.iscoroutine(returned):
            returned.close()  # or Python warns that it was never awaited
        kind = type(returned).__name__
        raise TypeError(f"apply is a plain function, it has returned a {kind}: nothing was applied")
