"""The listeners that malformed frames go to: before a login, after it, inside TLS, and to TLS without it.

Owns: the settings of a broker with such a listener beside a PLAINTEXT one, whose clients must not notice, and
how a connection is made. Does not: send frames (`malformed.py`).
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
from pathlib import Path
from typing import Final

from compat_tests.probe import free_port
from compat_tests.raw import ConnectionClosed, RawConnection
from compat_tests.targets import LockstepTarget
from lockstep.protocol.api import ApiKey
from tests.campaigns.partition_client import LOOPBACK
from tests.support.certificates import SelfSignedCa

NAME: Final = "ATTACKED"
OPEN_SECONDS: Final = 15.0
"""How long a login or a handshake may take."""
PLAIN_LOGIN: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret of alice";'
)
TOKEN: Final = b"\0alice\0secret of alice"
LOGIN_APIS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
TLS_RECORDS: Final = (20, 21, 22, 23)
"""The content types of RFC 8446: change of cipher, alert, handshake, application data."""


class AttackedListener:
    """The only listener: PLAINTEXT, which all clients use. The base of the others."""

    name = "plaintext"
    protocol = "PLAINTEXT"
    apis: tuple[int, ...] = ()
    """The only APIs that frames are drawn for; () for all."""

    def settings(self) -> dict[str, str]:
        """The settings of the listener, beside its protocol."""
        return {}

    def connect(self, port: int, timeout_s: float) -> RawConnection:
        """A connection that frames can be sent on. Raises OSError, ConnectionClosed."""
        return RawConnection(LOOPBACK, port, timeout_s)

    def octets(self, frame: bytes) -> bytes:
        """What is sent for a frame."""
        return frame


class BeforeLogin(AttackedListener):
    """No client logs in; only the requests of a login reach a handler."""

    name = "before-login"
    protocol = "SASL_PLAINTEXT"
    apis: tuple[int, ...] = LOGIN_APIS

    def settings(self) -> dict[str, str]:
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.attacked.plain.sasl.jaas.config": PLAIN_LOGIN,
            "connection.failed.authentication.delay.ms": "1",
        }


class AfterLogin(BeforeLogin):
    """Each connection logs in first."""

    name = "after-login"
    apis = ()

    def connect(self, port: int, timeout_s: float) -> RawConnection:
        connection = super().connect(port, OPEN_SECONDS)
        connection.call("sasl_handshake", 1, mechanism="PLAIN")
        answer = connection.call("sasl_authenticate", 2, auth_bytes=TOKEN)
        if answer["error_code"]:
            raise ConnectionClosed(f"the login failed: {answer['error_message']}")
        connection.socket.settimeout(timeout_s)
        return connection


class InsideTls(AttackedListener):
    """Frames are encrypted."""

    name = "inside-tls"
    protocol = "SSL"

    def __init__(self) -> None:
        self._authority = SelfSignedCa()
        self._broker = self._authority.issue("broker")
        self.context = ssl.create_default_context(cadata=self._authority.pem())

    def settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self._broker.key_pem(),
            "ssl.keystore.certificate.chain": self._broker.chain_pem(),
        }

    def connect(self, port: int, timeout_s: float) -> RawConnection:
        connection = super().connect(port, OPEN_SECONDS)
        connection.socket = self.context.wrap_socket(connection.socket, server_hostname=LOOPBACK)
        connection.socket.settimeout(timeout_s)
        return connection


class NoTls(InsideTls):
    """Frames as they are to a listener of TLS, half of them with a head of a TLS record."""

    name = "no-tls"

    def connect(self, port: int, timeout_s: float) -> RawConnection:
        return RawConnection(LOOPBACK, port, timeout_s)

    def octets(self, frame: bytes) -> bytes:
        rng = random.Random(frame)  # the same for the same frame
        if rng.random() < 0.5:
            return frame
        version = rng.choice((0x0301, 0x0303, 0x0304))
        return struct.pack(">BHH", rng.choice(TLS_RECORDS), version, len(frame) & 0x3FFF) + frame


LISTENERS: Final = {each.name: each for each in (AttackedListener, BeforeLogin, AfterLogin, InsideTls, NoTls)}


class AttackedTarget(LockstepTarget):
    """A broker with a PLAINTEXT listener at `port`, and the attacked one at `attacked_port`."""

    def __init__(self, listener: AttackedListener, directory: Path, **settings: str) -> None:
        given = {name.replace("_", "."): text for name, text in settings.items()}
        super().__init__({**given, **listener.settings()}, directory=directory)
        self.attacked_port = free_port()
        self._protocol = listener.protocol

    def _command(self) -> list[str]:
        listeners = f"PLAINTEXT://{LOOPBACK}:{self.port},{NAME}://{LOOPBACK}:{self.attacked_port}"
        settings = {
            **self.settings,
            "listeners": listeners,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{NAME}:{self._protocol}",
        }
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [*self._program, "serve", "--data-dir", str(self.data_dir), *sets]


def shut_down_writing(connection: RawConnection) -> None:
    """End what we send. An `ssl.SSLSocket` of its own would read on without decrypting."""
    socket.socket.shutdown(connection.socket, socket.SHUT_WR)
