"""The logins of one listener: which mechanisms it has, and with which users.

Owns: `SaslListener`, made from the listener's settings, and the errors of those that cannot be used. Does
not: know a connection (`broker/network/sasl_connection.py`) or where credentials are stored. Source: Kafka's
JaasContext.loadServerContext for the prefixes of listener and mechanism.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Final

from lockstep.broker.security import plain, scram
from lockstep.broker.security.jaas import JaasEntry, MalformedJaas, parse_jaas
from lockstep.broker.security.plain import PlainExchange
from lockstep.broker.security.sasl_exchange import Exchange
from lockstep.broker.security.sasl_session import Mechanism, SaslSession
from lockstep.broker.security.scram import Credential, ScramExchange, ScramMechanism
from lockstep.broker.settings.security_settings import JAAS_CONFIG, ListenerSecurity

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_USER: Final = "user_"
_NOT_SERVED: Final = {
    "GSSAPI": "Kerberos is not served; SCRAM-SHA-512 needs nothing besides",
    "OAUTHBEARER": "is not served yet",
}
_NONCE_BYTES: Final = 18

Credentials = Callable[[str, str], Credential | None]
"""The stored credential of a mechanism and a user."""


class SaslListener:
    """See the module. Raises ConfigError.

    Args:
        credentials: of SCRAM users.
        secret: of this process.
    """

    def __init__(
        self, security: ListenerSecurity, credentials: Credentials, secret: bytes = os.urandom(32)
    ) -> None:
        self.max_receive_bytes: int = security.get("sasl.server.max.receive.size")
        self.failure_delay_seconds: float = security.get("connection.failed.authentication.delay.ms") / 1000
        names: tuple[str, ...] = security.get("sasl.enabled.mechanisms")
        served = ", ".join([plain.NAME, *scram.MECHANISMS])
        if not names:
            raise security.error("sasl.enabled.mechanisms", f"names none of {served}")
        self.mechanisms: dict[str, Mechanism] = {}
        for name in names:
            begin: Callable[[], Exchange]
            if name == plain.NAME:
                begin = _plain(security)
            elif name in scram.MECHANISMS:
                begin = _scram(security, scram.MECHANISMS[name], credentials, secret)
            else:
                reason = _NOT_SERVED.get(name, "no such mechanism")
                raise security.error("sasl.enabled.mechanisms", f"{name}: {reason}; served are {served}")
            self.mechanisms[name] = Mechanism(begin, security.get("connections.max.reauth.ms", name))

    def new_session(self) -> SaslSession:
        """The logins of a new connection."""
        return SaslSession(self.mechanisms)


def _plain(security: ListenerSecurity) -> Callable[[], PlainExchange]:
    entry = _entry(security, plain.NAME, PLAIN_MODULE)
    if entry is None:
        example = f'{security.full_name(JAAS_CONFIG, plain.NAME)}={PLAIN_MODULE} required user_alice="...";'
        raise security.error("sasl.enabled.mechanisms", f"PLAIN has no users: set {example}")
    passwords = {
        name.removeprefix(_USER): text for name, text in entry.options.items() if name.startswith(_USER)
    }
    return lambda: PlainExchange(passwords)


def _scram(
    security: ListenerSecurity, mechanism: ScramMechanism, credentials: Credentials, secret: bytes
) -> Callable[[], ScramExchange]:
    _entry(security, mechanism.name, SCRAM_MODULE)

    def begin() -> ScramExchange:
        nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        return ScramExchange(mechanism, lambda user: credentials(mechanism.name, user), nonce, secret)

    return begin


def _entry(security: ListenerSecurity, mechanism: str, module: str) -> JaasEntry | None:
    """The login module of a mechanism; None where none is set. Raises ConfigError."""
    text = security.get(JAAS_CONFIG, mechanism)
    if text is None:
        return None
    try:
        entry = parse_jaas(text)
    except MalformedJaas as error:
        raise security.error(JAAS_CONFIG, str(error), mechanism) from None
    if entry.module != module:
        raise security.error(
            JAAS_CONFIG, f"{entry.module} is not served; {mechanism} needs {module}", mechanism
        )
    return entry
