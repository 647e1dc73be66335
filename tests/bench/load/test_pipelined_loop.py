"""Pipelined producers and fan-out against small servers: schedules, windows, and a broker that takes part for
real."""

from __future__ import annotations

import select
import socket
import struct
import time
from array import array
from pathlib import Path

import pytest

from bench.load.backlog import Reader
from bench.load.fan_out import fan_out
from bench.load.pipelined_loop import SPIN_NS, PipelinedProducer, pipelined_loop, shares
from bench.load.wire import ProduceTemplate, UnexpectedResponse, record_batch
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from tests.bench.load.serving import serving
from tests.bench.load.test_wire import fetch_response, produce_response


def _job(port: int, **words: object) -> dict[str, object]:
    return {
        "host": HOST,
        "port": port,
        "topic": "t",
        "record_bytes": 16,
        "partitions": 1,
        "records": 1,
        "producers": 1,
        "window": 1,
        "rate": 0,
        "warmup_s": 0.05,
        "seconds": 0.3,
        **words,
    }


def _good(correlation_id: int, number: int) -> list[bytes]:
    return [bytes(produce_response(b"t", correlation_id, [0]))]


def test_an_open_loop_keeps_its_rate_and_counts_what_a_pause_held_back(tmp_path: Path) -> None:
    def pausing(correlation_id: int, number: int) -> list[bytes]:
        if number == 20:
            time.sleep(0.2)
        return _good(correlation_id, number)

    with serving(pausing) as port:
        keep = tmp_path / "raw"
        result = pipelined_loop(_job(port, rate=100, seconds=0.5, keep=str(keep)))
    assert result["requests"] == pytest.approx(50, abs=1)
    # every 10 ms one was due in the pause, and each of them waited for what was left of it
    raw = array("q")
    raw.frombytes(keep.read_bytes())
    assert len(raw) == result["requests"]
    assert sum(each > 40_000_000 for each in raw) >= 10
    assert result["max_ms"] >= 190


def test_the_wait_for_what_is_due_is_not_rounded_up_and_leaves_the_broker_its_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    waits = select.select

    def noted(readers: list[int], writers: list[int], others: list[int], timeout_s: float) -> object:
        asked.append(timeout_s)
        return waits(readers, writers, others, timeout_s)

    monkeypatch.setattr("bench.load.pipelined_loop.select.select", noted)
    with serving(_good) as port:
        result = pipelined_loop(_job(port, rate=2000, producers=2, seconds=0.2, window=50))
    short = [each for each in asked if each < 0.001]
    assert len(short) > 5, "it sleeps below a millisecond, too"
    assert max(each for each in asked if each < 60) <= 0.001 + SPIN_NS / 1e9, "until what is due next"
    assert 0 <= result["late_p50_ms"] <= result["late_p99_ms"]


def test_a_rate_is_of_what_was_answered_in_time() -> None:
    def slow(correlation_id: int, number: int) -> list[bytes]:
        time.sleep(0.02)
        return _good(correlation_id, number)

    with serving(slow) as port:
        result = pipelined_loop(_job(port, rate=200, seconds=0.5, window=3))
    assert result["requests"] == pytest.approx(100, abs=2) and result["offered_per_s"] == 200
    assert result["requests_per_s"] < 60, "fifty a second are taken at most"
    assert result["max_ms"] > 500


def test_a_window_is_never_overdrawn_and_what_waits_is_sent_when_there_is_room() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rb") as stream:
        theirs.settimeout(5.0)

        def arrived() -> int:
            frame = stream.read(int.from_bytes(stream.read(4), "big"))
            return int(struct.unpack_from(">i", frame, 4)[0])

        producer = PipelinedProducer(ours, [ProduceTemplate("t", {0: b"batch"}, 1)], window=2)
        for number in range(5):
            producer.schedule(100 + number)
        assert [arrived(), arrived()] == [1, 2] and not producer.has_room
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        theirs.setblocking(True)
        answers = [_good(number, 0)[0] for number in (1, 2)]
        theirs.sendall(answers[0] + answers[1][:7])
        assert producer.receive() == [100]
        producer.send()
        assert arrived() == 3
        theirs.sendall(answers[1][7:])
        assert producer.receive() == [101]


def test_an_answer_to_another_request_is_refused() -> None:
    with (
        serving(lambda correlation_id, number: _good(correlation_id + (number == 3), number)) as port,
        pytest.raises(UnexpectedResponse, match="correlation id 4 instead of 3"),
    ):
        pipelined_loop(_job(port, window=2))


def test_fewer_connections_than_partitions_reach_all_of_them() -> None:
    with LockstepTarget({"log.flush": "os"}) as broker:
        with RawConnection(HOST, broker.port) as raw:
            raw.create_topic("t", partitions=3)
        result = pipelined_loop(_job(broker.port, partitions=3, producers=2, window=3, rate=300))
        with RawConnection(HOST, broker.port) as raw:
            ends = [raw.list_offset("t", -1, partition=index)["offset"] for index in range(3)]
    assert all(ends) and sum(ends) == result["total_records"]


def test_every_group_reads_all_that_is_written_meanwhile_and_commits_it() -> None:
    with LockstepTarget({"log.flush": "os"}) as broker:
        with RawConnection(HOST, broker.port) as raw:
            raw.create_topic("f")
        job = {"host": HOST, "port": broker.port, "topic": "f", "record_bytes": 1024, "records": 15}
        result = fan_out({**job, "window": 4, "groups": 3, "total_bytes": 1 << 20})
        with RawConnection(HOST, broker.port) as raw:
            end = raw.list_offset("f", -1)["offset"]
            committed = raw.call(
                "offset_fetch",
                8,
                groups=[{"group_id": "f-group-2", "topics": [{"name": "f", "partition_indexes": [0]}]}],
            )
    assert end == result["total_records"]
    assert result["bytes"] == pytest.approx(3 * (1 << 20), rel=0.05) and result["written_s"] > 0
    (partition,) = committed["groups"][0]["topics"][0]["partitions"]
    assert partition["committed_offset"] == end


def test_a_reader_reports_a_gap() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = Reader(ours, "t", 0)
        reader.send_fetch()
        batch = bytearray(record_batch(1, 8, 0))
        theirs.sendall(fetch_response(b"t", 1, 0, 2, bytes(batch)))
        assert reader.receive() == 2 and reader.offset == 1
        reader.send_fetch()
        struct.pack_into(">q", batch, 0, 5)
        theirs.sendall(fetch_response(b"t", 2, 0, 2, bytes(batch)))
        with pytest.raises(UnexpectedResponse, match="offset 5 where 1 was due"):
            reader.receive()


def test_every_partition_has_a_producer_where_there_are_enough_and_each_keeps_to_one_leader() -> None:
    assert shares(3, [9, 9]) == [(9, [0]), (9, [1]), (9, [0])]
    assert shares(2, [7, 8]) == [(7, [0]), (8, [1])]
    assert shares(1, [9] * 4) == [(9, [0, 1, 2, 3])]
    assert shares(3, [9] * 4) == [(9, [0, 3]), (9, [1]), (9, [2])]
    uneven = shares(5, [7, 7, 7, 7, 8, 9])
    assert uneven == [(7, [0, 2]), (8, [4]), (9, [5]), (7, [1, 3]), (8, [4])], "a leader with one partition"
    ports = [7, 8, 9] * 5 + [7]
    assert shares(1, ports) == [(7, list(range(0, 16, 3)))], "a third of them is one leader's"
    for producers in range(3, 16):
        found = shares(producers, ports)
        assert sorted(each for _, mine in found for each in mine) == list(range(16))
        assert all({ports[each] for each in mine} == {port} for port, mine in found)
