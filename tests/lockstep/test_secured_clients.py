"""Clients of others on encrypted listeners and with logins: records pass, failures name their reason."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaConnectionError

from compat_tests.probe import HOST
from tests.support.certificates import DAY, NOW, Issued
from tests.support.secured import AUTHORITY, FOREIGN, USERS, SecuredTarget

REASON_SECONDS = 10.0
"""A client names its reason within two seconds; a busy machine takes longer."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTarget]:
    with SecuredTarget(tmp_path_factory.mktemp("secured")) as found:
        found.add_users()
        yield found


def ca(target: SecuredTarget) -> str:
    return target.settings["ssl.truststore.location"]


def librdkafka(target: SecuredTarget, mechanism: str = "", password: str = "") -> dict[str, Any]:
    settings = {"security.protocol": "ssl", "ssl.ca.location": ca(target), "log_level": 0}
    if mechanism:
        user, right = USERS[mechanism]
        settings |= {"security.protocol": "sasl_ssl", "sasl.mechanism": mechanism}
        settings |= {"sasl.username": user, "sasl.password": password or right}
    return settings


def produce(port: int, settings: dict[str, Any]) -> str:
    """Produce one record with librdkafka; returns its error, empty for none."""
    told: list[str] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": f"{HOST}:{port}", "error_cb": lambda error: told.append(str(error)), **settings}
    )
    producer.produce("t", b"x" * 50_000, on_delivery=lambda error, message: told.append(str(error or "")))
    for _ in range(int(REASON_SECONDS * 10)):
        if told:
            break
        producer.poll(0.1)
    producer.purge()
    return told[0] if told else "nothing was told"


def with_certificate(issued: Issued, directory: Path) -> dict[str, str]:
    path = str(issued.write_pem(directory / "client.pem"))
    return {"ssl.certificate.location": path, "ssl.key.location": path}


def test_librdkafka_over_tls(target: SecuredTarget, tmp_path: Path) -> None:
    assert produce(target.tls, librdkafka(target)) == ""
    alice = with_certificate(AUTHORITY.issue("alice", names=()), tmp_path)
    assert produce(target.certified, librdkafka(target) | alice) == ""


@pytest.mark.parametrize("mechanism", USERS)
def test_each_mechanism_with_three_clients(target: SecuredTarget, mechanism: str) -> None:
    assert produce(target.login, librdkafka(target, mechanism)) == ""
    user, password = USERS[mechanism]
    login = {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    where = {"bootstrap_servers": f"{HOST}:{target.login}", "security_protocol": "SASL_SSL", **login}
    other = kafka.KafkaProducer(ssl_cafile=ca(target), **where)
    assert other.send("t", b"x").get(REASON_SECONDS).offset > 0
    other.close()

    async def read() -> bytes:
        context = ssl.create_default_context(cafile=ca(target))
        consumer = aiokafka.AIOKafkaConsumer("t", ssl_context=context, auto_offset_reset="earliest", **where)
        await consumer.start()
        try:
            return bytes((await asyncio.wait_for(consumer.getone(), REASON_SECONDS)).value)
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == b"x" * 50_000


def test_reasons_that_librdkafka_names(target: SecuredTarget, tmp_path: Path) -> None:
    trusting = librdkafka(target)
    late = with_certificate(AUTHORITY.issue("late", names=(), ends=NOW - DAY / 2), tmp_path)
    (tmp_path / "foreign").mkdir()
    stranger = with_certificate(FOREIGN.issue("stranger", names=()), tmp_path / "foreign")
    foreign_ca = str(FOREIGN.write_pem(tmp_path / "foreign.pem"))
    cases = [
        (target.certified, trusting, "certificate required"),
        (target.certified, trusting | late, "certificate expired"),
        (target.certified, trusting | stranger, "unknown ca"),
        (target.tls, trusting | {"ssl.ca.location": foreign_ca}, "certificate verify failed"),
        (target.port, trusting, "SSL connection closed by peer"),
        (target.login, librdkafka(target, "PLAIN", "wrong"), "Invalid username or password"),
        (
            target.login,
            librdkafka(target, "SCRAM-SHA-512", "wrong"),
            "invalid credentials with SASL mechanism",
        ),
        (target.tls, librdkafka(target, "PLAIN"), "not valid in current SASL state"),
    ]
    for port, settings, reason in cases:
        assert reason in produce(port, settings), reason
    line = "listener CERTIFIED: TLS handshake failed: the client has no certificate"
    assert target.log_path.read_text().count(line) == 1


def test_a_wrong_password_with_aiokafka(target: SecuredTarget) -> None:
    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=f"{HOST}:{target.login}",
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=ca(target)),
            sasl_mechanism="PLAIN",
            sasl_plain_username="nobody",
            sasl_plain_password="wrong",
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(start())
