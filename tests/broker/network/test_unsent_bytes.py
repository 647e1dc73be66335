"""The count of unsent bytes of all clients."""

from __future__ import annotations

from lockstep.broker.network.unsent_bytes import UnsentBytes


def test_starts_at_nothing() -> None:
    assert UnsentBytes().total == 0
