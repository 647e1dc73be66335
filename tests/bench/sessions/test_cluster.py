"""A session of several nodes: leaders that are waited for, and that are lost."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.figures.ratios import SUBJECT
from bench.kinds.transactions import ONE, SPREAD, Planned, Transactions
from bench.load.backlog import fill
from bench.load.wire import record_batch
from bench.sessions.blocks import parse_producer_performance
from bench.sessions.cluster import NodesSession
from bench.sessions.commits import commits_by_topic
from bench.sessions.jobs import RoundFailed
from bench.sessions.session import Session
from bench.sessions.setup import GROUPS, Setup
from bench.settings import FLUSH, NODES_QUICK
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from tests.bench.kinds.results import made


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
    lost = NodesSession(SUBJECT, Setup("lockstep", settings={GROUPS: "1"}), NODES_QUICK, tmp_path)
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
    run = made(Transactions, "--quick", "--directory", str(tmp_path))
    session = run.session(Planned(SUBJECT, "lockstep", (groups,)))
    try:
        assert session.topic(FLUSH, 4) == "t"
    finally:
        session.close()
    assert len(answers) == 3 - asked


def test_group_commits_are_counted_per_topic() -> None:
    with LockstepTarget() as broker:
        for topic in ("one", "other"):
            with RawConnection(HOST, broker.port) as connection:
                connection.create_topic(topic)
        ports = {"host": HOST, "port": broker.port, "record_bytes": 16, "records": 1, "window": 1}
        size = len(record_batch(1, 16, 0))
        fill({**ports, "topic": "one", "total_bytes": 5 * size})
        fill({**ports, "topic": "other", "total_bytes": 3 * size})
        broker.stop()
        counted = commits_by_topic(broker.data_dir)
    assert (counted["one"], counted["other"], counted["none"]) == (5, 3, 0)


TOOL_OUTPUT = """\
133011 records sent, 26602.2 records/sec (25.98 MB/sec), 892.9 ms avg latency, 1137.0 ms max latency.
300000 records sent, 42140.750105 records/sec (41.15 MB/sec), 635.59 ms avg latency, 1021.00 ms max latency, \
630 ms 50th, 891 ms 95th, 1002 ms 99th, 1017 ms 99.9th.
200000 steady state records sent, 45207.956600 records/sec (44.15 MB/sec), 577.95 ms avg latency, \
777.00 ms max latency, 543 ms 50th, 729 ms 95th, 770 ms 99th, 774 ms 99.9th.
"""


def test_the_steady_state_of_the_load_tool_is_what_counts() -> None:
    figures = parse_producer_performance(TOOL_OUTPUT)
    assert figures["total_records"] == 300_000
    assert figures["records_per_s"] == pytest.approx(45207.9566)
    assert figures["mb_per_s"] == pytest.approx(45207.9566 * 1024 / 1e6, rel=1e-3)
    with pytest.raises(RoundFailed):
        parse_producer_performance(TOOL_OUTPUT.splitlines()[0])
