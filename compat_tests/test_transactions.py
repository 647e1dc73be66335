"""Transactions through each client's own producer: what is committed is seen, what is not is never."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from compat_tests.clients.face import Client, Message, Refused, Transactional
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch

AREA = "Transactions"
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TRANSACTION_ABORTABLE = 120
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
END = b"end"

Opened = Callable[..., Transactional]


def _messages(*values: bytes, partition: int = 0) -> list[Message]:
    return [Message(value, key=b"k", partition=partition) for value in values]


def _values(client: Client, topic: str, count: int, isolation: str, partition: int = 0) -> list[bytes | None]:
    found = client.read(topic, count, partitions=[partition], isolation=isolation)
    return [each.value for each in found]


def _committed(raw: RawConnection, group: str, topic: str) -> int:
    asked = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    until = time.monotonic() + 5
    while True:
        (answer,) = raw.call("offset_fetch", 8, groups=asked, require_stable=True)["groups"]
        (found,) = answer["topics"][0]["partitions"]
        if found["error_code"] != UNSTABLE_OFFSET_COMMIT or time.monotonic() > until:
            assert found["error_code"] == 0
            return int(found["committed_offset"])
        time.sleep(0.05)


@pytest.fixture
def transactional_id(unused_name: Callable[[], str]) -> str:
    return "tx-" + unused_name()


@pytest.fixture
def opened(client: Client) -> Iterator[Opened]:
    """`client.transactional`, and closed at the end, whatever its state."""
    made: list[Transactional] = []

    def open_one(*words: str, **named: object) -> Transactional:
        made.append(client.transactional(*words, **named))  # type: ignore[arg-type]
        return made[-1]

    yield open_one
    for each in made:
        with contextlib.suppress(Exception):  # a fenced producer may object
            each.close()


@pytest.mark.case(AREA, "committed, aborted, committed without a pause: read_committed sees two of three")
def test_commit_and_abort(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    topic, producer = new_topic(), opened(transactional_id)
    producer.begin()
    assert producer.send(topic, _messages(b"a0", b"a1")) in ([0, 1], [])
    producer.commit()
    producer.begin()
    producer.send(topic, _messages(b"b0"))
    producer.abort()
    producer.begin()
    producer.send(topic, _messages(b"c0"))
    producer.commit()
    raw.produce(topic, batch([END]))
    assert _values(client, topic, 4, COMMITTED) == [b"a0", b"a1", b"c0", END]
    assert _values(client, topic, 5, UNCOMMITTED) == [b"a0", b"a1", b"b0", b"c0", END]
    assert client.offsets(topic, 0) == (0, 8), "a marker takes an offset"


@pytest.mark.case(AREA, "an open transaction holds read_committed back, and what comes after it, too")
def test_open(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    topic, producer = new_topic(), opened(transactional_id)
    raw.produce(topic, batch([b"before"]))
    producer.begin()
    producer.send(topic, _messages(b"open"))
    raw.produce(topic, batch([END]))
    assert _values(client, topic, 3, UNCOMMITTED) == [b"before", b"open", END]
    found = client.read(topic, 2, isolation=COMMITTED, timeout_s=1.5)
    assert [each.value for each in found] in ([b"before"], []), "[]: a client may be slow to start"
    producer.commit()
    assert _values(client, topic, 3, COMMITTED) == [b"before", b"open", END]


@pytest.mark.case(AREA, "a transaction over several topics and partitions, committed and aborted")
def test_several_partitions(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    places = [(topic, index) for topic in (new_topic(3), new_topic(2)) for index in range(3)][:5]
    producer = opened(transactional_id)
    for word, end in ((b"kept", producer.commit), (b"gone", producer.abort), (b"last", producer.commit)):
        producer.begin()
        for topic, index in places:
            producer.send(topic, _messages(word, partition=index))
        end()
    for topic, index in places:
        assert _values(client, topic, 2, COMMITTED, index) == [b"kept", b"last"]


@pytest.mark.case(AREA, "a second producer with its id fences the first, whose transaction is aborted")
def test_fencing(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    client.needs("reuse of an id")
    topic, first = new_topic(), opened(transactional_id)
    first.begin()
    first.send(topic, _messages(b"zombie"))
    second = opened(transactional_id)
    with pytest.raises(Refused) as refused:
        first.send(topic, _messages(b"late"))
        first.commit()
    assert refused.value.code in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    second.begin()
    second.send(topic, _messages(b"second"))
    second.commit()
    raw.produce(topic, batch([END]))
    assert _values(client, topic, 2, COMMITTED) == [b"second", END]
    assert _values(client, topic, 3, UNCOMMITTED) == [b"zombie", b"second", END], "nothing came late"


@pytest.mark.case(AREA, "the broker aborts a transaction that takes too long, and its producer is refused")
def test_timeout(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    client.needs("transaction timeout")
    topic, producer = new_topic(), opened(transactional_id, timeout_ms=1000)
    producer.begin()
    producer.send(topic, _messages(b"slow"))
    raw.produce(topic, batch([END]))
    until = time.monotonic() + 10
    while raw.fetch(topic, 0)["last_stable_offset"] < 3 and time.monotonic() < until:
        time.sleep(0.1)
    with pytest.raises(Refused) as refused:
        producer.commit()
    ended = (INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED, TRANSACTION_ABORTABLE)
    assert refused.value.code in ended
    assert _values(client, topic, 1, COMMITTED) == [END]


@pytest.mark.case(AREA, "consume, transform, produce: positions and output are committed together")
def test_positions(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    client.needs("transactional groups")
    source, target = new_topic(), new_topic()
    group = f"{transactional_id}-group"
    raw.produce(source, batch([b"1", b"2", b"3"]))
    first = opened(transactional_id, source=(source, group))
    found = first.poll(3, 15.0)
    assert [each.value for each in found] == [b"1", b"2", b"3"]
    first.begin()
    first.send(target, _messages(*[b"%s!" % (each.value or b"") for each in found]))
    first.send_positions()
    first.commit()
    assert _committed(raw, group, source) == 3
    assert _values(client, target, 3, COMMITTED) == [b"1!", b"2!", b"3!"]
    first.close()


@pytest.mark.case(AREA, "consume, transform, produce: aborted, positions and output are as if never sent")
def test_aborted_positions(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    client.needs("transactional groups")
    source, target = new_topic(), new_topic()
    group = f"{transactional_id}-group"
    raw.produce(source, batch([b"1", b"2"]))
    first = opened(transactional_id, source=(source, group))
    assert len(first.poll(2, 15.0)) == 2
    first.begin()
    first.send(target, _messages(b"1!", b"2!"))
    first.send_positions()
    first.abort()
    raw.produce(target, batch([END]))
    assert _committed(raw, group, source) == -1
    assert _values(client, target, 1, COMMITTED) == [END]
    first.close()


@pytest.mark.case(AREA, "a transaction without records ends well, and so does the next")
def test_empty(client: Client, opened: Opened, new_topic: NewTopic, transactional_id: str) -> None:
    client.needs("empty transactions")
    topic, producer = new_topic(), opened(transactional_id)
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        end()
    producer.begin()
    producer.send(topic, _messages(b"full"))
    producer.commit()
    assert _values(client, topic, 1, COMMITTED) == [b"full"]


@pytest.mark.case(AREA, "a large transaction: 1500 records, 3 partitions, aborted and committed")
def test_large(client: Client, opened: Opened, new_topic: NewTopic, transactional_id: str) -> None:
    topic, producer = new_topic(3), opened(transactional_id)
    for word, end in ((b"a", producer.abort), (b"c", producer.commit)):
        producer.begin()
        for index in range(3):
            values = [b"%s%d" % (word, number) + b"x" * 300 for number in range(500)]
            producer.send(topic, _messages(*values, partition=index))
        end()
    for index in range(3):
        found = _values(client, topic, 500, COMMITTED, index)
        assert found == [b"c%d" % number + b"x" * 300 for number in range(500)]


@pytest.mark.case(AREA, "list and describe: Ongoing with its partitions, CompleteCommit, an open producer")
def test_admin(
    client: Client, opened: Opened, new_topic: NewTopic, raw: RawConnection, transactional_id: str
) -> None:
    client.needs("transaction admin")
    topic, producer = new_topic(2), opened(transactional_id, timeout_ms=30_000)
    raw.produce(topic, batch([b"before"]))
    producer.begin()
    for index in range(2):
        producer.send(topic, _messages(b"open", partition=index))
    described = client.describe_transaction(transactional_id)
    assert (described.state, described.timeout_ms) == ("Ongoing", 30_000)
    assert described.partitions == {(topic, 0), (topic, 1)}
    assert client.transactions()[transactional_id] == "Ongoing"
    for index in range(2):
        (active,) = client.producers(topic, index)
        assert (active.producer_id, active.open_at) == (described.producer_id, 1 - index)
    producer.commit()
    until = time.monotonic() + 5
    while client.describe_transaction(transactional_id).state != "CompleteCommit":
        assert time.monotonic() < until
    assert client.describe_transaction(transactional_id).partitions == frozenset()
    assert client.transactions()[transactional_id] == "CompleteCommit"
    assert client.producers(topic, 0)[0].open_at == -1
    with pytest.raises(Refused) as refused:
        client.describe_transaction(f"{transactional_id}-unknown")
    assert refused.value.code == TRANSACTIONAL_ID_NOT_FOUND
