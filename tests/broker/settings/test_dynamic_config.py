"""Broker settings changed while running."""

from __future__ import annotations

import difflib

import pytest

from lockstep.broker.settings.config import PROPERTIES, Settings
from lockstep.broker.settings.dynamic_config import (
    CHANGEABLE,
    MAX_FOREIGN,
    MAX_FOREIGN_CHARACTERS,
    InvalidBrokerConfig,
    apply_accepted,
    apply_changes,
    canonical_text,
    check_size,
    declaration,
    reject_fixed,
    value_for_log,
    without_effect,
)
from lockstep.broker.settings.properties import Kind
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.broker.settings.stored_settings import PER_BROKER, PER_LISTENER, STORED
from lockstep.broker.settings.topic_config import BROKER_SYNONYMS
from tests.support.cases import each_case


def test_all_of_them_are_settings_and_none_names_a_place() -> None:
    assert PROPERTIES.keys() >= CHANGEABLE
    for name in CHANGEABLE:
        declared = PROPERTIES[name][1]
        assert declared.kind is not Kind.STRING or declared.choices, name
        assert declared.kind is not Kind.LIST or declared.choices, name


def test_this_node_comes_before_the_cluster_before_the_start() -> None:
    started = from_texts({"log.retention.hours": "1", "log.retention.bytes": "5", "max.connections": "8"})
    settings = apply_changes(
        started,
        {"log.retention.ms": "100", "log.retention.bytes": "6"},
        {"log.retention.ms": "200"},
    )
    assert (settings.retention_ms, settings.log_retention_bytes, settings.max_connections) == (200, 6, 8)
    assert settings.explicit == started.explicit
    assert apply_changes(settings, {}, {}).dynamic_cluster == {}


@each_case(
    ("name", "text"),
    [
        ("message.max.bytes", "x"),
        ("message.max.bytes", "-1"),
        ("message.max.bytes", "999999999"),
        ("log.retention.ms", "-2"),
        ("log.message.timestamp.type", "Never"),
        ("log.cleanup.policy", "compacted"),
        ("compression.type", "brotli"),
        ("min.insync.replicas", "2"),
        ("max.connections", "0"),
        ("max.connections.per.ip", "0"),
        ("log.dirs", "/elsewhere"),
        ("listeners", "PLAINTEXT://:1"),
        ("log.retention.hours", "1"),
        ("log.roll.hours", "1"),
        ("log.roll.ms", "0"),
        ("log.segment.bytes", "1000"),
        ("compression.zstd.level", "23"),
        ("compression.gzip.level", "0"),
        ("log.local.retention.ms", "-3"),
        ("max.decompressed.message.bytes", "0"),
        ("num.io.threads", "0"),
        ("leader.replication.throttled.rate", "-1"),
        ("ssl.client.auth", "perhaps"),
        ("process.roles", "broker"),
        ("auto.create.topics.enable", "false"),
    ],
)
def test_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidBrokerConfig, match=name):
        apply_changes(Settings(), {name: text}, {})
    kept, problems = apply_accepted(Settings(), {name: text, "log.retention.bytes": "7"}, {})
    assert kept.dynamic_cluster == {"log.retention.bytes": "7"} and name in problems[0]


def test_what_topics_follow_is_changeable_where_kafka_lets_it_be() -> None:
    """Kafka's rule: the strongest of those behind a topic's. Its defaults can be written back."""
    strongest = {names[0] for names in BROKER_SYNONYMS.values()}
    assert strongest <= CHANGEABLE
    assert not {name for names in BROKER_SYNONYMS.values() for name in names[1:]} & CHANGEABLE
    defaults = {name: PROPERTIES[name][1].show(PROPERTIES[name][1].default) for name in strongest}
    changes = {name: text for name, text in defaults.items() if text is not None}
    assert apply_changes(Settings(), changes, {}).dynamic_cluster == changes


def test_a_flush_cannot_be_configured_while_none_is_made() -> None:
    for name in ("log.flush.interval.messages", "log.flush.interval.ms"):
        with pytest.raises(InvalidBrokerConfig, match=name):
            apply_changes(Settings(log_flush="os"), {name: "5"}, {})
        assert apply_changes(Settings(), {name: "5"}, {}).dynamic_cluster == {name: "5"}
    assert apply_changes(Settings(), {"log.roll.ms": "5"}, {}).segment_ms == 5


def test_a_value_is_stored_as_it_is_shown() -> None:
    assert canonical_text("log.retention.ms", " +5 ") == "5"
    assert canonical_text("log.cleanup.policy", "delete , delete") == "delete"
    assert canonical_text("log.cleanup.policy", "") == ""


def test_several_that_are_fixed_are_named_together() -> None:
    with pytest.raises(InvalidBrokerConfig, match=r"\[log.dirs, num.partitions\]"):
        reject_fixed(["num.partitions", "log.retention.ms", "log.dirs"])
    reject_fixed(CHANGEABLE)


@each_case(
    ("name", "hint"),
    [
        (
            "log.retention.hour",
            "; did you mean log.retention.hours? log.retention.hours is set only at a start",
        ),
        ("log.retention.m", "; did you mean log.retention.ms?"),
        ("max.message.bytes", "; did you mean message.max.bytes?"),
        ("lockstep.qqqqqqqqqqqqqqqqqq", ""),
    ],
)
def test_the_first_that_there_is_not_brings_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InvalidBrokerConfig) as refused:
        reject_fixed(["broker.rack", name, "zebra", "num.io.threads"])
    assert str(refused.value) == f"Cannot update these configs dynamically: [broker.rack, {name}]{hint}"


def test_unknown_names_are_not_compared_with_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request with fifty of them took 0.1 s of the event loop."""

    def compare(*_: object, **__: object) -> list[str]:
        raise AssertionError("a request compares names by similarity")

    monkeypatch.setattr(difflib, "get_close_matches", compare)
    reject_fixed([f"my.plugin.retention.ms.{number}" for number in range(MAX_FOREIGN)])
    with pytest.raises(InvalidBrokerConfig, match=r"did you mean log\.retention\.ms"):
        reject_fixed(["log_retention_ms"])
    with pytest.raises(InvalidBrokerConfig, match=r"lockstep\.no\.such\.setting"):
        reject_fixed(["lockstep.no.such.setting"])


LEAST, MOST = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


def test_two_that_cannot_hold_together_are_refused() -> None:
    for cluster, node in (({LEAST: "9", MOST: "8"}, {}), ({MOST: "8"}, {LEAST: "9"})):
        with pytest.raises(InvalidBrokerConfig, match=LEAST):
            apply_changes(Settings(), cluster, node)


def test_of_two_that_are_recorded_all_the_same_the_first_holds() -> None:
    """Each may have been accepted by a node that did not have the other."""
    settings, problems = apply_accepted(Settings(), {MOST: "8", "log.retention.ms": "1"}, {LEAST: "9"})
    assert (settings.log_cleaner_max_compaction_lag_ms, settings.log_cleaner_min_compaction_lag_ms) == (8, 0)
    assert (settings.retention_ms, settings.dynamic_node) == (1, {})
    assert len(problems) == 1 and LEAST in problems[0]


def test_kafkas_settings_without_effect_and_names_of_others_are_stored() -> None:
    """In a file each of them only warns."""
    changes = {"num.io.threads": "4", "confluent.balancer.enable": " true ", "metric.reporters": "a, b"}
    reject_fixed(changes)
    settings = apply_changes(
        Settings(), {name: canonical_text(name, text) for name, text in changes.items()}, {}
    )
    assert settings.dynamic_cluster == {
        "num.io.threads": "4",
        "confluent.balancer.enable": "true",
        "metric.reporters": "a,b",
    }
    assert settings == Settings(), "nothing else is another"
    assert apply_accepted(Settings(), settings.dynamic_cluster, {}) == (settings, [])


def test_what_is_stored_is_none_of_the_settings_with_an_effect() -> None:
    assert not STORED.keys() & PROPERTIES.keys()
    assert not PER_LISTENER & STORED.keys()
    assert declaration("process.roles") is None and declaration("num.partitions") is None


def test_what_kafka_sets_for_one_broker_only() -> None:
    for name in PER_BROKER:
        with pytest.raises(InvalidBrokerConfig, match="at default cluster level"):
            reject_fixed([name], for_all=True)
    reject_fixed(PER_BROKER)
    reject_fixed(STORED.keys() - PER_BROKER.keys(), for_all=True)
    for name in PER_LISTENER:
        with pytest.raises(InvalidBrokerConfig, match="only per-listener"):
            reject_fixed([name])
        reject_fixed([f"listener.name.plaintext.{name}"])


def test_names_of_others_are_bounded() -> None:
    names = {f"com.example.x{number:02}": "1" for number in range(MAX_FOREIGN + 1)}
    for check in (reject_fixed, check_size):
        with pytest.raises(InvalidBrokerConfig, match=f"51 unknown names, at most {MAX_FOREIGN} are stored"):
            check(names)
    del names["com.example.x00"]
    reject_fixed(names)
    check_size({**names, "num.io.threads": "1", "log.retention.ms": "5"})
    for name in ("com.example.a", "metric.reporters"):
        check_size({name: "x" * (MAX_FOREIGN_CHARACTERS - len(name))})
        with pytest.raises(InvalidBrokerConfig, match=f"{name}: longer than {MAX_FOREIGN_CHARACTERS}"):
            check_size({name: "x" * (MAX_FOREIGN_CHARACTERS + 1 - len(name))})


def test_a_new_setting_without_effect_is_logged_without_its_value() -> None:
    texts = {
        "num.io.threads": "4",
        "com.example.password": "hush-hush",
        "log.retention.ms": "5",
        "compression.zstd.level": "9",
        "compression.lz4.level": "9",
    }
    (line,) = without_effect(texts, {})
    assert line == (
        "kept, and without effect here: com.example.password, compression.zstd.level, num.io.threads"
    )
    assert without_effect(texts, texts) == []
    assert without_effect({**texts, "num.io.threads": "5"}, texts)[0].endswith(": num.io.threads")
    assert [value_for_log(name, text) for name, text in texts.items()] == ["4", "[hidden]", "5", "9", "9"]
    assert value_for_log("sasl.jaas.config", "hush-hush") == "[hidden]"
