"""The other mechanisms; members of groups and transactions of clients that are logged in."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Client, Message
from compat_tests.clients.go import FranzGo
from compat_tests.clients.java import Java
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.clients.security import OAUTHBEARER
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch

AREA = "Security"
WAIT_S = 30.0


@pytest.mark.case(AREA, "{login}: what is written is read back")
@pytest.mark.parametrize("login", ["SCRAM-SHA-256", "PLAIN", OAUTHBEARER])
def test_mechanism(client: Client, new_topic: NewTopic, login: str) -> None:
    topic = new_topic()
    client.produce(topic, [Message(b"a"), Message(b"b")])
    assert [each.value for each in client.read(topic, 2)] == [b"a", b"b"]


@pytest.mark.case(AREA, "SCRAM-SHA-512: a member of a group reads, commits, and leaves")
def test_member(
    client: Client, new_topic: NewTopic, raw: RawConnection, unused_name: Callable[[], str]
) -> None:
    client.needs("groups")
    topic, group = new_topic(partitions=2), unused_name()
    for partition in range(2):
        raw.produce(topic, batch([b"%d/%d" % (partition, n) for n in range(3)]), partition=partition)
    commits = "commit" not in client.cannot
    member = client.join([topic], group, auto_commit=not commits)
    try:
        found: set[bytes | None] = set()
        until = time.monotonic() + WAIT_S
        while len(found) < 6 and time.monotonic() < until:
            found |= {each.value for each in member.poll(6 - len(found), 0.5)}
        assert found == {b"%d/%d" % (partition, n) for partition in range(2) for n in range(3)}
        if commits:
            member.commit()
    finally:
        member.close()
    asked = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0, 1]}]}]
    (answer,) = raw.call("offset_fetch", 8, groups=asked, require_stable=True)["groups"]
    (told,) = answer["topics"]
    assert [each["committed_offset"] for each in told["partitions"]] == [3, 3]


@pytest.mark.case(AREA, "SCRAM-SHA-512: a transaction is committed, another one aborted")
@pytest.mark.parametrize(
    "client", [each.name for each in (Java, Confluent, KafkaPython, FranzGo)], indirect=True
)
def test_transactions(client: Client, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    topic = new_topic()
    producer = client.transactional(unused_name())
    try:
        for value in (b"committed", b"aborted", b"last"):
            producer.begin()
            producer.send(topic, [Message(value)])
            (producer.abort if value == b"aborted" else producer.commit)()
    finally:
        producer.close()
    found = client.read(topic, 2, isolation="read_committed")
    assert [each.value for each in found] == [b"committed", b"last"]
