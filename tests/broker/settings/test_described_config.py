"""Where a value comes from, as clients are told."""

from __future__ import annotations

from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.described_config import (
    DescribedConfig,
    broker_synonyms,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from lockstep.broker.settings.dynamic_config import apply_changes
from lockstep.broker.settings.group_config import GROUP_PROPERTIES
from lockstep.broker.settings.properties import Kind
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.broker.settings.topic_config import (
    ABSENT_FEATURES,
    BROKER_SYNONYMS,
    WITHOUT_EFFECT,
    topic_config,
)
from lockstep.protocol.config_resources import ConfigSource
from tests.support.cases import each_case


def by_name(described: list[DescribedConfig]) -> dict[str, DescribedConfig]:
    names = [each.declared.name for each in described]
    assert names == sorted(names) and len(set(names)) == len(names)
    return {each.declared.name: each for each in described}


def test_a_topics_sources_and_synonyms() -> None:
    settings = from_texts({"log.retention.ms": "10"})
    described = by_name(describe_topic(topic_config({"retention.bytes": "7"}, settings), settings))
    by_broker = described["retention.ms"]
    assert (by_broker.value, by_broker.source) == ("10", ConfigSource.STATIC_BROKER)
    assert by_broker.synonyms == [
        ("log.retention.ms", "10", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    by_topic = described["retention.bytes"]
    assert (by_topic.value, by_topic.source) == ("7", ConfigSource.TOPIC)
    assert by_topic.synonyms[1] == ("log.retention.bytes", "-1", ConfigSource.DEFAULT)
    assert described["segment.ms"].source == ConfigSource.DEFAULT
    assert described["cleanup.policy"].value == "delete"
    assert [name for name, each in described.items() if each.read_only] == ["lockstep.group"]


LONGEST = "9223372036854775807"
FROM_START, DEFAULT = ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT


@each_case(
    ("texts", "name", "synonyms"),
    [
        (
            {"log.segment.bytes": "2000000"},
            "segment.bytes",
            [("log.segment.bytes", "2000000", FROM_START), ("log.segment.bytes", "1073741824", DEFAULT)],
        ),
        (
            {"log.roll.ms": "5"},
            "segment.ms",
            [("log.roll.ms", "5", FROM_START), ("log.roll.hours", "168", DEFAULT)],
        ),
        (
            {"log.flush.interval.ms": "5"},
            "flush.ms",
            [
                ("log.flush.interval.ms", "5", FROM_START),
                ("log.flush.scheduler.interval.ms", LONGEST, DEFAULT),
            ],
        ),
        ({}, "flush.messages", [("log.flush.interval.messages", LONGEST, DEFAULT)]),
        ({}, "flush.ms", []),
        ({"log.roll.hours": "2"}, "segment.ms", []),
        ({}, "preallocate", [("log.preallocate", "false", DEFAULT)]),
        ({}, "compression.lz4.level", [("compression.lz4.level", "9", DEFAULT)]),
        ({}, "unclean.leader.election.enable", [("unclean.leader.election.enable", "false", DEFAULT)]),
        ({}, "remote.storage.enable", []),
    ],
)
def test_a_topics_value_comes_from_a_setting_of_the_brokers(
    texts: dict[str, str], name: str, synonyms: list[tuple[str, str, int]]
) -> None:
    """As in Kafka, also where the weaker of two settings is the one that is set: then none is told."""
    settings = from_texts(texts)
    described = by_name(describe_topic(topic_config({}, settings), settings))[name]
    assert described.synonyms == synonyms
    assert described.source == (synonyms[0][2] if synonyms else DEFAULT)
    if synonyms:
        assert described.value == synonyms[0][1]


@each_case(
    ("name", "value", "kind"),
    [
        ("compression.gzip.level", "-1", Kind.INT),
        ("compression.lz4.level", "9", Kind.INT),
        ("compression.zstd.level", "3", Kind.INT),
        ("local.retention.bytes", "-2", Kind.LONG),
        ("local.retention.ms", "-2", Kind.LONG),
        ("remote.log.copy.disable", "false", Kind.BOOLEAN),
        ("remote.log.delete.on.disable", "false", Kind.BOOLEAN),
        ("remote.storage.enable", "false", Kind.BOOLEAN),
        ("leader.replication.throttled.replicas", "", Kind.LIST),
        ("follower.replication.throttled.replicas", "", Kind.LIST),
        ("errors.deadletterqueue.group.enable", "false", Kind.BOOLEAN),
        ("remote.copy.lag.bytes", "-1", Kind.LONG),
        ("remote.copy.lag.ms", "0", Kind.LONG),
    ],
)
def test_absent_features_are_described_with_kafkas_default(name: str, value: str, kind: Kind) -> None:
    assert name in {*ABSENT_FEATURES, *WITHOUT_EFFECT}
    plain = by_name(describe_topic(topic_config({}, Settings()), Settings()))[name]
    assert (plain.value, plain.declared.kind, plain.source, plain.read_only) == (value, kind, DEFAULT, False)
    written_back = topic_config({name: value}, Settings())
    told = by_name(describe_topic(written_back, Settings()))[name]
    assert (told.value, told.source) == (value, ConfigSource.TOPIC)


def test_kafkas_internal_settings_are_described_where_they_are_set() -> None:
    name = "internal.segment.bytes"
    assert name not in by_name(describe_topic(topic_config({}, Settings()), Settings()))
    told = by_name(describe_topic(topic_config({name: "5"}, Settings()), Settings()))[name]
    assert (told.value, told.source) == ("5", ConfigSource.TOPIC)


def test_a_brokers_sources() -> None:
    settings = from_texts({"log.retention.ms": "10"})
    broker = by_name(describe_broker(settings))
    assert broker["log.retention.ms"].source == ConfigSource.STATIC_BROKER
    partitions = broker["num.partitions"]
    assert (partitions.source, partitions.read_only) == (ConfigSource.DEFAULT, True)
    assert not broker["message.max.bytes"].read_only
    for names in BROKER_SYNONYMS.values():
        assert set(names) <= broker.keys()


def test_a_change_for_this_node_comes_before_one_for_all_before_the_file_before_the_default() -> None:
    started = from_texts({"message.max.bytes": " 3000 "})
    settings = apply_changes(started, {"message.max.bytes": "2000"}, {"message.max.bytes": "1000"})
    (found,) = [each for each in describe_broker(settings) if each.declared.name == "message.max.bytes"]
    assert (found.value, found.source) == ("1000", ConfigSource.DYNAMIC_BROKER)
    assert [(value, source) for _, value, source in found.synonyms] == [
        ("1000", ConfigSource.DYNAMIC_BROKER),
        ("2000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("3000", ConfigSource.STATIC_BROKER),
        ("1048588", ConfigSource.DEFAULT),
    ]
    (for_all,) = describe_cluster_default(settings)
    assert (for_all.value, for_all.source) == ("2000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert len(for_all.synonyms) == 1
    assert describe_cluster_default(started) == []


def test_settings_without_effect_are_described_and_no_secret_is() -> None:
    settings = apply_changes(
        Settings(),
        {"num.io.threads": "4", "com.example.key": "hush-hush"},
        {"num.io.threads": "5", "listener.name.x.ssl.key.password": "hush-hush"},
    )
    told = by_name(describe_broker(settings))
    threads = told["num.io.threads"]
    assert (threads.value, threads.source, threads.read_only) == ("5", ConfigSource.DYNAMIC_BROKER, False)
    assert threads.synonyms == [
        ("num.io.threads", "5", ConfigSource.DYNAMIC_BROKER),
        ("num.io.threads", "4", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ]
    key, jaas = told["com.example.key"], told["listener.name.x.ssl.key.password"]
    assert (key.value, key.is_sensitive, key.source) == (None, True, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert (jaas.value, jaas.is_sensitive, jaas.source) == (None, True, ConfigSource.DYNAMIC_BROKER)
    assert key.synonyms == [("com.example.key", None, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
    for_all = by_name(describe_cluster_default(settings))
    assert {name: each.value for name, each in for_all.items()} == {
        "com.example.key": None,
        "num.io.threads": "4",
    }
    assert "num.io.threads" not in by_name(describe_broker(Settings()))


def test_what_stands_before_the_name_itself_is_left_out() -> None:
    """As in Kafka: the default of log.retention.hours is not told as one of log.retention.ms."""
    assert broker_synonyms("log.retention.ms", Settings()) == []
    hours = broker_synonyms("log.retention.hours", Settings())
    assert hours == [("log.retention.hours", "168", ConfigSource.DEFAULT)]


def test_a_group_has_every_default() -> None:
    plain = by_name(describe_group({}))
    shown = {name for name, known in GROUP_PROPERTIES.items() if not known.declared.is_internal}
    assert plain.keys() == shown
    internal = by_name(describe_group({"streams.num.warmup.replicas": "3"}))
    assert internal.keys() - shown == {"streams.num.warmup.replicas"}
    assert {each.source for each in plain.values()} == {ConfigSource.DEFAULT}
    name = "consumer.session.timeout.ms"
    changed = by_name(describe_group({name: "50000"}))[name]
    assert changed.synonyms == [
        (name, "50000", ConfigSource.GROUP),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    ]
    assert (changed.value, changed.source) == ("50000", ConfigSource.GROUP)


def test_loggers_and_client_metrics() -> None:
    assert {each.source for each in describe_loggers()} == {ConfigSource.BROKER_LOGGER}
    assert "root" in {each.declared.name for each in describe_loggers()}
    metrics = by_name(describe_client_metrics())
    assert {name: each.value for name, each in metrics.items()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }


@each_case("name", ["advertised.listeners", "log.dirs", "listeners"])
def test_what_names_a_place_is_read_only(name: str) -> None:
    assert by_name(describe_broker(Settings()))[name].read_only
