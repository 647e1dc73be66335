"""A backlog filled and read, members of groups: against a broker, and against small servers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.load.backlog import Reader, fill, read_backlog
from bench.load.members import rebalance
from bench.load.wire import UnexpectedResponse, record_batch
from lockstep.testing import RunningBroker, broker_in_thread
from tests.bench.load.serving import job, serving
from tests.bench.load.test_wire import fetch_response, produce_response

BATCHES = 100
RECORDS = 10
BATCH = {"topic": "t", "records": RECORDS, "record_bytes": 2000}


@pytest.fixture(scope="module")
def backlog() -> Iterator[tuple[RunningBroker, int]]:
    """A broker with a topic that is not in memory any more, and the size of its batches."""
    with broker_in_thread(lockstep_tail_cache_bytes="8192") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for done in admin.create_topics([NewTopic("t", 1, 1)]).values():
            done.result(10)
        wanted = BATCHES * RECORDS * 2000
        filled = fill({"host": "localhost", "port": broker.port, "total_bytes": wanted, "window": 4, **BATCH})
        yield broker, filled["bytes"] // filled["requests"]


def test_a_backlog_is_read_once_or_for_a_while(backlog: tuple[RunningBroker, int]) -> None:
    words = {"host": "localhost", "port": backlog[0].port, **BATCH}
    once = read_backlog(words)
    assert once["passes"] == 1 and once["records"] >= (BATCHES - 1) * RECORDS
    often = read_backlog({**words, "seconds": 0.4})
    assert often["passes"] > 2 and often["seconds"] == pytest.approx(0.4, abs=0.3)
    assert (often["passes"] - 1) * once["bytes"] <= often["bytes"] <= often["passes"] * once["bytes"]
    assert read_backlog({**words, "seconds": 0.0})["records"] == once["records"], "one pass is always whole"


def test_a_topic_that_is_not_there_ends_the_run(backlog: tuple[RunningBroker, int]) -> None:
    words = {"host": "localhost", "port": backlog[0].port, **BATCH, "topic": "no-such-topic"}
    with pytest.raises(UnexpectedResponse, match="error code 3"):
        read_backlog(words)


def test_fill_pipelines_and_checks_every_answer() -> None:
    held: list[bytes] = []

    def response(correlation_id: int, number: int) -> list[bytes]:
        held.append(bytes(produce_response(b"t", correlation_id, [0])))
        if len(held) < 3:
            return []
        pieces = b"".join(held)
        held.clear()
        return [pieces[:7], pieces[7:]]

    with serving(response) as port:
        wanted = 9 * len(record_batch(1, 16, 0)) - 1
        result = fill(job(port, window=3, total_bytes=wanted))
    assert result["total_requests"] == result["total_records"] == 9
    assert result["bytes"] == wanted + 1


def test_a_reader_that_checks_finds_a_batch_that_is_damaged() -> None:
    batch = bytearray(record_batch(1, 8, 0))
    batch[-3] ^= 1
    for check in (False, True):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            reader = Reader(ours, "t", 0, check)
            reader.send_fetch()
            theirs.sendall(fetch_response(b"t", 1, 0, 1, bytes(batch)))
            if check:
                with pytest.raises(UnexpectedResponse, match="checksum"):
                    reader.wait()
            else:
                assert reader.wait() == 1 and reader.offset == 1


def test_groups_settle_and_are_held(backlog: tuple[RunningBroker, int]) -> None:
    words = {"host": "localhost", "port": backlog[0].port, "topic": "t"}
    times = rebalance({**words, "group": "g", "members": 4, "heartbeat_s": 0.02, "rounds": 1})
    assert times.keys() == {"start_s", "join_s", "leave_s"} and all(each > 0 for each in times.values())
    job = json.dumps({"job": "hold_members", **words, "groups": 2, "members": 3})
    command = [sys.executable, "-m", "bench.load", job]
    done = subprocess.run(command, input="\n\n", capture_output=True, text=True, timeout=60, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [set(each) for each in said] == [{"connected"}, {"held", "seconds"}, {"held", "seconds"}]
    assert said[-1]["held"] == 6
