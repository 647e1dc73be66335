"""Three nodes: order of sessions, what is compared with what, and the job that loses a leader."""

from __future__ import annotations

import struct
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.figures.ratios import ANY, BASELINE, SUBJECT, compare
from bench.load.backlog import fill
from bench.load.closed_loop import closed_loop
from bench.load.wire import record_batch
from bench.nodes3.command import Planned, plan_sessions
from bench.nodes3.goals import GOALS, RATIOS
from bench.page.document import page
from bench.sessions.cluster import NodesSession
from bench.sessions.commits import commits_by_topic
from bench.sessions.failures import RoundFailed
from bench.settings import FLUSH, NODES_QUICK, OS
from compat_tests.clusters import _broker_ids, free_ports
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from tests.bench.load.serving import Answer, serving
from tests.bench.load.test_wire import produce_response
from tests.bench.sessions import session


def test_sessions_alternate_and_mirror() -> None:
    plan = plan_sessions("lockstep", "kafka", (FLUSH, OS), (1, 3), 2)
    kafka = Planned(BASELINE, "kafka", (FLUSH, OS), (1, 3))
    ours = [Planned(SUBJECT, "lockstep", (policy,), (shape,)) for policy in (FLUSH, OS) for shape in (1, 3)]
    assert plan == [kafka, *ours, *ours[::-1], kafka]


def test_every_goal_has_its_ratio_and_groups_are_not_mixed() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    sessions = [
        session(
            BASELINE,
            ("latency16_1", FLUSH, {"requests_per_s": 100.0}, True),
            ("latency16_3", FLUSH, {"requests_per_s": 50.0}, True),
            ("loss_1", ANY, {"first_ack_s": 8.0}, True),
        ),
        session(
            SUBJECT,
            ("latency16_1", FLUSH, {"requests_per_s": 500.0}, True),
            ("latency16_3", FLUSH, {"requests_per_s": 150.0}, True),
            ("loss_1", ANY, {"first_ack_s": 0.8}, True),
        ),
    ]
    rows = {row["ratio"]: row for row in compare(sessions, [], GOALS, RATIOS)}
    assert (rows["latency16.rate.flush.g1"]["value"], rows["latency16.rate.flush.g1"]["met"]) == (5.0, True)
    assert (rows["latency16.rate.flush.g3"]["value"], rows["latency16.rate.flush.g3"]["met"]) == (3.0, False)
    assert rows["loss.g1"]["value"] == pytest.approx(0.1)
    assert rows["resume.g1"]["value"] == pytest.approx(0.8)
    assert "loss.g3" not in rows


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

    monkeypatch.setattr(NodesSession, "_await_settled", lambda self, topic: None)
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


def _job(ports: list[int], **words: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": 1, "topic": "t", "record_bytes": 16, "ports": ports, **words}


def test_each_producer_keeps_to_the_leader_of_its_partition() -> None:
    seen: dict[str, set[int]] = {"a": set(), "b": set()}

    def at(name: str) -> Answer:
        def answer(correlation_id: int, number: int) -> list[bytes]:
            seen[name].add(threading.get_ident())
            return [bytes(produce_response(b"t", correlation_id, [0]))]

        return answer

    with serving(at("a")) as first, serving(at("b")) as second:
        words = {"partitions": 2, "records": 1, "spread": "turns", "warmup_s": 0.0, "seconds": 0.1}
        closed_loop(_job([first, second], producers=6, **words))
    assert (len(seen["a"]), len(seen["b"])) == (3, 3)


def test_brokers_are_read_from_metadata() -> None:
    def broker(number: int, rack: bytes | None) -> bytes:
        tail = struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack
        return struct.pack(">ih4si", number, 4, b"host", 9092) + tail

    answer = struct.pack(">ii", 1, 2) + broker(7, None) + broker(2, b"r1") + b"more"
    assert _broker_ids(answer) == {2, 7}
    assert len(set(free_ports(20))) == 20


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


def test_the_page_has_a_section_of_each_kind() -> None:
    block = {
        "name": "latency16_1",
        "policy": FLUSH,
        "figures": {"requests_per_s": 100.0, "total_records": 1000},
        "proven": True,
        "writes": 1000,
        "device": {"flushes": 300, "write_bytes": 3_072_000},
        "broker_cpu_s": 0.1,
        "group_commits": 100,
        "flushes_per_replica_and_commit": 1.0,
    }
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    disk = {"device": "vda"}
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": disk, "file_system": "e"}
    shared = {
        "command": "python -m bench",
        "started": "2026-01-01T00:00:00Z",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**machine, "python": "3.11", "java": "17", "kafka": "4.3.1"},
        "failures": [],
    }
    nodes = {
        **shared,
        "kind": "nodes3",
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], GOALS, RATIOS),
        "sessions": sessions,
    }
    axes = {"batch": 32, "batch_rate": 10_000, "seconds": 2.0}
    store = {**shared, "kind": "logstore", "axes": axes, "stream_bytes_per_s": 87_000_000, "runs": []}
    text = page([store, nodes])
    assert text.index("## Three nodes") < text.index("## Seed 001's experiments")
    assert "MISSED" in text
    row = next(line for line in text.splitlines() if "| lockstep" in line and "latency16_1" in line)
    assert [cell.strip() for cell in row.split("|")[4:9]] == ["1,000", "0.300", "100", "1.00", "3.00"]
    with pytest.raises(ValueError, match="one result of each kind"):
        page([nodes, nodes])
