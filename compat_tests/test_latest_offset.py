"""ListOffsets of the end: it never goes back, whatever dies, and costs neither a flush nor an entry.

Spark takes a latest offset that is lower than one it knew for lost data, so what was told once must hold:
through a kill -9 and a new start of the only broker, and of three nodes through the death of the leader. The
brokers are the cases' own.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from compat_tests.own_targets import EACH_TARGET, FLUSHED, SOON_MISSED, kill_leader, own_target
from compat_tests.probe import HOST, free_port
from compat_tests.raw import ConnectionClosed, RawConnection, batch, raw_connection
from compat_tests.targets import LockstepTarget, Target

TOPIC = "written"
LATEST = -1
ASKED = 1000
DEATHS = 2
PAUSE_S = 0.7
DEADLINE_S = 60.0
AWAY = (ConnectionClosed, OSError, AssertionError, KeyError, IndexError, StopIteration)
"""What a connection by hand meets while a leader is dead."""


@pytest.fixture(params=EACH_TARGET)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Not the shared one. Kafka flushes each append, so that both promise the same."""
    with own_target(request.param, {**FLUSHED, **SOON_MISSED}) as running:
        yield running


class Told:
    """The ends that were told, by isolation level, in order; asked by a thread until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        self.ends: dict[int, list[int]] = {0: [], 1: []}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        home = 0
        while not self._stopped.is_set():
            home += 1
            with contextlib.suppress(*AWAY), raw_connection(self._bootstrap, 3.0, home=home) as raw:
                while not self._stopped.is_set():
                    for isolation, found in self.ends.items():
                        found.append(latest(raw, isolation))
                    time.sleep(0.002)
            time.sleep(0.02)

    def __enter__(self) -> Told:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(10.0)

    def went_back(self) -> list[tuple[int, int]]:
        """Neighbours of which the later one is lower."""
        return [
            (before, after)
            for found in self.ends.values()
            for before, after in itertools.pairwise(found)
            if after < before
        ]


def latest(raw: RawConnection, isolation: int = 0) -> int:
    """The end as the leader tells it; AssertionError where it does not."""
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    topics = [{"name": TOPIC, "partitions": [wanted]}]
    answer = raw.call("list_offsets", 7, replica_id=-1, isolation_level=isolation, topics=topics)
    (found,) = answer["topics"][0]["partitions"]
    assert found["error_code"] == 0, found
    return int(found["offset"])


def write(bootstrap: str, seconds: float) -> int:
    """One batch after the other for as long; how many records were acknowledged."""
    until, count, home = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        home += 1
        with contextlib.suppress(*AWAY), raw_connection(bootstrap, 5.0, home=home) as raw:
            while time.monotonic() < until:
                assert raw.produce(TOPIC, batch([b"a", b"b", b"c"]))["error_code"] == 0
                count += 3
    return count


@pytest.mark.case("ListOffsets", "the end never goes back, through kill -9 of the leader and its return")
def test_never_back(target: Target) -> None:
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic(TOPIC)
    acknowledged = 0
    writing = threading.Event()

    def writer() -> None:
        nonlocal acknowledged
        while not writing.is_set():
            acknowledged += write(target.bootstrap, 0.3)

    thread = threading.Thread(target=writer, daemon=True)
    with Told(target.bootstrap) as told:
        thread.start()
        for _ in range(DEATHS):
            time.sleep(PAUSE_S)
            kill_leader(target, TOPIC, PAUSE_S)
        deadline = time.monotonic() + DEADLINE_S
        before = len(told.ends[0])
        while len(told.ends[0]) < before + 20:
            assert time.monotonic() < deadline, "no end was told after the last death"
            time.sleep(0.05)
        writing.set()
        thread.join(DEADLINE_S)
        with raw_connection(target.bootstrap) as raw:
            end = latest(raw)
    assert told.went_back() == []
    assert 0 < acknowledged <= end
    assert max(told.ends[0]) <= end


@pytest.mark.case(
    "ListOffsets", "1000 questions: no entry in any log, no write to any file, so nothing to flush"
)
@pytest.mark.parametrize("target", ["lockstep"], ids=["on-lockstep"])
def test_costs_nothing(target: str) -> None:
    metrics = f"{HOST}:{free_port()}"
    made = LockstepTarget({"lockstep.metrics.listener": metrics})
    with made as broker, raw_connection(broker.bootstrap) as raw:
        raw.create_topic(TOPIC)
        assert raw.produce(TOPIC, batch([b"a"] * 100))["error_code"] == 0
        before = log_ends(metrics), quiet_files(broker)
        for _ in range(ASKED // 4):
            assert [latest(raw, isolation) for isolation in (0, 1)] == [100, 100]
            assert raw.list_offset(TOPIC, -2)["offset"] == 0
            assert raw.list_offset(TOPIC, 0)["offset"] == 0
        assert (log_ends(metrics), files(broker)) == before
        assert raw.produce(TOPIC, batch([b"a"]))["error_code"] == 0
        assert log_ends(metrics) != before[0], "a produce is seen in the logs"
        assert files(broker) != before[1], "and in the files"


def log_ends(metrics: str) -> dict[str, float]:
    """Newest and committed entry of each log group."""
    with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    names = ("lockstep_log_group_last_index", "lockstep_log_group_commit_index")
    found = {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith(names)}
    assert found, "the broker tells no log groups"
    return found


def files(broker: Target) -> dict[str, tuple[int, int]]:
    """Size and time of the last write of every file the broker keeps."""
    kept = [each for each in broker.data_dir.rglob("*") if each.is_file()]
    assert kept
    return {str(each): (each.stat().st_size, each.stat().st_mtime_ns) for each in kept}


def quiet_files(broker: Target) -> dict[str, tuple[int, int]]:
    """`files`, when what a start prepares (a spare segment) is done."""
    deadline = time.monotonic() + DEADLINE_S
    seen = files(broker)
    while True:
        time.sleep(1.0)
        now = files(broker)
        if now == seen:
            return now
        assert time.monotonic() < deadline, f"files still change after {DEADLINE_S} s"
        seen = now
