"""kill -9 and a new start in the middle of transactions, on a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Message
from compat_tests.own_targets import EACH_TARGET, own_target
from compat_tests.raw import batch, raw_connection
from compat_tests.targets import KafkaTarget, Target


@pytest.fixture(params=EACH_TARGET)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Not the shared one. Kafka flushes each append, so that both promise the same."""
    with own_target(request.param) as running:
        yield running


@pytest.mark.case(
    "After kill -9", "transactions: committed ones are whole, open ones go on, ids are known and fence"
)
def test_restart(target: Target) -> None:
    client = Confluent(target.bootstrap)
    client.create_topic("kept", 2)
    producers = {
        word: client.transactional(f"tx-{word}") for word in ("committed", "aborted", "open", "lost")
    }
    for word, producer in producers.items():
        producer.begin()
        for partition in range(2):
            producer.send("kept", [Message(word.encode(), key=b"k", partition=partition)])
    producers["committed"].commit()
    producers["aborted"].abort()
    if target.name == KafkaTarget.name:
        # Kafka writes its markers after it has answered. Killed before, on a busy machine, it was seen to
        # show no `committed` afterwards: what is compared is a transaction that is complete.
        client.read("kept", 1, isolation="read_committed")
        client.read("kept", 1, partitions=[1], isolation="read_committed")
    target.kill9()
    target.restart()
    producers["open"].send("kept", [Message(b"open, more", key=b"k")])
    producers["open"].commit()
    again = client.transactional("tx-lost")  # which aborts what its predecessor left
    again.begin()
    again.send("kept", [Message(b"again", key=b"k")])
    again.commit()
    second = client.transactional("tx-committed")
    second.begin()
    second.send("kept", [Message(b"second", key=b"k")])
    second.abort()
    with raw_connection(target.bootstrap) as raw:
        raw.produce("kept", batch([b"end"]))
    found = client.read("kept", 5, isolation="read_committed")
    assert [each.value for each in found] == [b"committed", b"open", b"open, more", b"again", b"end"]
    found = client.read("kept", 2, partitions=[1], isolation="read_committed")
    assert [each.value for each in found] == [b"committed", b"open"]
    for each in (*producers.values(), again, second):
        each.close()
    client.close()
