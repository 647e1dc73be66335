"""Locks as applications combine them, over the wire: several in one record, parents and their children.

In brackets: the tests of Waltz meant (LocksTest).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lockstep.protocol.errors import ErrorCode as E
from tests.broker.locks.asking import asks, batch, said
from tests.broker.wire import Client


@pytest.fixture
async def locked(client: Client) -> AsyncIterator[Client]:
    await client.create("t", lockstep_locks="true")
    yield client


async def lock(client: Client, hwm: int | None, **headers: str) -> int:
    """The offset of one locked record, or minus the error."""
    answer = await client.produce("t", batch(asks(hwm, **headers)))
    return -answer.error_code if answer.error_code else answer.base_offset


async def last_raised(client: Client, *names: str, kind: str = "write_lock") -> int:
    """The offset that raised one of these last, from a refusal; so nothing is appended."""
    answer = await client.produce("t", batch(asks(-1, **{kind: "\n".join(names)})))
    assert answer.error_code == E.POLICY_VIOLATION
    words = said(answer)
    assert (words["reason"], words["how"]) == ("LOCK", "exact")
    return int(words["conflict_offset"])


async def test_one_lock_of_each_kind(locked: Client) -> None:
    """[testSingleLock]: writes check and raise, reads check, appends raise."""
    for round_ in range(10):
        name, hwm = f"account/{round_}", 3 * round_ - 1
        assert await lock(locked, hwm, write_lock=name) == hwm + 1
        assert await last_raised(locked, name) == hwm + 1
        assert await lock(locked, hwm + 1, read_lock=name) == hwm + 2
        assert await last_raised(locked, name) == hwm + 1
        assert await lock(locked, None, append_lock=name) == hwm + 3
        assert await last_raised(locked, name, kind="read_lock") == hwm + 3


@pytest.mark.parametrize("kind", ["write_lock", "read_lock"])
async def test_several_locks_in_one_record(locked: Client, kind: str) -> None:
    """[testMultipleWriteLocks, testMultipleReadLocks]: each has its own mark; together the newest counts."""
    assert await lock(locked, -1, write_lock="account/1\npayment/1") == 0
    for names in (["account/1"], ["payment/1"], ["account/1", "payment/1"]):
        assert await last_raised(locked, *names, kind=kind) == 0
    assert await lock(locked, 0, write_lock="account/1") == 1
    assert await last_raised(locked, "account/1", kind=kind) == 1
    assert await last_raised(locked, "payment/1", kind=kind) == 0
    assert await lock(locked, 0, **{kind: "payment/1\naccount/1"}) == -E.POLICY_VIOLATION
    assert await lock(locked, 1, write_lock="payment/1") == 2
    assert await last_raised(locked, "account/1", kind=kind) == 1
    assert await last_raised(locked, "account/1", "payment/1", kind=kind) == 2
    assert await last_raised(locked, "payment/1", "account/1", kind=kind) == 2
    assert await lock(locked, 1, write_lock="account/1", read_lock="payment/1") == -E.POLICY_VIOLATION
    assert await lock(locked, 2, **{kind: "account/1\npayment/1"}) == 3


async def test_a_parent_and_its_children(locked: Client) -> None:
    """[testHierarchicalResourceScenario]: children change side by side; who takes the whole must have seen
    all of them, and ends what was computed from the whole before."""
    whole = {"write_lock": "parent\nchild"}
    change = {"read_lock": "parent", "append_lock": "child"}
    assert await lock(locked, -1, **whole) == 0
    assert await lock(locked, 0, **change) == 1
    assert await lock(locked, 0, **change) == 2, "one child's change is no conflict for another's"
    assert await lock(locked, 1, **whole) == -E.POLICY_VIOLATION
    assert await lock(locked, 2, **whole) == 3
    assert await lock(locked, 2, **change) == -E.POLICY_VIOLATION
    assert await lock(locked, 3, **change) == 4
