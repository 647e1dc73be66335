"""The rules where no broker is needed: settings that not every node knows yet, counts, large batches.

Decisions against an exact model: `tests/campaigns/test_locks.py`; over the wire: `test_produce.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from lockstep.broker.locks.lock_check import LockChecks
from lockstep.broker.locks.lock_headers import MAX_RECORDS
from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_config import LOCKS_IGNORED, LOCKS_KEPT
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, Headers
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from tests.support.cases import each_case


class One:
    """The checks of one partition of topic t, on a node that knows so much of the metadata."""

    def __init__(self) -> None:
        self.log = PartitionLog(1, bytes(16), 0)
        self.cluster = SimpleNamespace(topic_by_id=lambda _: SimpleNamespace(name="t"), metadata_index=10)
        self.group = SimpleNamespace(has_lease=True)
        self.checks = LockChecks(LockTable(), cast(LogGroup, self.group), cast(MetadataCache, self.cluster))

    def append(
        self, hwm: int, *, write: str = "", read: str = "", expected: int = -1, mode: str = LOCKS_KEPT
    ) -> ErrorCode:
        headers: Headers = [("lockstep-hwm", b"%d" % hwm)]
        headers += [("lockstep-expected-offset", b"%d" % expected)] if expected >= 0 else []
        headers += [("lockstep-write-lock", write.encode())] if write else []
        headers += [("lockstep-read-lock", read.encode())] if read else []
        builder = BatchBuilder()
        builder.append(b"v", headers=headers, timestamp_ms=5)
        data = builder.build()
        try:
            notes = self.checks.check_and_encode(self.log, BatchBody(data, read_header(data)), mode)
        except RequestError as refused:
            return refused.error
        self.checks.table.take(notes)
        self.log.next_offset += 1
        self.log.high_watermark = self.log.next_offset
        return ErrorCode.NONE


def test_a_node_that_does_not_know_the_setting_yet_keeps_what_the_log_knows() -> None:
    """A leader that has just come back may have old metadata; its log says since when there are locks."""
    one = One()
    assert one.append(-1, write="a") is ErrorCode.NONE
    one.cluster.metadata_index = 9
    assert one.append(-1, write="a", mode=LOCKS_IGNORED) is ErrorCode.POLICY_VIOLATION
    assert one.append(0, write="a", mode=LOCKS_IGNORED) is ErrorCode.NONE
    one.cluster.metadata_index = 10
    assert one.append(-1, write="a", mode=LOCKS_IGNORED) is ErrorCode.NONE, "it was really changed"
    assert not one.checks.table.partitions


def test_newer_metadata_are_noted() -> None:
    """Else a leader that knows of an older change of the setting would end what a newer one began."""
    one = One()
    assert one.append(-1, write="a") is ErrorCode.NONE
    one.cluster.metadata_index = 12
    assert one.append(0, write="a") is ErrorCode.NONE
    one.cluster.metadata_index = 11
    assert one.append(0, write="a", mode=LOCKS_IGNORED) is ErrorCode.POLICY_VIOLATION


def test_a_leader_that_may_be_deposed_rejects_nothing_permanently() -> None:
    one = One()
    one.group.has_lease = False
    assert one.append(5, write="a") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one.append(-1, expected=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    one.group.has_lease = True
    assert one.append(5, write="a") is ErrorCode.INVALID_RECORD
    assert one.append(-1, expected=1) is ErrorCode.INVALID_RECORD


def test_what_is_counted() -> None:
    one = One()
    assert one.append(-1, read="a") is one.append(-1, write="a") is ErrorCode.NONE
    assert one.append(0, read="a") is ErrorCode.POLICY_VIOLATION
    assert one.append(5, read="a") is ErrorCode.INVALID_RECORD
    one.checks.table.partitions[1].floor = 1
    assert one.append(0, read="b") is ErrorCode.POLICY_VIOLATION
    counts = one.checks.accepted, one.checks.rejected, one.checks.rejected_by_estimate
    assert counts == (2, 3, 1)


@each_case("codec", [Codec.NONE, Codec.ZSTD])
def test_batches_of_very_many_records(codec: Codec) -> None:
    """With locks they are refused, before they are looked at; without they are like any others."""
    one = One()
    for key, fits in (("lockstep-append-lock", False), ("trace", True)):
        builder = BatchBuilder(codec=codec)
        for _ in range(MAX_RECORDS + 1):
            builder.append(b"v", headers=[(key, b"x")], timestamp_ms=5)
        data = builder.build()
        if fits:
            assert one.checks.check_and_encode(one.log, BatchBody(data, read_header(data)), LOCKS_KEPT)
            continue
        with pytest.raises(RequestError, match="reason=TOO_MANY_LOCKS"):
            one.checks.check_and_encode(one.log, BatchBody(data, read_header(data)), LOCKS_KEPT)
