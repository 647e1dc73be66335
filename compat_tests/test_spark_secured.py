"""Source and sink of the connector over TLS, with a login and by certificate, in a real Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import harness
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.java import java_words
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.line_driver import DriverFailed
from compat_tests.secured.brokers import CERTIFIED, LOGIN, SecuredTarget
from compat_tests.spark_face import as_text, values_of
from compat_tests.targets import KafkaTarget, LockstepTarget

_AREA = "Spark connector, secured"
_LOGINS = pytest.mark.parametrize("login", ["SCRAM-SHA-512", "mTLS"])
_TIERS = {KafkaTarget.name: "release", LockstepTarget.name: "rest"}


def _on(*names: str) -> pytest.MarkDecorator:
    """The brokers of a case."""
    found = [
        pytest.param(name, id=f"on-{name}", marks=pytest.mark.tier(name=_TIERS[name]))
        for name in harness.wanted_targets()
        if name in names
    ]
    return pytest.mark.parametrize("target", found, indirect=True)


@pytest.fixture
def target(request: pytest.FixtureRequest, world: World) -> Iterator[SecuredTarget]:
    found = world.secured(request.param)
    yield found
    assert found.running, f"the broker died during this case:\n{found.log_tail()}"


def _options(target: SecuredTarget, login: str, password: str = "") -> dict[str, str]:
    """The options of source and sink, but for the topic."""
    own = target.credentials
    security = own.certified(own.client) if login == "mTLS" else own.login(login, password=password)
    listener = CERTIFIED if login == "mTLS" else LOGIN
    words = {"bootstrap.servers": target.bootstrap_of(listener), **java_words(security)}
    return {f"kafka.{name}": value for name, value in words.items()}


def _rows(count: int) -> list[dict[str, str]]:
    return [{"value": as_text(b"%d" % number)} for number in range(count)]


def _values(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


@pytest.mark.case(_AREA, "{login}: the source reads, in a batch and a stream, what Spark's own sink wrote")
@_LOGINS
@_on(KafkaTarget.name, LockstepTarget.name)
def test_source(world: World, target: SecuredTarget, new_topic: NewTopic, tmp_path: Path, login: str) -> None:
    session, topic, options = world.spark_connector(), new_topic(partitions=2), _options(target, login)
    session.ask("write", {**options, "topic": topic}, rows=_rows(20), columns=["value"], sink="kafka")
    reading = {**options, "subscribe": topic, "startingOffsets": "earliest"}
    rows = session.ask("read", reading, source="lockstep")["rows"]
    assert sorted(values_of(rows)) == _values(20)
    found = session.ask("stream", reading, directory=str(tmp_path), source="lockstep")
    assert found["taken"] == 20 and sorted(values_of(found["rows"])) == _values(20)


@pytest.mark.case(_AREA, "{login}: the exactly-once sink writes a batch, and a stream from the source")
@_LOGINS
@_on(LockstepTarget.name)
def test_sink(world: World, target: SecuredTarget, new_topic: NewTopic, tmp_path: Path, login: str) -> None:
    session, options = world.spark_connector(), _options(target, login)
    source, sink = new_topic(partitions=2), new_topic(partitions=2)
    session.ask("write", {**options, "topic": source}, rows=_rows(30), columns=["value"], sink="lockstep")
    reading = {**options, "subscribe": source, "startingOffsets": "earliest"}
    words = {"from": reading, "source": "lockstep", "directory": str(tmp_path)}
    assert session.ask("copy_exactly", {**options, "topic": sink}, **words) == 30
    reader = world.connected(Confluent.name, target.bootstrap)
    found = reader.read(sink, 30, partitions=range(2), isolation="read_committed")
    assert sorted(each.value or b"" for each in found) == _values(30)


@_on(LockstepTarget.name)
def test_a_wrong_password_ends_the_query(world: World, target: SecuredTarget) -> None:
    given = {**_options(target, "SCRAM-SHA-512", password="wr0ng"), "subscribe": "t"}
    with pytest.raises(DriverFailed, match="rejects the login by SCRAM-SHA-512") as told:
        world.spark_connector().ask("read", given, source="lockstep")
    assert "wr0ng" not in str(told.value)
