"""Administration across kill -9 and a new start: new partitions, deleted records, stale leader epochs.

Kafka is stopped cleanly instead: it writes log starts down once a minute, so a kill may take deletions back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from compat_tests.own_targets import EACH_TARGET, own_target
from compat_tests.raw import RawConnection, batch, raw_connection, values_in
from compat_tests.targets import Target

OFFSET_OUT_OF_RANGE = 1
FENCED_LEADER_EPOCH = 74


@pytest.fixture(params=EACH_TARGET)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Not the shared one."""
    with own_target(request.param, {}) as running:
        yield running


def _leader_epoch(raw: RawConnection, topic: str) -> int:
    (seen,) = raw.call("metadata", 12, topics=[{"name": topic}])["topics"]
    epoch = seen["partitions"][0]["leader_epoch"]
    assert isinstance(epoch, int)
    return epoch


@pytest.mark.case(
    "After kill -9", "new partitions and deleted records; a stale leader epoch names the leader"
)
def test_restart(target: Target) -> None:
    with raw_connection(target.bootstrap) as raw:
        topic_id = raw.create_topic("grown")
        grown = {"name": "grown", "count": 3, "assignments": None}
        assert raw.call("create_partitions", 3, topics=[grown], timeout=5000)["results"][0]["error_code"] == 0
        while any(raw.list_offset("grown", -1, partition=n)["error_code"] for n in range(3)):
            pass
        for n in range(3):
            raw.produce("grown", batch([b"a", b"b", b"c"]), partition=n)
        below = [{"partition_index": n, "offset": n} for n in range(3)]
        deletion = [{"name": "grown", "partitions": below}]
        told = raw.call("delete_records", 2, topics=deletion, timeout=5000)["topics"][0]["partitions"]
        assert sorted(each["low_watermark"] for each in told) == [0, 1, 2]
        stale = _leader_epoch(raw, "grown")
    if target.name != "kafka":
        target.kill9()
    else:
        target.stop()
    target.restart()
    with raw_connection(target.bootstrap) as raw:
        while any(raw.list_offset("grown", -1, partition=n)["error_code"] for n in range(3)):
            time.sleep(0.05)  # Kafka takes connections before it has taken over its partitions
        for n in range(3):
            assert raw.list_offset("grown", -2, partition=n)["offset"] == n
            found = values_in(raw.fetch("grown", n, partition=n)["records"])
            assert [value for offset, value in found if offset >= n] == [b"a", b"b", b"c"][n:]
        assert raw.fetch("grown", 1, partition=2)["error_code"] == OFFSET_OUT_OF_RANGE
        epoch = _leader_epoch(raw, "grown")
        assert epoch > stale
        for version in (12, 15, 16, 18):
            wanted = {"partition": 0, "current_leader_epoch": stale, "fetch_offset": 0}
            topics = [{"topic": "grown", "topic_id": topic_id, "partitions": [wanted]}]
            answer = raw.call(
                "fetch", version, max_wait=0, min_bytes=0, max_bytes=1000, session_epoch=-1, replica_id=-1,
                topics=topics,
            )  # fmt: skip
            ((part,),) = [each["partitions"] for each in answer["responses"]]
            leader = part["current_leader"]
            assert part["error_code"] == FENCED_LEADER_EPOCH
            brokers = raw.call("metadata", 12, topics=[])["brokers"]
            (node,) = [each for each in brokers if each["node_id"] == raw.leader_of("grown")]
            if version < 16:
                assert leader == {"leader_id": -1, "leader_epoch": -1}
            else:
                assert leader == {"leader_id": node["node_id"], "leader_epoch": epoch}
                assert answer["node_endpoints"] == [node]
