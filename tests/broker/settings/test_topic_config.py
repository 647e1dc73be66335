"""Topic configurations: in force, accepted because true here, or refused by name."""

from __future__ import annotations

import re

import pytest

from lockstep.broker.settings.config import PROPERTIES, Settings
from lockstep.broker.settings.properties import INT64_MAX
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.broker.settings.topic_config import (
    ABSENT_FEATURES,
    BROKER_SYNONYMS,
    TOPIC_PROPERTIES,
    WITHOUT_EFFECT,
    InvalidTopicConfig,
    TopicConfig,
    restored_config,
    topic_config,
    without_effect,
)
from tests.support.cases import each_case

SMALL_SEGMENTS = from_texts({"lockstep.segment.bytes": "4194304"})

KAFKA_4_4_0 = """cleanup.policy compression.gzip.level compression.lz4.level compression.type
compression.zstd.level delete.retention.ms file.delete.delay.ms flush.messages flush.ms
follower.replication.throttled.replicas index.interval.bytes leader.replication.throttled.replicas
local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes
message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type
min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable
remote.log.delete.on.disable remote.storage.enable errors.deadletterqueue.group.enable
max.decompressed.message.bytes remote.copy.lag.bytes remote.copy.lag.ms retention.bytes retention.ms
segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable"""


def test_every_name_of_kafka_is_answered() -> None:
    others = {"lockstep.group", "lockstep.locks", "internal.segment.bytes"}
    assert TOPIC_PROPERTIES.keys() - others == set(KAFKA_4_4_0.split())
    assert ABSENT_FEATURES.keys() <= TOPIC_PROPERTIES.keys()


def test_every_setting_behind_a_topics_is_kafkas() -> None:
    """Source: ServerTopicConfigSynonyms, and LogConfig for what is of topics alone."""
    of_topics_alone = {
        name for name in KAFKA_4_4_0.split() if name.startswith(("remote.log.", "remote.storage."))
    }
    of_topics_alone |= {"errors.deadletterqueue.group.enable"}
    of_topics_alone |= {f"{who}.replication.throttled.replicas" for who in ("leader", "follower")}
    assert BROKER_SYNONYMS.keys() == set(KAFKA_4_4_0.split()) - of_topics_alone
    for name, (strongest, *_) in BROKER_SYNONYMS.items():
        assert TOPIC_PROPERTIES[name][1].kind == PROPERTIES[strongest][1].kind
    defaults = topic_config({}, Settings())
    assert defaults == TopicConfig()


@each_case("name", KAFKA_4_4_0.split())
@each_case("flush", ["always", "os"])
def test_kafkas_default_is_taken(name: str, flush: str) -> None:
    """Terraform, topic operators and MirrorMaker write back what they read."""
    attribute, declared = TOPIC_PROPERTIES[name]
    text = declared.show(declared.default)
    assert text is not None
    config = topic_config({name: text}, Settings(log_flush=flush))
    assert (getattr(config, attribute), config.overrides) == (declared.default, {name: text})


KEPT = [
    ("compression.gzip.level", "9"),
    ("compression.lz4.level", "1"),
    ("compression.zstd.level", "22"),
    ("errors.deadletterqueue.group.enable", "true"),
    ("internal.segment.bytes", "9999999"),
    ("local.retention.bytes", "-1"),
    ("local.retention.ms", "86400000"),
    ("remote.copy.lag.bytes", "5"),
    ("remote.copy.lag.ms", "-1"),
    ("remote.log.copy.disable", "true"),
    ("remote.log.delete.on.disable", "true"),
    ("leader.replication.throttled.replicas", "0:1,0:2"),
    ("follower.replication.throttled.replicas", "*"),
    ("unclean.leader.election.enable", "true"),
]


@each_case(("name", "text"), KEPT)
def test_a_setting_without_effect_on_records_is_stored_and_logged_once(name: str, text: str) -> None:
    """MirrorMaker 2 copies a topic with all of its settings; one that is refused would cost it the others."""
    overrides = {"cleanup.policy": "compact", name: text}
    config = topic_config(overrides, Settings())
    attribute, declared = TOPIC_PROPERTIES[name]
    assert (declared.show(getattr(config, attribute)), config.overrides) == (text, overrides)
    assert config.is_compacted
    (line,) = without_effect(config.overrides)
    assert line == f"{name}={text} is kept and has no effect here: {WITHOUT_EFFECT[name]}"
    assert without_effect(config.overrides, former=config.overrides) == []
    default = declared.show(declared.default)
    assert default is None or without_effect({name: default}) == []


def test_every_such_setting_is_tried() -> None:
    assert {name for name, _ in KEPT} == WITHOUT_EFFECT.keys()
    assert not WITHOUT_EFFECT.keys() & ABSENT_FEATURES.keys()


@each_case(("name", "text"), [("remote.storage.enable", "true")])
def test_a_setting_that_changes_a_records_fate_and_cannot_be_kept_is_refused(name: str, text: str) -> None:
    default = re.escape(TOPIC_PROPERTIES[name][1].show(TOPIC_PROPERTIES[name][1].default) or "")
    words = rf"^{name} is rejected: this broker has no {ABSENT_FEATURES[name]}, .* default: '{default}'$"
    with pytest.raises(InvalidTopicConfig, match=words):
        topic_config({name: text}, Settings())


def test_a_topic_costs_no_dictionary() -> None:
    """There is a configuration for each; with more than thirty attributes these would share no keys."""
    assert not hasattr(topic_config({}, Settings()), "__dict__")


@each_case(
    ("setting", "text", "name", "value"),
    [
        ("log.segment.bytes", "2000000", "segment.bytes", "2000000"),
        ("log.roll.ms", "5", "segment.ms", "5"),
        ("log.roll.hours", "2", "segment.ms", "7200000"),
        ("log.roll.jitter.ms", "5", "segment.jitter.ms", "5"),
        ("log.roll.jitter.hours", "2", "segment.jitter.ms", "7200000"),
        ("log.index.size.max.bytes", "5", "segment.index.bytes", "5"),
        ("log.index.interval.bytes", "5", "index.interval.bytes", "5"),
        ("log.segment.delete.delay.ms", "5", "file.delete.delay.ms", "5"),
        ("log.preallocate", "true", "preallocate", "true"),
        ("log.flush.interval.messages", "5", "flush.messages", "5"),
        ("log.flush.interval.ms", "5", "flush.ms", "5"),
        ("log.flush.scheduler.interval.ms", "5", "flush.ms", "5"),
        ("compression.gzip.level", "5", "compression.gzip.level", "5"),
        ("compression.lz4.level", "5", "compression.lz4.level", "5"),
        ("compression.zstd.level", "-7", "compression.zstd.level", "-7"),
        ("log.local.retention.bytes", "5", "local.retention.bytes", "5"),
        ("log.local.retention.ms", "5", "local.retention.ms", "5"),
        ("log.remote.copy.lag.bytes", "5", "remote.copy.lag.bytes", "5"),
        ("log.remote.copy.lag.ms", "5", "remote.copy.lag.ms", "5"),
        ("max.decompressed.message.bytes", "5", "max.decompressed.message.bytes", "5"),
        ("unclean.leader.election.enable", "true", "unclean.leader.election.enable", "true"),
    ],
)
def test_what_follows_a_setting_of_kafkas(setting: str, text: str, name: str, value: str) -> None:
    attribute, declared = TOPIC_PROPERTIES[name]
    settings = from_texts({setting: text})
    assert declared.show(getattr(topic_config({}, settings), attribute)) == value
    own = topic_config({name: declared.show(declared.default) or ""}, settings)
    assert getattr(own, attribute) == declared.default


def test_values_in_force() -> None:
    config = topic_config({"retention.ms": "5", "message.timestamp.type": "LogAppendTime"}, Settings())
    assert config.retention_ms == 5
    assert config.log_append_time
    assert config.max_message_bytes == Settings().message_max_bytes


def test_defaults_follow_the_broker() -> None:
    settings = from_texts(
        {"log.retention.minutes": "1", "message.max.bytes": "77", "log.retention.bytes": "9"}
    )
    config = topic_config({}, settings)
    assert (config.retention_ms, config.max_message_bytes, config.retention_bytes) == (60_000, 77, 9)


@each_case(
    ("name", "value"),
    [
        ("compression.type", "brotli"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("max.message.bytes", "99999999"),
        ("min.insync.replicas", "2"),
        ("remote.storage.enable", "true"),
        ("unclean.leader.election.enable", "perhaps"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("local.retention.ms", "-3"),
        ("remote.copy.lag.bytes", "-2"),
        ("max.decompressed.message.bytes", "0"),
        ("leader.replication.throttled.replicas", "all"),
        ("follower.replication.throttled.replicas", "0:1,*"),
        ("message.timestamp.type", "logappendtime"),
        ("lockstep.group", "0"),
        ("lockstep.locks", "yes"),
        ("delete.retention.ms", "-1"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("max.compaction.lag.ms", "0"),
        ("cleanup.policy", "compacted"),
        ("no.such.config", "1"),
    ],
)
def test_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidTopicConfig, match=name):
        topic_config({name: value}, Settings())


@each_case(
    ("name", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("delete.retention.ms", "0"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("min.compaction.lag.ms", "5"),
        ("max.compaction.lag.ms", "5"),
        ("compression.type", "producer"),
        ("compression.type", "zstd"),
        ("flush.messages", "1"),
        ("segment.bytes", "1048576"),
        ("segment.ms", "60000"),
        ("unclean.leader.election.enable", "false"),
        ("lockstep.group", "1"),
    ],
)
def test_accepted(name: str, value: str) -> None:
    assert topic_config({name: value}, Settings()).overrides == {name: value}


@each_case("name", ["flush.messages", "flush.ms"])
def test_a_configured_flush_is_rejected_where_none_is_made(name: str) -> None:
    with pytest.raises(InvalidTopicConfig, match=name):
        topic_config({name: "1"}, Settings(log_flush="os"))
    restored, problems = restored_config({name: "1"}, Settings(log_flush="os"))
    assert (restored.flush_messages, restored.flush_ms) == (INT64_MAX, INT64_MAX)
    assert restored.overrides == {name: "1"} and name in problems[0]
    topic_config({name: str(INT64_MAX)}, Settings(log_flush="os"))


def test_the_brokers_codec_is_its_topics_default() -> None:
    settings = from_texts({"compression.type": "lz4"})
    assert topic_config({}, settings).compression_type == "lz4"
    assert topic_config({"compression.type": "producer"}, settings).compression_type == "producer"


def test_a_stored_value_that_no_longer_holds_is_passed_over_with_a_word() -> None:
    """It stays stored: else the next change of something else would drop it for good, unseen."""
    stored = {"retention.ms": "5", "max.message.bytes": "9000000", "segment.ms": "0"}
    config, problems = restored_config({**stored, "of.a.later.version": "1"}, SMALL_SEGMENTS)
    assert (config.retention_ms, config.max_message_bytes) == (5, SMALL_SEGMENTS.largest_batch_bytes)
    assert config.segment_ms == TopicConfig().segment_ms
    assert config.overrides == stored
    named = ("segment.ms=0", "of.a.later.version", f"max.message.bytes={config.max_message_bytes}")
    assert len(problems) == 3
    for problem, name in zip(problems, named, strict=True):
        assert name.replace("=0", "") in problem
    with pytest.raises(InvalidTopicConfig, match=r"max\.message\.bytes"):
        topic_config({"max.message.bytes": "9000000"}, SMALL_SEGMENTS)


def test_a_topic_stays_in_its_log_group_whatever_is_configured() -> None:
    """The setting counts for new clusters only, and how many log groups there are is not known here."""
    config, problems = restored_config({"lockstep.group": "3", "max.message.bytes": "9000000"}, Settings())
    assert (config.lockstep_group, problems) == (3, [])


@each_case(("policy", "left"), [("compact", ()), ("compact,delete", ("delete",))])
def test_locks_outlive_brokers_that_compact(policy: str, left: tuple[str, ...]) -> None:
    """Writers rely on them: without them each would be told that its conditions held."""
    settings = from_texts({"log.cleanup.policy": policy})
    with pytest.raises(InvalidTopicConfig, match=r"conflict topic config setting lockstep\.locks"):
        topic_config({"lockstep.locks": "true"}, settings)
    config, problems = restored_config({"lockstep.locks": "true"}, settings)
    assert (config.lockstep_locks, config.cleanup_policy) == ("true", left)
    assert len(problems) == 1 and f"in force: cleanup.policy={','.join(left)}" in problems[0]


def test_a_topics_own_lag_goes_before_the_brokers() -> None:
    least = from_texts({"log.cleaner.min.compaction.lag.ms": "100"})
    most = from_texts({"log.cleaner.max.compaction.lag.ms": "100"})
    for name, settings in (("max.compaction.lag.ms", least), ("min.compaction.lag.ms", most)):
        text = "50" if settings is least else "150"
        config, problems = restored_config({name: text}, settings)
        assert config.min_compaction_lag_ms == config.max_compaction_lag_ms == int(text)
        assert "conflict topic config setting min.compaction.lag.ms" in problems[0]


def test_an_empty_list_is_a_policy_too() -> None:
    assert topic_config({"cleanup.policy": ""}, Settings()).cleanup_policy == ()
    assert topic_config({"cleanup.policy": "delete, delete"}, Settings()).cleanup_policy == ("delete",)


@each_case(
    ("name", "meant"),
    [("retenion.ms", "retention.ms"), ("log.cleanup.policy", "cleanup.policy"), ("no.such.config", "")],
)
def test_an_unknown_name_brings_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(InvalidTopicConfig) as refused:
        topic_config({name: "1"}, Settings())
    hint = f"; did you mean {meant}?" if meant else ""
    assert str(refused.value) == f"Unknown topic config name: {name}{hint}"


def test_a_refusal_quotes_no_more_than_a_string_of_the_wire_holds() -> None:
    for texts in ({"retention.ms": "9" * 40_000}, {"x" * 40_000: "1"}):
        with pytest.raises(InvalidTopicConfig) as refused:
            topic_config(texts, Settings())
        assert len(str(refused.value)) < 1_000


def test_what_follows_the_cleaner_s_settings() -> None:
    settings = from_texts(
        {
            "log.cleaner.delete.retention.ms": "1",
            "log.cleaner.min.cleanable.ratio": "0.75",
            "log.cleaner.min.compaction.lag.ms": "2",
            "log.cleaner.max.compaction.lag.ms": "3",
            "log.cleanup.policy": "compact",
        }
    )
    config = topic_config({}, settings)
    assert (config.delete_retention_ms, config.min_cleanable_dirty_ratio) == (1, 0.75)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms, config.is_compacted) == (2, 3, True)
    with pytest.raises(InvalidTopicConfig, match=r"conflict topic config setting min\.compaction\.lag\.ms"):
        topic_config({"max.compaction.lag.ms": "1"}, settings)
