"""Properties files of others: what starts with a warning, what is a mistake, and references to values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.broker.settings.loader import load
from lockstep.broker.settings.properties import ConfigError
from tests.support.cases import each_case

FILES = {
    "an image with client settings": "max.partition.fetch.bytes=1048576\nmax.request.size=1048576\n"
    "transaction.timeout.ms=5\nfetch.min.bytes=1\nsend.buffer.bytes=1\nreceive.buffer.bytes=1\n",
    "a distribution's own names": "confluent.license.topic.replication.factor=1\n"
    "confluent.balancer.enable=true\nconfluent.support.metrics.enable=false\nauto.include.jmx.reporter=true\n",
    "an operator of Kafka 3": "log.message.format.version=3.0\ninter.broker.protocol.version=3.0\n",
    "left from ZooKeeper": "zookeeper.connect=localhost:2181\nzookeeper.connection.timeout.ms=18000\n"
    "broker.id.generation.enable=true\ncontrol.plane.listener.name=CONTROLLER\n",
    "Kafka 4.4.0's new names": "errors.deadletterqueue.auto.create.topics.enable=false\n"
    "group.streams.assignors=sticky\nsasl.oauthbearer.assertion.claim.jti.include=false\n",
    "addresses of Kafka 2": "host.name=localhost\nport=9092\nadvertised.host.name=h\nadvertised.port=9092\n",
    "a plug-in's": "com.example.audit.topic=audit\n",
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_kafka_starts_with_starts_and_one_line_has_all_names(what: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"num.partitions=3\n{FILES[what]}")
    settings = load(file)
    assert settings.num_partitions == 3
    (warning,) = settings.warnings
    assert warning.startswith("without effect here: ")
    for line in FILES[what].splitlines():
        assert line.partition("=")[0] in warning


def test_names_with_one_reason_stand_together(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=x\nnum.io.threads=8\nport=9092\nzookeeper.set.acl=y\n")
    assert load(file).warnings == (
        "without effect here: num.io.threads, zookeeper.connect, zookeeper.set.acl (there is no ZooKeeper), "
        "port (replaced by listeners)",
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("log.retention.hrs", "log.retention.hours"),
        ("retention.hours", "log.retention.hours"),
        ("auto.create.topic.enabled", "auto.create.topics.enable"),
        ("log_retention_hours", "log.retention.hours"),
        ("LOG.DIRS", "log.dirs"),
        ("num.partition", "num.partitions"),
        ("authorizer.class.nam", "authorizer.class.name"),
        ("config.provider", "config.providers"),
        ("retention.ms", "log.retention.ms"),
        ("cleanup.policy", "log.cleanup.policy"),
        ("lockstep.nothing.like.it", None),
    ],
)
def test_a_mistake_in_a_name_stops_the_start(name: str, meant: str | None, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{name}=1\nconfluent.balancer.enable=true\n")
    with pytest.raises(ConfigError, match=rf"^{name}=1: there is no such setting") as refused:
        load(file)
    assert meant is None or meant in str(refused.value)


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partition=3\nlog.flush=sometimes\nretention.hour=1\nauthorizer.class.name=A\n")
    with pytest.raises(ConfigError) as refused:
        load(file, ["log.retention.bytes=many"])
    told = str(refused.value)
    for name in ("num.partition=3", "log.flush=sometimes", "retention.hour=1", "authorizer.class.name=A"):
        assert told.count(f"{name}: ") == 1
    assert told.count(f"(in {file})") == 4
    assert told.endswith("log.retention.bytes=many: not a whole number")


def test_unresolved_references_are_reported_with_all_other_errors(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "ssl.keystore.password=${env:NOT_THERE}\nnum.partitions=${env:NOR_THIS}\nnum.partition=3\n"
    )
    with pytest.raises(ConfigError) as refused:
        load(file, flags={"listeners": "localhost:0"})
    told = str(refused.value)
    for mistake in (
        "ssl.keystore.password=${env:NOT_THERE}: there is no environment variable NOT_THERE",
        "num.partitions=${env:NOR_THIS}: there is no environment variable NOR_THIS",
        "num.partition=3: there is no such setting",
    ):
        assert told.count(mistake) == 1
    assert told.count(f"(in {file})") == 3


def test_an_unusable_provider_is_reported_once_with_other_errors(tmp_path: Path) -> None:
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    file = tmp_path / "server.properties"
    file.write_text(
        f"config.providers=file\nconfig.providers.file.class={provider}\n"
        f"config.providers.file.param.allowed.paths={tmp_path / 'absent'}\n"
        "num.partitions=${file:/a:b}\nlog.retention.ms=${file:/a:c}\nlog.flush=sometimes\n"
    )
    with pytest.raises(ConfigError) as refused:
        load(file)
    told = str(refused.value)
    assert told.count("allowed.paths=") == 1 and "log.flush=sometimes: " in told
    assert "num.partitions" not in told and "log.retention.ms" not in told


def test_conflicts_between_settings_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    mistakes = (
        "log.dirs=/a,/b",
        "min.insync.replicas=2",
        "default.replication.factor=3",
        "offsets.topic.replication.factor=3",
    )
    file.write_text(
        "listeners=TLS://:1,SASL_SSL://:2\nlistener.security.protocol.map=TLS:TLS,SASL_SSL:KERBEROS\n"
        + "\n".join(mistakes)
    )
    with pytest.raises(ConfigError) as refused:
        load(file)
    told = str(refused.value)
    listeners = ("listeners=TLS://:1: TLS is not", "listeners=SASL_SSL://:2: KERBEROS is not")
    for mistake in (*(f"{each}: " for each in mistakes), *listeners):
        assert told.count(mistake) == 1


def test_each_listener_that_listen_does_not_change_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=SASL_PLAINTEXT://:1,SASL_SSL://:2\n")
    with pytest.raises(ConfigError) as refused:
        load(file, flags={"listeners": "localhost:0"})
    told = str(refused.value)
    assert told.count(" would be plaintext at") == 2 and told.count("--listen does not change that") == 1


def test_a_name_that_nobody_knows_is_a_mistake_where_it_is_typed() -> None:
    with pytest.raises(ConfigError, match=r"^zebra=1: there is no such setting$"):
        load(None, ["zebra=1"])
    assert load(None, ["num.io.threads=8"]).warnings == ("without effect here: num.io.threads",)


PROVIDERS = (
    "config.providers=env,file,directory\n"
    "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
    "config.providers.directory.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
)


def test_values_that_are_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PORT", "19092")
    (tmp_path / "node.properties").write_text("rack=r1\nport=9\n")
    (tmp_path / "partitions").write_text("5\n")
    file = tmp_path / "server.properties"
    file.write_text(
        f"{PROVIDERS}listeners=PLAINTEXT://localhost:${{env:BROKER_PORT}}\n"
        f"broker.rack=${{file:{tmp_path}/node.properties:rack}}\n"
        f"num.partitions=${{directory:{tmp_path}:partitions}}\nsasl.login.class=${{vault:a:b}}\n"
        "config.providers.vault.class=com.example.Vault\n"
    )
    text = file.read_text().replace("env,file,directory", "env,file,directory,vault")
    file.write_text(text)
    settings = load(file)
    assert (settings.client_listeners()[0].port, settings.broker_rack, settings.num_partitions) == (
        19092,
        "r1",
        5,
    )
    assert settings.warnings == ("without effect here: sasl.login.class",)
    assert load(file, ["broker.rack=${env:BROKER_PORT}"]).broker_rack == "19092"


def test_no_error_shows_what_a_reference_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hush-hush")
    file = tmp_path / "server.properties"
    for line in (
        "num.partitions=${env:SECRET}",
        "listeners=${env:SECRET}",
        "advertised.listeners=${env:SECRET}",
        "num.partition=${env:SECRET}",
        "authorizer.class.name=${env:SECRET}",
        "lockstep.metrics.listener=${env:SECRET}",
        "log.dirs=${env:SECRET},b",
    ):
        file.write_text(f"{PROVIDERS}{line}\nlog.flush=sometimes\n")
        for text in (file.read_text(), file.read_text().replace("log.flush=sometimes\n", "")):
            file.write_text(text)
            with pytest.raises(ConfigError) as refused:
                load(file)
            assert "hush-hush" not in repr(refused.value) + str(refused.value)
            assert re.search(r"\$\{env:SECRET\}|log\.flush", str(refused.value))
            assert f"(in {file})" in str(refused.value)


@each_case("flags", [{"listeners": "localhost:9092"}, {}])
def test_listeners_are_shown_with_their_protocol_also_where_it_was_omitted(flags: dict[str, str]) -> None:
    assigned = (
        []
        if flags
        else ["listeners=localhost:9092, [::1]:9093", "listener.security.protocol.map=A:PLAINTEXT"]
    )
    if flags:
        assert load(None, assigned, flags).listeners == ("PLAINTEXT://localhost:9092",)
        assert load(None, assigned, flags).explicit["listeners"] == "PLAINTEXT://localhost:9092"
    else:
        settings = load(None, ["listeners=a://localhost:9092,[::1]:9093", *assigned[1:]], flags)
        assert settings.explicit["listeners"] == "A://localhost:9092,PLAINTEXT://[::1]:9093"
    told = load(None, ["advertised.listeners=h:1"])
    assert told.advertised_listeners == ("PLAINTEXT://h:1",)
