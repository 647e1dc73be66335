"""Which tries are under way, and what the feed has shown of them."""

from __future__ import annotations

from lockstep.transactions.log import AppendAttempt, PartitionBatch
from lockstep.transactions.model import Committed, Record, RequestId
from lockstep.transactions.monitor import Monitor, PendingAppend
from lockstep.transactions.transaction import Transaction


def tried(monitor: Monitor, *partitions: int) -> PendingAppend:
    parts = {partition: PartitionBatch((Record(b"v"),), -1) for partition in partitions or (0,)}
    return monitor.register(Transaction(), AppendAttempt(monitor.next_request(), parts))


def brought(request: RequestId | None, partition: int = 0, offset: int = 5) -> Committed:
    return Committed(partition, offset, (Record(b"v"),), request=request)


def test_register() -> None:
    """A try is found by its id, once per partition, until it is forgotten."""
    monitor = Monitor("me")
    pending = tried(monitor, 0, 1)
    assert len(monitor) == 1 and pending.offsets == {}
    assert monitor.match(brought(pending.append.request, 1, 8)) is pending
    assert pending.offsets == {1: 8}
    monitor.forget(pending)
    monitor.forget(pending)
    assert len(monitor) == 0 and monitor.match(brought(pending.append.request)) is None


def test_what_is_not_ours() -> None:
    monitor = Monitor("me")
    pending = tried(monitor)
    assert monitor.match(brought(None)) is None
    assert monitor.match(brought(pending.append.request._replace(client="you"))) is None
    assert monitor.match(brought(pending.append.request._replace(generation=1))) is None
    assert pending.offsets == {}


def test_somebody_elses_record_with_our_id() -> None:
    """Headers are anybody's: what is not our record is not our transaction."""
    monitor = Monitor("me")
    pending = tried(monitor)
    request = pending.append.request
    assert monitor.match(Committed(0, 5, (Record(b"forged"),), request=request)) is None
    assert monitor.match(brought(request, partition=1)) is None
    assert monitor.match(brought(request)) is pending


def test_no_id_is_given_twice() -> None:
    monitor = Monitor("me")
    first = monitor.next_request()
    monitor.generation += 1
    second = monitor.next_request()
    assert first.sequence < second.sequence and (first.generation, second.generation) == (0, 1)
