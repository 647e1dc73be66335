"""Kafka Streams over TLS, with a login and by certificate: its topics, its group, its transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from compat_tests.clients.confluent import Confluent
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.raw import RawConnection, batch
from compat_tests.secured.brokers import SecuredTarget
from compat_tests.secured.conftest import MTLS
from compat_tests.until import until

AREA = "Kafka Streams, secured"
LINE = "to be or not to be"
LINES, PARTITIONS = 20, 2
START_S = 60.0


@pytest.mark.case(AREA, "{login}: exactly_once_v2 counts words, by a group, internal topics and transactions")
@pytest.mark.parametrize("login", ["SCRAM-SHA-512", MTLS])
def test_word_count(
    word_count: Callable[[str, str], str],
    world: World,
    target: SecuredTarget,
    raw: RawConnection,
    new_topic: NewTopic,
    login: str,
) -> None:
    lines, counts = new_topic(PARTITIONS), new_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        raw.produce(lines, batch([LINE.encode()] * LINES), partition=partition)
    application = word_count(lines, counts)
    reader = world.connected(Confluent.name, target.bootstrap)
    wanted = {word: count * LINES * PARTITIONS for word, count in Counter(LINE.split()).items()}

    def counted() -> dict[str, int]:
        every = range(PARTITIONS)
        read = reader.read(counts, 1_000, partitions=every, timeout_s=1.0, isolation="read_committed")
        return {(each.key or b"").decode(): int(each.value or b"0") for each in read}

    until(wanted, counted, START_S)
    (group,) = raw.call("describe_groups", 5, groups=[application])["groups"]
    assert (group["group_state"], group["protocol_type"]) == ("Stable", "consumer")
    topics = {each["name"] for each in raw.call("metadata", 12, topics=None)["topics"]}
    internal = {name.rpartition("-")[2] for name in topics if name.startswith(f"{application}-")}
    assert internal == {"changelog", "repartition"}
