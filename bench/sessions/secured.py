"""A session of a broker with two listeners, PLAINTEXT and SASL_SSL, whose jobs use the one or the other.

Owns: the keys, the user and the settings, which are the same for every broker of a run. The SASL_SSL listener
has TLS without client certificates; clients speak TLS 1.3 and log in by SCRAM-SHA-512.
Topics are made and records are counted over the plaintext listener. Does not: know what is measured.
"""

from __future__ import annotations

import datetime
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import Encoding

from bench.sessions.jobs import RoundFailed, Running
from bench.sessions.session import Session
from bench.sessions.setup import Setup
from bench.settings import Sizes
from compat_tests.probe import HOST, free_port
from compat_tests.targets import Target
from lockstep.broker.security.certificate_authority import CertificateAuthority

PLAIN, TLS = "plain", "tls"
"""The names of the two listeners in blocks and ratios."""
PROTOCOLS: Final = {TLS: "SASL_SSL", PLAIN: "PLAINTEXT"}
"""The protocol of each."""
LISTENER: Final = "SECURED"
MECHANISM: Final = "SCRAM-SHA-512"
USER, PASSWORD = "bench", "bench-secret"
ITERATIONS: Final = 4096
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER_WAIT_S: Final = 30.0
DAYS: Final = 30


class Credentials:
    """An authority and a broker's certificate, as files in a directory."""

    def __init__(self, directory: Path) -> None:
        now = datetime.datetime.now(datetime.UTC)
        authority = CertificateAuthority.create("bench", now, DAYS)
        broker = authority.issue_node(1, ["localhost", HOST], now, DAYS)
        self._authority, self._broker = directory / "ca.pem", directory / "broker.pem"
        self._authority.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
        self._broker.write_bytes(broker.key_pem + broker.certificate_pem)

    def broker_settings(self) -> dict[str, str]:
        """The settings of a broker, beside its listeners."""
        prefix = f"listener.name.{LISTENER.lower()}"
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker),
            f"{prefix}.sasl.enabled.mechanisms": MECHANISM,
            f"{prefix}.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        }

    def client_properties(self) -> dict[str, str]:
        """The properties of a client that logs in."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{USER}" password="{PASSWORD}";',
        }


class SecuredSession(Session):
    """A broker whose jobs connect to `listener`."""

    def __init__(self, side: str, setup: Setup, sizes: Sizes, parent: Path, credentials: Credentials) -> None:
        self.listener = PLAIN
        self._credentials = credentials
        self._secured_port = free_port()
        super().__init__(side, setup, sizes, parent)

    def _make_target(self) -> Running:
        target = super()._make_target()
        assert isinstance(target, Target)
        target.beside[LISTENER] = PROTOCOLS[TLS], self._secured_port
        target.settings |= self._credentials.broker_settings()
        return target

    def open(self) -> None:
        """Start the broker, make its user, warm it up. RoundFailed, TargetFailed."""
        self.start_s = self.target.start()
        self._make_user()
        self.listener = TLS
        self.more["tls"] = self.job("describe_tls")
        self._warm_up()

    def start_job(self, name: str, **words: Any) -> subprocess.Popen[str]:
        """Like `Session.start_job`, to `listener`."""
        if self.listener == TLS:
            security: Mapping[str, str] = self._credentials.client_properties()
            words = {"port": self._secured_port, "security": security, **words}
        return super().start_job(name, **words)

    def _warm_slice(self, topic: str, producers: int) -> int:
        """Over both listeners."""
        requests = 0
        for listener in PROTOCOLS:
            self.listener = listener
            requests += super()._warm_slice(topic, producers)
        return requests

    def _make_user(self) -> None:
        """Returns when the broker knows the user. RoundFailed."""
        admin = AdminClient({"bootstrap.servers": self.target.bootstrap, "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        deadline = time.monotonic() + USER_WAIT_S
        try:
            admin.alter_user_scram_credentials([upsertion])[USER].result(USER_WAIT_S)
            while not self._knows_user(admin):
                if time.monotonic() > deadline:
                    raise RoundFailed(f"{self.kind} does not know its user after {USER_WAIT_S:.0f} s")
                time.sleep(0.05)
        except KafkaException as error:
            raise RoundFailed(f"{self.kind}: no user: {error}") from error

    @staticmethod
    def _knows_user(admin: AdminClient) -> bool:
        described = admin.describe_user_scram_credentials()
        assert isinstance(described, Future)
        return USER in described.result(USER_WAIT_S)
