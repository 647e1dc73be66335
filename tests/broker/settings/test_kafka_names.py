"""Every configuration name of Apache Kafka 4.4.0 is known here, and changed while running where it is there.

`kafka_4_4_0_names.tsv` is what Kafka's own definitions say (`compat_tests/java/names/ConfigNames.java`,
compared by `compat_tests/test_config_names.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lockstep.broker.settings.config import PROPERTIES
from lockstep.broker.settings.dynamic_config import declaration
from lockstep.broker.settings.group_config import GROUP_PROPERTIES
from lockstep.broker.settings.kafka_names import UNUSED_KAFKA_NAMES
from lockstep.broker.settings.settings_reader import HAVE_EFFECT, from_texts
from lockstep.broker.settings.stored_settings import PER_BROKER, PER_LISTENER, STORED
from lockstep.broker.settings.topic_config import TOPIC_PROPERTIES

_ROWS: Final = [
    line.split("\t") for line in (Path(__file__).parent / "kafka_4_4_0_names.tsv").read_text().splitlines()
]
BROKER, TOPIC, GROUP = (
    {name: how for whose, name, how in _ROWS if whose == owner} for owner in ("broker", "topic", "group")
)
ONLY_WHILE_RUNNING: Final = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Kafka has them in no properties file."""
OF_THE_AUTHORIZER: Final = {"allow.everyone.if.no.acl.found", "super.users"}
"""Kafka's authorizer reads them itself."""
FIXED_HERE: Final = {
    "listener.security.protocol.map",
    "listeners",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
}
"""Kafka opens and closes listeners while it runs, with what they encrypt; here a start does."""


def test_every_brokers_name_is_known() -> None:
    known = {*HAVE_EFFECT, *UNUSED_KAFKA_NAMES}
    assert BROKER.keys() - known == ONLY_WHILE_RUNNING
    own = known - BROKER.keys() - {"log.flush"} - OF_THE_AUTHORIZER
    assert own == {name for name in known if name.startswith("lockstep.")}


def test_every_topics_and_groups_name_is_known() -> None:
    assert TOPIC_PROPERTIES.keys() - TOPIC.keys() == {"lockstep.group", "lockstep.locks"}
    assert not TOPIC.keys() - TOPIC_PROPERTIES.keys()
    assert GROUP_PROPERTIES.keys() == GROUP.keys()
    for names, declared in (
        (TOPIC, {name: each for name, (_, each) in TOPIC_PROPERTIES.items()}),
        (GROUP, {name: each.declared for name, each in GROUP_PROPERTIES.items()}),
    ):
        internal = {name for name, how in names.items() if how == "internal"}
        assert {name for name, each in declared.items() if each.is_internal} == internal


def test_what_kafka_changes_while_it_runs_is_taken_here() -> None:
    changed = {name for name, how in BROKER.items() if how != "read-only"}
    taken = {name for name in BROKER if declaration(name) is not None}
    assert changed - taken - PER_LISTENER == FIXED_HERE
    assert taken <= changed
    of_one = {name for name, how in BROKER.items() if how == "per-broker"}
    assert PER_BROKER.keys() == of_one - PER_LISTENER - FIXED_HERE
    assert STORED.keys() <= changed and of_one >= PER_LISTENER


def test_a_file_with_a_name_that_has_no_effect_starts() -> None:
    names = (BROKER.keys() & UNUSED_KAFKA_NAMES) - {"authorizer.class.name"}
    (warning,) = from_texts(dict.fromkeys(names, "1")).warnings
    assert all(name in warning for name in names)
    assert not names & PROPERTIES.keys()
