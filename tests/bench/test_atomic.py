"""Atomic appends measured: what is compared with what, where a topic's partitions are, one client's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.produce.v9.request import ProduceRequest as KioProduceRequest
from kio.serial import entity_reader

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.load.appends import atomic_appends, atomic_request
from bench.load.wire import WrongAnswer, record_batch
from bench.page.document import page
from bench.sessions.commits import commits_by_topic
from bench.settings import FLUSH, NODES_QUICK
from bench.transactions.atomic import GOALS, RATIOS, WIDTH, AtomicSession, main
from bench.transactions.command import ONE, SPREAD
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from lockstep.client import Client
from lockstep.transactions.log import AppendRefused
from protocol.compiler import encode
from tests.bench.sessions import session

Work = Callable[[str], dict[str, float]]


def test_every_goal_has_its_ratio_and_is_a_twentieth() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    sessions = [
        session(BASELINE, (f"atomic{WIDTH}_{ONE}", FLUSH, {"p50_ms": 40.0, "p99_ms": 100.0}, True)),
        session(SUBJECT, (f"atomic{WIDTH}_{ONE}", FLUSH, {"p50_ms": 2.0, "p99_ms": 10.0}, True)),
        session(BASELINE, (f"atomic{WIDTH}_{SPREAD}", FLUSH, {"p50_ms": 40.0}, True)),
        session(SUBJECT, (f"atomic{WIDTH}_{SPREAD}", FLUSH, {"p50_ms": 2.2}, True)),
    ]
    rows = {row["ratio"]: row for row in compare(sessions, [], GOALS, RATIOS)}
    assert (rows["atomic.p50.one"]["value"], rows["atomic.p50.one"]["met"]) == (pytest.approx(0.05), True)
    assert (rows["atomic.p50.spread"]["value"], rows["atomic.p50.spread"]["met"]) == (
        pytest.approx(0.055),
        False,
    )
    assert rows["atomic.p99.one"]["value"] == pytest.approx(0.1) and "goal" not in rows["atomic.p99.one"]


def test_an_unknown_requirement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--require", "atomic.p50.two<=1"])
    assert "atomic.p50.spread" in capsys.readouterr().err


def test_the_request_is_marked_and_otherwise_like_any() -> None:
    batch = record_batch(1, 10, 0)
    body = b"".join(encode(atomic_request("t", [batch, batch]), 9))
    unmarked = atomic_request("t", [batch, batch])
    unmarked.unknown_tags = {}
    plain = b"".join(encode(unmarked, 9))
    read, length = entity_reader(KioProduceRequest)(plain, 0)
    assert length == len(plain)
    assert [each.index for each in read.topic_data[0].partition_data] == [0, 1]
    assert body == plain[:-1] + b"\x01\x90\x4e\x00", "one tag, 10000 as a varint, empty"


def test_partitions_of_a_topic_are_in_one_group_in_lockstep_alone(tmp_path: Path) -> None:
    ours = AtomicSession(SUBJECT, "lockstep", (SPREAD,), NODES_QUICK, tmp_path, "512M")
    kafka = AtomicSession(BASELINE, "kafka", (ONE, SPREAD), NODES_QUICK, tmp_path, "512M")
    assert ours._topic_config(FLUSH) == {"lockstep.group": "1", "lockstep.locks": "true"}
    assert kafka._topic_config(FLUSH) == {"flush.messages": "1"}
    for each in (ours, kafka):
        each.close()


@pytest.mark.parametrize(("kind", "bare"), [("lockstep", ["bare10_one"]), ("kafka", [])])
def test_lockstep_is_measured_without_its_client_too(
    tmp_path: Path, kind: str, bare: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: dict[str, tuple[str, bool]] = {}

    def job(self: AtomicSession, name: str, bare: bool = False, **words: object) -> dict[str, float]:
        jobs[str(words["topic"])] = name, bare
        return {"total_transactions": 1, "total_records": 1, "p50_ms": 1.0, "p99_ms": 1.0}

    def measure(self: AtomicSession, name: str, policy: str, work: Work, **words: int) -> dict[str, Any]:
        return {"name": name, "figures": work(name)}

    monkeypatch.setattr(AtomicSession, "job", job)
    monkeypatch.setattr(AtomicSession, "measure", measure)
    session = AtomicSession(SUBJECT, kind, (ONE,), NODES_QUICK, tmp_path, "512M")
    try:
        session.blocks_of()
    finally:
        session.close()
    ours = "client_transactions" if kind == "kafka" else "atomic_appends"
    assert jobs == {"atomic10_one": (ours, False), **dict.fromkeys(bare, ("atomic_appends", True))}
    assert not any(name in ratio.figure for ratio in RATIOS.values() for name in bare)


@pytest.mark.parametrize(("bare", "problem"), [(False, AppendRefused), (True, WrongAnswer)])
def test_appends_are_timed_and_are_one_entry_each(
    tmp_path: Path, bare: bool, problem: type[Exception]
) -> None:
    with LockstepTarget({"lockstep.data.groups": "2"}, directory=tmp_path) as target:

        async def make(topic: str, configs: dict[str, str]) -> None:
            async with Client(target.bootstrap) as client:
                await client.create_topic(topic, partitions=3, configs=configs)

        asyncio.run(make("together", {"lockstep.group": "2", "lockstep.locks": "true"}))
        asyncio.run(make("apart", {"lockstep.locks": "true"}))
        job = {"bootstrap": target.bootstrap, "partitions": 3, "record_bytes": 100, "bare": bare}
        window = {"seconds": 0.3, "warmup_s": 0.1}
        result = atomic_appends({**job, **window, "topic": "together"})
        with pytest.raises(problem, match="one log group"):
            atomic_appends({**job, **window, "topic": "apart"})
        with RawConnection(HOST, target.port) as raw:
            ends = [raw.list_offset("together", -1, partition=index)["offset"] for index in range(3)]
        target.stop()
        commits = commits_by_topic(target.data_dir)
    assert result["total_transactions"] > 2
    assert ends == [result["total_transactions"]] * 3 and sum(ends) == result["total_records"]
    assert (commits["together"], commits["apart"]) == (result["total_transactions"], 0)
    assert 0 < result["p50_ms"] <= result["p99_ms"]


def test_the_page_tells_of_atomic_appends() -> None:
    block = {
        "name": f"atomic{WIDTH}_{ONE}",
        "policy": FLUSH,
        "figures": {"p50_ms": 5.0, "p99_ms": 9.0, "total_records": 1000},
        "proven": True,
        "writes": 100,
        "device": {"flushes": 300, "write_bytes": 3_072_000},
        "broker_cpu_s": 0.1,
        "group_commits": 100,
    }
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}
    result = {
        "command": "python -m bench atomic",
        "started": "2026-01-01T00:00:00Z",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**machine, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        "failures": [],
        "kind": "atomic",
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], GOALS, RATIOS),
        "sessions": sessions,
    }
    text = page([result])
    assert "## Atomic appends" in text
    row = next(line for line in text.splitlines() if "| lockstep" in line)
    assert [cell.strip() for cell in row.split("|")[1:-1]][:4] == ["atomic10_one", "lockstep", "5.00", "9.00"]
