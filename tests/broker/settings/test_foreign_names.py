"""Names that neither Lockstep nor Kafka acts on, and misspelt names."""

from __future__ import annotations

from lockstep.broker.settings.config import PROPERTIES
from lockstep.broker.settings.foreign_names import FORMER_NAMES, hint, is_misspelled, unused_names_warning
from lockstep.broker.settings.kafka_names import UNUSED_KAFKA_NAMES
from tests.support.cases import each_case


def test_kafkas_former_names_are_neither_its_present_ones_nor_mistakes() -> None:
    assert not FORMER_NAMES & {*PROPERTIES, *UNUSED_KAFKA_NAMES}
    assert not [name for name in FORMER_NAMES if is_misspelled(name, [*PROPERTIES])]


@each_case(
    "name",
    [
        "acks",
        "bootstrap.servers",
        "client.id",
        "group.id",
        "linger.ms",
        "max.poll.records",
        "zebra",
        "metrics.x",
    ],
)
def test_a_name_like_no_other_is_no_mistake(name: str) -> None:
    assert not is_misspelled(name, [*PROPERTIES])


def test_a_name_is_a_mistake_where_it_is_like_one_that_has_an_effect() -> None:
    assert is_misspelled("num.partition", ["num.partitions"])
    assert is_misspelled("NUM-PARTITIONS", ["num.partitions"])
    assert is_misspelled("lockstep.of.a.later.version", [])
    assert not is_misspelled("num.parts", ["num.partitions"])
    assert hint("num.partition", ["num.partitions"]) == "; did you mean num.partitions?"
    assert hint("zebra", ["num.partitions"]) == ""


def test_one_line_names_all() -> None:
    assert unused_names_warning(["a", "listener.name.x.zookeeper.connect", "b"]) == (
        "without effect here: a, b, listener.name.x.zookeeper.connect (there is no ZooKeeper)"
    )
    zookeeper = "without effect here: zookeeper.connect (there is no ZooKeeper)"
    assert unused_names_warning(["zookeeper.connect"]) == zookeeper
