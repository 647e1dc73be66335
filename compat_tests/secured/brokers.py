"""One Lockstep and one Apache Kafka with the same secured listeners, and all that clients need to connect.

Owns: `Credentials` (a CA, certificates and a token in a directory of their own), the listeners and
their settings, the users. `alice`, by each mechanism, and the client certificate may do everything; `bob`
only what a case allows him. The PLAINTEXT listener, whose clients may do everything, is for administration.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compat_tests.clients.security import OAUTHBEARER, Security
from compat_tests.kafka_jars import SHORT_LIVED
from compat_tests.probe import HOST, free_port
from compat_tests.raw import RawConnection
from compat_tests.targets import KafkaTarget, LockstepTarget, Target
from compat_tests.until import until
from tests.support.certificates import DAY, NOW, SelfSignedCa

SCRAM: Mapping[str, tuple[int, str]] = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""Mechanism -> its number in Kafka's protocol, its hash."""
MECHANISMS = (*SCRAM, "PLAIN", OAUTHBEARER)
PASSWORDS = {"alice": "alice's, secret=1", "bob": "bob-secret"}
LOGIN, ONE_MECHANISM, CERTIFIED, PLAINTEXT = "LOGIN", "SCRAM", "CERTIFIED", "PLAINTEXT"
_PROTOCOLS = {LOGIN: "SASL_SSL", ONE_MECHANISM: "SASL_SSL", CERTIFIED: "SSL"}
_ITERATIONS = 4096
_TOKEN_S = 6 * 3600
_PACKAGE = "org.apache.kafka.common.security"
_SCRAM_LOGIN = f"{_PACKAGE}.scram.ScramLoginModule required;"


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A listener, and the security settings of a client for it."""

    listener: str
    security: Security


class Credentials:
    """Files in a directory that lives as long as the broker."""

    def __init__(self, directory: Path) -> None:
        from tests.support import tokens  # makes keys

        ours, foreign = SelfSignedCa(), SelfSignedCa("Foreign")
        self.ca = str(ours.write_pem(directory / "ca.pem"))
        self.foreign_ca = str(foreign.write_pem(directory / "foreign-ca.pem"))
        self.broker = str(ours.issue("broker").write_pem(directory / "broker.pem"))
        self.client = str(ours.issue("client", names=()).write_pem(directory / "client.pem"))
        late = ours.issue("late", names=(), ends=NOW - DAY / 2)
        self.expired = str(late.write_pem(directory / "expired.pem"))
        self.untrusted = str(foreign.issue("client", names=()).write_pem(directory / "untrusted.pem"))
        self.keys = directory / "keys.json"
        self.keys.write_text(json.dumps(tokens.jwks(tokens.RSA)))
        now = int(time.time())
        self.token = directory / "token"
        self.token.write_text(tokens.signed(tokens.claims(now, exp=now + _TOKEN_S)))
        self.issuer, self.audience = tokens.ISSUER, tokens.AUDIENCE

    def login(self, mechanism: str, user: str = "alice", password: str = "") -> Security:
        if mechanism == OAUTHBEARER:
            return Security("SASL_SSL", ca=self.ca, mechanism=mechanism, token_file=str(self.token))
        password = password or PASSWORDS[user]
        return Security("SASL_SSL", ca=self.ca, mechanism=mechanism, username=user, password=password)

    def certified(self, identity: str = "") -> Security:
        return Security("SSL", ca=self.ca, identity=identity)

    def settings(self) -> dict[str, str]:
        """The settings of both brokers."""
        login = f"listener.name.{LOGIN.lower()}"
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        oauth = f"{login}.oauthbearer.sasl"
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            f"listener.name.{CERTIFIED.lower()}.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"listener.name.{ONE_MECHANISM.lower()}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"listener.name.{ONE_MECHANISM.lower()}.scram-sha-512.sasl.jaas.config": _SCRAM_LOGIN,
            **{f"{login}.{name.lower()}.sasl.jaas.config": _SCRAM_LOGIN for name in SCRAM},
            f"{login}.plain.sasl.jaas.config": f"{_PACKAGE}.plain.PlainLoginModule required {users};",
            f"{oauth}.jaas.config": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required;",
            f"{oauth}.server.callback.handler.class": (
                f"{_PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": self.issuer,
            "sasl.oauthbearer.expected.audience": self.audience,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
        }


class SecuredTarget(Target):
    """The listeners and the users; before `LockstepTarget` or `KafkaTarget` among the bases."""

    credentials: Credentials
    credentials_directory: Path

    def _prepare(self) -> None:
        taken = {self.port}
        for name, protocol in _PROTOCOLS.items():
            port = free_port()
            assert port not in taken
            taken.add(port)
            self.beside[name] = protocol, port
        super()._prepare()

    def start(self) -> float:
        seconds = super().start()
        with RawConnection(HOST, self.port) as raw:
            for mechanism in SCRAM:
                add_users(raw, mechanism)
        return seconds

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.credentials_directory, ignore_errors=True)

    def bootstrap_of(self, listener: str) -> str:
        return self.bootstrap if listener == PLAINTEXT else f"{HOST}:{self.beside[listener][1]}"


class SecuredLockstep(SecuredTarget, LockstepTarget):
    name = "lockstep-secured"

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.credentials_directory = Path(tempfile.mkdtemp(prefix="lockstep-credentials-"))
        self.credentials = Credentials(self.credentials_directory)
        super().__init__({**settings, **self.credentials.settings()})


class SecuredKafka(SecuredTarget, KafkaTarget):
    name = "kafka-secured"

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.credentials_directory = Path(tempfile.mkdtemp(prefix="kafka-credentials-"))
        self.credentials = Credentials(self.credentials_directory)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.credentials.keys.as_uri()}"
        merged = {**settings, **self.credentials.settings()}
        KafkaTarget.__init__(self, merged, heap="512M", jvm=(*SHORT_LIVED, allowed))


def add_users(raw: RawConnection, mechanism: str) -> None:
    """Set the passwords and wait until the broker knows them: Apache Kafka does a little later."""
    number, hash_name = SCRAM[mechanism]
    upsertions = []
    for user, password in PASSWORDS.items():
        salt = os.urandom(16)
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, _ITERATIONS)
        wanted = {"name": user, "mechanism": number, "iterations": _ITERATIONS}
        upsertions.append({**wanted, "salt": salt, "salted_password": salted})
    answer = raw.call("alter_user_scram_credentials", 0, deletions=[], upsertions=upsertions)
    assert {each["error_code"] for each in answer["results"]} == {0}, answer

    def known() -> bool:
        asked = [{"name": user} for user in PASSWORDS]
        found = raw.call("describe_user_scram_credentials", 0, users=asked)["results"]
        return all(number in {each["mechanism"] for each in user["credential_infos"]} for user in found)

    until(True, known)
