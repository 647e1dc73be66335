"""Which statements end a transaction, or outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from lockstep.player.target.guard import ForbiddenInApply, check_applied, forbidden_words
from tests.support.cases import each_case


@each_case(
    ("statement", "words"),
    [
        ("commit;", "COMMIT"),
        ("/* a */ Rollback", "ROLLBACK"),
        ("ROLLBACK TRANSACTION", "ROLLBACK"),
        ("SELECT 'it''s'; COMMIT", "COMMIT"),
        (r"SELECT E'it\'s'; COMMIT", "COMMIT"),
        ("SELECT $a$ x $a$; END", "END"),
        ("PREPARE   TRANSACTION 'x'", "PREPARE TRANSACTION"),
        ("RESET search_path", "RESET"),
        ("DISCARD ALL", "DISCARD"),
        ("SET ROLE other", "SET"),
        ("abort", "ABORT"),
        ("USE other", "USE"),
        ("ROLLBACK TO SAVEPOINT a", None),
        ("ROLLBACK TRANSACTION TO a", None),
        ("SET LOCAL lock_timeout = 5", None),
        ("SET CONSTRAINTS ALL DEFERRED", None),
        ("UPDATE a SET b = 1", None),
        ("UPDATE a\nSET b = '; COMMIT'", None),
        ("-- ; COMMIT\nSELECT 1", None),
        ("DO $$ BEGIN; COMMIT; END $$", None),
        ('SELECT "; COMMIT"', None),
        ("PREPARE p AS SELECT 1", None),
        ("SELECT begin_at, settle FROM users", None),
        ("commitments", None),
    ],
)
def test_which_statements_are_forbidden(statement: str, words: str | None) -> None:
    assert forbidden_words(statement) == words


async def test_what_may_be_returned() -> None:
    for fine in (None, [1], "text", iter([1])):
        check_applied(fine)

    async def waits() -> None: ...

    async def both() -> AsyncIterator[int]:
        yield 1

    for unapplied in (waits(), (one for one in [1]), both(), asyncio.get_running_loop().create_future()):
        with pytest.raises(TypeError, match="apply is a plain function"):
            check_applied(unapplied)


def test_the_error_has_the_reason() -> None:
    assert (
        str(ForbiddenInApply("COMMIT"))
        == "COMMIT: the transaction holds the mark as well, and ends after apply"
    )
