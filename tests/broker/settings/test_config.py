"""Settings: sources and their order, what warns, what stops the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.broker.settings.addresses import parse_listener
from lockstep.broker.settings.config import PROPERTIES, Settings
from lockstep.broker.settings.kafka_names import UNUSED_KAFKA_NAMES
from lockstep.broker.settings.loader import load
from lockstep.broker.settings.properties import INT64_MAX, ConfigError
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.broker.settings.topic_default_settings import (
    BROKERS_WITHOUT_EFFECT,
    WARNINGS_AT_START,
)
from tests.support.cases import each_case


def test_sources_in_order(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.hours=1\nmessage.max.bytes : 5000\n# no\nbroker.id=7\n")
    settings = load(file, ["log.retention.hours=2", "message.max.bytes=6000"], {"message.max.bytes": "7000"})
    assert (settings.num_partitions, settings.log_retention_hours, settings.message_max_bytes) == (2, 2, 7000)
    assert settings.node_id == 7
    assert settings.log_flush == "always"
    assert settings.explicit["num.partitions"] == "2"
    assert "log.flush" not in settings.explicit


def test_a_file_written_for_kafka_starts_with_warnings(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "num.network.threads=3\nsocket.send.buffer.bytes=102400\n"
        "log.dirs=/somewhere\nlog.segment.bytes=1073741824\nlog.retention.check.interval.ms=300000\n"
    )
    settings = load(file)
    assert [str(listener) for listener in settings.client_listeners()] == ["PLAINTEXT://:9092"]
    assert str(settings.advertised_by_name()["PLAINTEXT"]) == "PLAINTEXT://localhost:9092"
    text = "\n".join(settings.warnings)
    unused = (
        "process.roles, controller.quorum.bootstrap.servers, inter.broker.listener.name, num.network.threads"
    )
    assert f"without effect here: {unused}\n" in text, "all names in one line"
    assert "log.segment.bytes counts for compacted topics only: lockstep.segment.bytes" in text
    assert "log.dirs" not in text
    assert text.count("listeners: CONTROLLER://:9093 is not served: there is no controller listener") == 1


@each_case("name", BROKERS_WITHOUT_EFFECT)
def test_what_is_kept_without_effect_warns_of_any_value_but_kafkas_default(name: str) -> None:
    attribute, declared = PROPERTIES[name]
    assert from_texts({name: declared.show(declared.default) or ""}).warnings == ()
    text = "true" if name == "unclean.leader.election.enable" else "5"
    kept = from_texts({name: text})
    assert kept.warnings == (f"{name} has no effect here: {BROKERS_WITHOUT_EFFECT[name]}",)
    assert (declared.show(getattr(kept, attribute)), kept.explicit) == (text, {name: text})
    with pytest.raises(ConfigError, match=name):
        from_texts({name: "x"})


@each_case("name", WARNINGS_AT_START)
def test_settings_with_little_effect_are_logged_at_the_start(name: str) -> None:
    attribute, declared = PROPERTIES[name]
    text = "true" if name == "log.preallocate" else "2000000"
    settings = from_texts({name: text})
    assert settings.warnings == (f"{name} {WARNINGS_AT_START[name]}",)
    assert (getattr(settings, attribute), settings.explicit) == (declared.parse(text), {name: text})


@each_case(
    "name", ["log.flush.interval.messages", "log.flush.interval.ms", "log.flush.scheduler.interval.ms"]
)
def test_a_start_without_flushes_fails_where_a_flush_is_configured(name: str) -> None:
    """As of a topic; warned of alone, it would be a promise that nobody keeps."""
    with pytest.raises(ConfigError, match=r"cannot be kept with log\.flush=os") as refused:
        from_texts({"log.flush": "os", name: "5"})
    assert (refused.value.key, refused.value.value) == (name, "5")
    from_texts({"log.flush": "os", name: str(INT64_MAX)})
    from_texts({"log.flush": "always", name: "5"})


def test_a_listener_for_peers_without_peers_warns() -> None:
    listener = {"lockstep.peers.listener": "localhost:29092"}
    (warning,) = from_texts(listener).warnings
    assert warning.startswith("lockstep.peers.listener has no effect without lockstep.peers")
    assert from_texts({**listener, "lockstep.peers": "1@a:1,2@b:1"}).warnings == ()
    assert from_texts({"lockstep.peers.listener": ""}).warnings == ()


@each_case(
    "assignment",
    [
        "num.partition=3",
        "num.partitions=0",
        "num.partitions=many",
        "log.flush=sometimes",
        "auto.create.topics.enable=perhaps",
        "lockstep.nothing=1",
        "listeners=KERBEROS://localhost:9093",
        "listeners=localhost",
        "listeners=localhost:70000",
        "listeners=A://h:1,A://h:2",
        "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners=OTHER://host:9092",
        "log.dirs=a,b",
        "log.dirs=",
        "compression.type=brotli",
        "log.cleanup.policy=compacted",
        "log.segment.bytes=1000",
        "log.roll.ms=0",
        "log.roll.hours=0",
        "log.index.size.max.bytes=3",
        "log.flush.interval.messages=0",
        "log.preallocate=perhaps",
        "min.insync.replicas=2",
        "group.min.session.timeout.ms=2000000",
        "default.replication.factor=3",
        "message.max.bytes=100000000",
        "socket.request.max.bytes=-1",
        "replica.selector.class=com.example.NearestReplicaSelector",
        "replica.selector.class=",
        "lockstep.metrics.listener=9644",
        "lockstep.metrics.listener=localhost",
        "lockstep.metrics.listener=localhost:70000",
        "lockstep.metrics.listener=http://localhost:9644",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=alice",
        "super.users=User:alice,User:bob;carol",
        "super.users=:alice",
        "allow.everyone.if.no.acl.found=perhaps",
    ],
)
def test_unknown_names_and_bad_values_stop_the_start(assignment: str) -> None:
    key = assignment.partition("=")[0]
    with pytest.raises(ConfigError) as refused:
        load(None, [assignment])
    assert refused.value.key == key
    assert key in str(refused.value)


STANDARD = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def test_the_authorizer() -> None:
    assert from_texts({"authorizer.class.name": " "}).authorizer_class_name == ""
    settings = from_texts({**STANDARD, "super.users": "User:a; User:CN=b,O=c ;"})
    assert settings.super_user_names() == ("User:a", "User:CN=b,O=c")
    assert settings.warnings == ()


@each_case(
    "texts, warning",
    [
        ({"super.users": "User:a"}, "super.users without authorizer.class.name"),
        ({"allow.everyone.if.no.acl.found": "true"}, "every client may do everything"),
        ({**STANDARD, "allow.everyone.if.no.acl.found": "true"}, "that no ACL is about"),
        ({**STANDARD, "super.users": "User:a,User:b"}, "one principal 'User:a,User:b': `;` separates"),
        ({**STANDARD, "super.users": "User:ANONYMOUS"}, "every client that does not authenticate"),
    ],
)
def test_settings_of_the_authorizer_that_leave_doors_open(texts: dict[str, str], warning: str) -> None:
    (line,) = from_texts(texts).warnings
    assert warning in line


def test_a_token_that_no_header_can_have() -> None:
    with pytest.raises(ConfigError, match=r"lockstep\.metrics\.token=\[hidden\]: a token has ASCII"):
        from_texts({"lockstep.metrics.token": "s\u00e9cret"}).metrics_listener()


def test_settings_of_metrics_without_their_listener_are_warned_of() -> None:
    texts = {"lockstep.metrics.token": "hush", "lockstep.metrics.security.protocol": "SSL"}
    reason = "has no effect without lockstep.metrics.listener: no metrics are served"
    assert set(from_texts(texts).warnings) == {f"{name} {reason}" for name in texts}
    assert from_texts({"lockstep.metrics.listener": ":0", "lockstep.metrics.token": "hush"}).warnings == ()


def test_a_least_above_the_most_stops_the_start() -> None:
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    with pytest.raises(ConfigError, match=f"{least}=9: more than {most}=8"):
        from_texts({least: "9", most: "8"})
    from_texts({least: "8", most: "8"})


@each_case(
    ("name", "meant"),
    [
        ("num.partition", "num.partitions"),
        ("log.retention.hour", "log.retention.hours"),
        ("Lockstep.Segment.Bytes", "lockstep.segment.bytes"),
        ("listener", "listeners"),
        ("brokerid", "broker.id"),
    ],
)
def test_an_unknown_name_brings_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"no such setting; did you mean {re.escape(meant)}\b.*\?$"):
        load(None, [f"{name}=1"])


def test_a_name_like_no_other_brings_none() -> None:
    with pytest.raises(ConfigError, match=r"there is no such setting$"):
        load(None, ["zebra=1"])


def test_a_refusal_names_the_file_it_is_about(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    for text in ("num.partition=3\n", "num.partitions=many\n", "broker.id=-1\n", "log.dirs=a,b\n"):
        file.write_text(text)
        with pytest.raises(ConfigError, match=rf"\(in {re.escape(str(file))}\)$"):
            load(file, ["log.retention.hours=1"])
    file.write_text("num.partitions=3\n")
    with pytest.raises(ConfigError) as refused:
        load(file, ["num.partitions=many"])
    assert str(file) not in str(refused.value)


@pytest.mark.parametrize(
    "texts",
    [
        {"listeners": "SASL_SSL://localhost:9092"},
        {"listeners": "PLAINTEXT://:9092,SSL://:9093"},
        {"listeners": "INSIDE://:9092", "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT"},
    ],
)
def test_an_address_does_not_serve_in_the_clear_what_was_to_be_encrypted(
    tmp_path: Path, texts: dict[str, str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
    lines = [f"{name}={text}" for name, text in texts.items()]
    flags = {"listeners": "localhost:9092"}
    with pytest.raises(ConfigError, match="--listen does not change that") as refused:
        load(None, lines, flags)
    assert (refused.value.key, "server.properties" in str(refused.value)) == ("listeners", False)
    with pytest.raises(ConfigError, match=rf"--listen.*\(in {re.escape(str(file))}\)$"):
        load(file, [], flags)
    plain = load(file, ["listeners=PLAINTEXT://localhost:9092"], flags)
    assert plain.warnings == (), "who names the protocol means it"


def test_listeners_that_an_address_goes_before_are_warned_of_once() -> None:
    flags = {"listeners": "localhost:9099"}
    moved = load(None, ["listeners=PLAINTEXT://:9092,C://:9093", "controller.listener.names=C"], flags)
    assert moved.warnings == (
        "listeners=PLAINTEXT://:9092,C://:9093 has no effect: --listen localhost:9099 overrides it",
    )
    assert [str(listener) for listener in moved.client_listeners()] == ["PLAINTEXT://localhost:9099"]
    assert load(None, ["listeners=PLAINTEXT://localhost:9099"], flags).warnings == ()
    assert load(None, ["listeners="], flags).client_listeners() == moved.client_listeners()
    assert load(None, [], flags).warnings == ()


def test_a_refused_address_is_not_the_files(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://:9092\n")
    with pytest.raises(ConfigError) as refused:
        load(file, [], {"listeners": "nonsense"})
    assert (refused.value.value, str(file) in str(refused.value)) == ("nonsense", False)


def test_both_numbers_of_a_node_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nnode.id=2\n")
    with pytest.raises(ConfigError, match=r"node.id=2: not the same as broker.id=1.*\(in .*properties\)$"):
        load(file)
    with pytest.raises(ConfigError, match=r"both number this node$"):
        load(None, ["node.id=2", "broker.id=1"])
    file.write_text("broker.id=7\nnode.id= 7\n")
    assert (load(file).node_id, load(file).warnings) == (7, ())
    assert load(file, ["broker.id=8"]).node_id == 8, "a later source wins"
    assert load(file, [], {"node.id": "9"}).node_id == 9


@pytest.mark.parametrize("lines", ["log.dir=/a\nlog.dirs=/b\n", "log.dirs=/b\nlog.dir=/a\n"])
def test_of_both_directories_kafkas_counts(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(lines)
    settings = load(file)
    assert (settings.log_dirs, settings.warnings) == ("/b", ("log.dir=/a has no effect beside log.dirs=/b",))
    assert load(file, ["log.dir=/c"]).log_dirs == "/c"
    file.write_text("log.dir=/a\nlog.dirs=/a\n")
    assert load(file).warnings == ()


def test_an_assignment_needs_an_equals_sign() -> None:
    with pytest.raises(ConfigError, match="key=value"):
        load(None, ["num.partitions"])


def test_retention_units() -> None:
    assert Settings().retention_ms == 168 * 3_600_000
    assert from_texts({"log.retention.hours": "-1"}).retention_ms == -1
    assert from_texts({"log.retention.minutes": "2"}).retention_ms == 120_000
    assert from_texts({"log.retention.minutes": "2", "log.retention.ms": "5"}).retention_ms == 5
    assert from_texts({"log.retention.ms": "-1"}).retention_ms == -1


def test_durations_in_hours_and_alternative_settings() -> None:
    plain = Settings()
    assert (plain.segment_ms, plain.segment_jitter_ms, plain.flush_ms) == (168 * 3_600_000, 0, INT64_MAX)
    hours = from_texts({"log.roll.hours": "2", "log.roll.jitter.hours": "1"})
    assert (hours.segment_ms, hours.segment_jitter_ms) == (7_200_000, 3_600_000)
    assert from_texts({"log.roll.hours": "2", "log.roll.ms": "5"}).segment_ms == 5
    assert from_texts({"log.roll.jitter.hours": "2", "log.roll.jitter.ms": "0"}).segment_jitter_ms == 0
    assert from_texts({"log.flush.scheduler.interval.ms": "9"}).flush_ms == 9
    both = {"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "0"}
    assert from_texts(both).flush_ms == 0


def test_listeners() -> None:
    listener = parse_listener("[::1]:9092")
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "::1", 9092)
    assert str(listener) == "PLAINTEXT://[::1]:9092"
    assert str(parse_listener("inside://10.0.0.1:1")) == "INSIDE://10.0.0.1:1"
    for text in ("", "a:b:9", "x://h:1/", "h:-1", "http://h:x"):
        with pytest.raises(ConfigError):
            parse_listener(text)


def test_listeners_are_shown_with_their_protocol_whatever_set_them(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=localhost:9099\n")
    for settings in (
        load(file, [], {}),
        load(None, ["listeners=localhost:9099"], {}),
        load(None, [], {"listeners": "localhost:9099"}),
    ):
        assert PROPERTIES["listeners"][1].show(settings.listeners) == "PLAINTEXT://localhost:9099"


def test_metrics_are_served_nowhere_by_default() -> None:
    assert Settings().metrics_listener() is None
    assert from_texts({"lockstep.metrics.listener": ""}).metrics_listener() is None
    listener = from_texts({"lockstep.metrics.listener": "[::1]:9644"}).metrics_listener()
    assert listener is not None
    assert (listener.host, listener.port) == ("::1", 9644)


def test_largest_batch_fits_a_segment() -> None:
    small = from_texts({"lockstep.segment.bytes": str(1 << 20), "message.max.bytes": "1000"})
    assert small.largest_batch_bytes < 1 << 19
    assert Settings().largest_batch_bytes > 1_048_588


def test_every_setting_has_a_reason_and_none_is_both_used_and_unused() -> None:
    for name, (attribute, declared) in PROPERTIES.items():
        assert len(declared.doc) > 10, name
        assert attribute == name.replace(".", "_")
        shown = declared.show(declared.default)
        if shown is not None:
            assert declared.parse(shown) == declared.default, name
    assert not UNUSED_KAFKA_NAMES & PROPERTIES.keys()
    assert len(UNUSED_KAFKA_NAMES) > 240


@each_case(
    ("setting", "form"),
    [
        ("lockstep.metrics.listener", ":9644"),
        ("lockstep.peers.listener", ":9644"),
        ("listeners", "PLAINTEXT://:9644"),
    ],
)
def test_a_bare_port_is_rejected_with_the_expected_form(setting: str, form: str) -> None:
    peers = {"lockstep.peers": "1@a:1,2@b:2"}
    with pytest.raises(ConfigError) as refused:
        from_texts({**peers, setting: "9644"})
    assert f"{form} is port 9644 of all addresses of this machine" in str(refused.value)
    assert from_texts({**peers, setting: form}).node_id == 1
