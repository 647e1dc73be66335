"""A session of several nodes: leaders that are waited for, and that are lost."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.figures.ratios import SUBJECT
from bench.kinds.transactions import ONE, SPREAD, TransactionsSession
from bench.sessions.cluster import NodesSession
from bench.sessions.failures import RoundFailed
from bench.sessions.session import Session
from bench.settings import FLUSH, NODES_QUICK


class _Killed:
    """A cluster of which nothing is known but who was killed and who came back."""

    def __init__(self) -> None:
        self.nodes = {number: SimpleNamespace(port=number) for number in (1, 2, 3)}
        self.calls: list[tuple[str, int]] = []

    def kill9(self, node: int) -> None:
        self.calls.append(("kill", node))

    def restart(self, node: int) -> None:
        self.calls.append(("restart", node))

    def await_members(self, nodes: dict[int, object]) -> None:
        pass


@pytest.mark.parametrize("moved", [False, True])
def test_a_leader_that_led_no_more_was_not_lost_by_its_kill(
    moved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finished(self: NodesSession, child: object) -> dict[str, int]:
        lost_ns = time.monotonic_ns() + (-3_000_000_000 if moved else 1_000_000)
        return {"lost_ns": lost_ns, "acked_ns": lost_ns + 50_000_000, "attempts": 3, "acked": 7}

    monkeypatch.setattr(NodesSession, "_await_stable", lambda self, topic: None)
    monkeypatch.setattr(NodesSession, "leaders", lambda self, topic: [2])
    monkeypatch.setattr(NodesSession, "running_job", lambda self, *_, **__: nullcontext())
    monkeypatch.setattr(NodesSession, "finish_job", finished)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    lost = NodesSession(SUBJECT, "lockstep", (FLUSH,), (1,), NODES_QUICK, tmp_path)
    lost.cluster.close()
    cluster = _Killed()
    lost.cluster = cluster  # type: ignore[assignment]
    if moved:
        with pytest.raises(RoundFailed, match="node 2 led no more"):
            lost.lose_leader("t")
    else:
        assert 0.05 < lost.lose_leader("t")["first_ack_s"] < 10
    assert cluster.calls == [("kill", 2), ("restart", 2)]


@pytest.mark.parametrize(("groups", "asked"), [(ONE, 1), (SPREAD, 3)])
def test_different_leaders_are_waited_for_where_there_are_groups_for_them(
    tmp_path: Path, groups: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [[2, 3, 1, 1], [2, 1, 1, 1], [1, 1, 1, 1]]
    monkeypatch.setattr(Session, "topic", lambda self, policy, partitions: "t")
    monkeypatch.setattr(NodesSession, "leaders", lambda self, topic: answers.pop())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    session = TransactionsSession(SUBJECT, "lockstep", (groups,), NODES_QUICK, tmp_path, "512M")
    try:
        assert session.topic(FLUSH, 4) == "t"
    finally:
        session.close()
    assert len(answers) == 3 - asked
