"""The steps of the Raft core can be repeated."""

from __future__ import annotations

from bench.micro.raft import KEPT_ENTRIES, following_step, leading_step


def test_raft_steps_can_be_repeated_for_ever() -> None:
    lead, follow = leading_step(), following_step()
    count = KEPT_ENTRIES + 50
    assert [lead() for _ in range(count)] == list(range(2, count + 2))  # the first entry is the no-op
    assert [follow() for _ in range(count)] == list(range(count))
