"""Fetch, ListOffsets, OffsetForLeaderEpoch by hand: waiting, limits, sessions, special times, versions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection, batch, values_in
from compat_tests.targets import Target

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
UNKNOWN_LEADER_EPOCH = 75
UNKNOWN_TOPIC_ID = 100

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


@pytest.mark.case("Every version", "Fetch v{version}")
@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_versions(raw: RawConnection, unused_name: Callable[[], str], version: int) -> None:
    topic = unused_name()
    topic_id = raw.create_topic(topic)
    raw.produce(topic, batch([b"a", b"b"]))
    found = raw.fetch(topic, 0, api_version=version, topic_id=topic_id)
    assert (found["error_code"], found["high_watermark"], found["last_stable_offset"]) == (0, 2, 2)
    assert found.get("log_start_offset", 0) == 0
    assert values_in(found["records"]) == [(0, b"a"), (1, b"b")]


@pytest.mark.case("Every version", "ListOffsets v{version}")
@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_versions(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()
    stamp = int(time.time() * 1000) - 1000
    raw.produce(topic, batch([b"a", b"b", b"c"], timestamp_ms=stamp))
    for asked, offset in ((EARLIEST, 0), (LATEST, 3), (stamp + 1, 1)):
        found = raw.list_offset(topic, asked, api_version=version)
        assert (found["error_code"], found["offset"]) == (0, offset)
    assert found["timestamp"] == stamp + 1


@pytest.mark.case("Fetch on the wire", "refused: offset, topic, partition, topic id, leader epoch")
def test_fetch_refused(raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"a"]))
    assert raw.fetch(topic, 2)["error_code"] == OFFSET_OUT_OF_RANGE
    assert raw.fetch(topic, -5)["error_code"] == OFFSET_OUT_OF_RANGE
    assert raw.fetch(unused_name(), 0)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.fetch(topic, 0, partition=9)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.fetch(topic, 0, api_version=13, topic_id=uuid.uuid4())["error_code"] == UNKNOWN_TOPIC_ID
    assert raw.fetch(topic, 0, leader_epoch=1_000_000)["error_code"] == UNKNOWN_LEADER_EPOCH
    at_end = raw.fetch(topic, 1)
    assert (at_end["error_code"], values_in(at_end["records"])) == (0, [])


@pytest.mark.case("Fetch on the wire", "a batch larger than every limit comes whole (KIP-74)")
def test_at_least_one_batch(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    for n in range(3):
        raw.produce(topic, batch([bytes([65 + n]) * 5000]))
    found = raw.fetch(topic, 1, max_bytes=1, partition_max_bytes=1)
    assert values_in(found["records"]) == [(1, b"B" * 5000)]


@pytest.mark.case("Fetch on the wire", "partition and response limits are kept")
def test_fetch_limits(raw: RawConnection, target: Target, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, configs=target.together)
    for partition in (0, 1):
        for _ in range(10):
            raw.produce(topic, batch([b"x" * 1000]), partition=partition)
    found = raw.fetch(topic, 0, partition_max_bytes=3500)
    assert len(found["records"]) <= 3500
    assert [offset for offset, _ in values_in(found["records"])] == [0, 1, 2]
    both = _fetch_all(raw, topic, (0, 1), max_bytes=2500)
    sizes = [len(each["records"] or b"") for each in both]
    assert 0 < sum(sizes) <= 2500


def _fetch_all(
    raw: RawConnection, topic: str, partitions: tuple[int, ...], *, max_bytes: int
) -> list[Answer]:
    wanted = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for n in partitions]
    answer = raw.call(
        "fetch",
        12,
        max_wait=0,
        min_bytes=0,
        max_bytes=max_bytes,
        session_epoch=-1,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": wanted}],
    )
    return [part for each in answer["responses"] for part in each["partitions"]]


@pytest.mark.case("Fetch on the wire", "nothing to read: waits max.wait, then answers empty")
def test_wait_time(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    began = time.monotonic()
    found = raw.fetch(topic, 0, max_wait_ms=600, min_bytes=1)
    assert 0.55 < time.monotonic() - began < 20.0
    assert (found["error_code"], values_in(found["records"])) == (0, [])


@pytest.mark.case("Fetch on the wire", "less than min.bytes: waits, then answers with what there is")
def test_min_bytes(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"little"]))
    began = time.monotonic()
    found = raw.fetch(topic, 0, max_wait_ms=600, min_bytes=100_000)
    assert 0.55 < time.monotonic() - began < 20.0
    assert values_in(found["records"]) == [(0, b"little")]


@pytest.mark.case("Fetch on the wire", "a waiting fetch is answered as soon as min.bytes are there")
def test_wake_up(raw: RawConnection, raw_2: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    raw.send(
        "fetch",
        12,
        max_wait=25_000,
        min_bytes=150,
        max_bytes=1 << 20,
        session_epoch=-1,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": wanted}],
    )
    began = time.monotonic()
    raw_2.produce(topic, batch([b"too little"]))
    time.sleep(0.2)
    raw_2.produce(topic, batch([b"x" * 100]))
    ((found,),) = [each["partitions"] for each in raw.receive()["responses"]]
    assert 0.2 <= time.monotonic() - began < 20.0, "woken by the second write, which made min.bytes"
    assert [offset for offset, _ in values_in(found["records"])] == [0, 1]


# -- sessions (KIP-227) --------------------------------------------------------------------------------------


class _Session:
    """A fetch session of one connection."""

    def __init__(self, raw: RawConnection, topic: str) -> None:
        self._raw = raw
        self._topic = topic
        self.session_id = 0

    def fetch(
        self,
        session_epoch: int,
        offsets: dict[int, int] | None = None,
        *,
        forget: tuple[int, ...] = (),
        session_id: int | None = None,
    ) -> tuple[int, dict[int, list[bytes | None]]]:
        """Error code, and the values of every partition that the answer names."""
        wanted = [
            {"partition": n, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for n, offset in (offsets or {}).items()
        ]
        forgotten = [{"topic": self._topic, "partitions": list(forget)}] if forget else []
        answer = self._raw.call(
            "fetch",
            12,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=session_epoch,
            replica_id=-1,
            topics=[{"topic": self._topic, "partitions": wanted}] if wanted else [],
            forgotten_topics_data=forgotten,
        )
        if session_epoch == 0:
            self.session_id = answer["session_id"]
        parts = [part for each in answer["responses"] for part in each["partitions"]]
        named = {part["partition_index"]: [v for _, v in values_in(part["records"])] for part in parts}
        return answer["error_code"], named


@pytest.mark.case("Fetch on the wire", "sessions: full, incremental, forgotten partitions, closed")
def test_session(raw: RawConnection, target: Target, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3, configs=target.together)
    raw.produce(topic, batch([b"a"]), partition=1)
    session = _Session(raw, topic)
    assert session.fetch(0, {0: 0, 1: 0, 2: 0}) == (0, {0: [], 1: [b"a"], 2: []}), "a full answer names all"
    if session.session_id == 0:
        pytest.fail("no session was given")
    assert session.fetch(1, {1: 1}) == (0, {}), "nothing changed"
    raw.produce(topic, batch([b"b"]), partition=2)
    assert session.fetch(2) == (0, {2: [b"b"]}), "only what changed"
    assert session.fetch(3, {2: 1}, forget=(1,)) == (0, {})
    raw.produce(topic, batch([b"c"]), partition=1)
    assert session.fetch(4) == (0, {}), "partition 1 was forgotten"
    assert session.fetch(-1, {0: 0})[0] == 0, "closes"
    assert session.fetch(5)[0] == FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.case("Fetch on the wire", "sessions: unknown id and wrong epoch are refused")
def test_session_refused(raw: RawConnection, new_topic: NewTopic) -> None:
    session = _Session(raw, new_topic())
    session.fetch(0, {0: 0})
    assert session.fetch(9)[0] == INVALID_FETCH_SESSION_EPOCH
    assert session.fetch(1, session_id=session.session_id + 1)[0] == FETCH_SESSION_ID_NOT_FOUND
    assert session.fetch(1) == (0, {}), "the session itself lives on"


# -- ListOffsets, OffsetForLeaderEpoch -----------------------------------------------------------------------


@pytest.mark.case("ListOffsets on the wire", "special times: maximum, earliest local, tiered, pending")
def test_special_times(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    base = int(time.time() * 1000) - 60_000
    raw.produce(topic, batch([b"a"] * 3, timestamp_ms=base + 9_000))
    raw.produce(topic, batch([b"b"] * 3, timestamp_ms=base))
    highest = raw.list_offset(topic, MAX_TIMESTAMP)
    assert (highest["offset"], highest["timestamp"]) == (2, base + 9_002)
    assert raw.list_offset(topic, MAX_TIMESTAMP, partition=1)["offset"] == -1, "an empty partition"
    assert raw.list_offset(topic, EARLIEST_LOCAL, api_version=8)["offset"] == 0
    assert raw.list_offset(topic, LATEST_TIERED, api_version=9)["offset"] == -1
    assert raw.list_offset(topic, EARLIEST_PENDING, api_version=11)["offset"] == -1


@pytest.mark.case(
    "ListOffsets on the wire", "no hit is -1 without an error; unknown special times are refused"
)
def test_no_hit(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert _short(raw.list_offset(topic, 5)) == (0, -1, -1), "an empty partition"
    raw.produce(topic, batch([b"a"]))
    assert _short(raw.list_offset(topic, int(time.time() * 1000) + 60_000)) == (0, -1, -1)
    assert raw.list_offset(topic, -7, api_version=11)["error_code"] == UNSUPPORTED_VERSION
    assert raw.list_offset(topic, MAX_TIMESTAMP, api_version=6)["error_code"] == UNSUPPORTED_VERSION


def _short(found: Answer) -> tuple[int, int, int]:
    return found["error_code"], found["offset"], found["timestamp"]


@pytest.mark.case("ListOffsets on the wire", "unknown topic, partition and leader epoch")
def test_list_offsets_refused(
    raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]
) -> None:
    topic = new_topic()
    assert raw.list_offset(unused_name(), LATEST)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.list_offset(topic, LATEST, partition=9)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.list_offset(topic, LATEST, leader_epoch=1_000_000)["error_code"] == UNKNOWN_LEADER_EPOCH


@pytest.mark.case("ListOffsets on the wire", "OffsetForLeaderEpoch: the current epoch ends at the log's end")
def test_leader_epochs(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"a", b"b"]))
    (described,) = raw.call("metadata", 12, topics=[{"name": topic}])["topics"]
    current = described["partitions"][0]["leader_epoch"]
    for version in (2, 3, 4):
        known = _end_of_epoch(raw, topic, 0, current, version)
        assert (known["error_code"], known["leader_epoch"], known["end_offset"]) == (0, current, 2)
        unknown = _end_of_epoch(raw, topic, 0, current + 1000, version)
        assert (unknown["error_code"], unknown["leader_epoch"], unknown["end_offset"]) == (0, -1, -1)
        missing = _end_of_epoch(raw, topic, 9, current, version)
        assert missing["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


def _end_of_epoch(
    raw: RawConnection, topic: str, partition: int, leader_epoch: int, api_version: int
) -> Answer:
    asked = {"partition": partition, "current_leader_epoch": -1, "leader_epoch": leader_epoch}
    topics = [{"topic": topic, "partitions": [asked]}]
    answer = raw.call("offset_for_leader_epoch", api_version, replica_id=-1, topics=topics)
    found: Answer = answer["topics"][0]["partitions"][0]
    return found
