"""The logins of one listener: which mechanisms it has, and with which users.

Owns: `SaslListener`, made from the listener's settings, and the errors of those that cannot be used. Does
not: know a connection (`broker/network/sasl_connection.py`) or where credentials are stored. Source: Kafka's
JaasContext.loadServerContext for the prefixes of listener and mechanism.
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from lockstep.broker.process.wall_clock import wall_clock_ms
from lockstep.broker.security import oauthbearer, plain, scram
from lockstep.broker.security.oauthbearer import OAuthBearerExchange
from lockstep.broker.security.plain import PlainExchange
from lockstep.broker.security.sasl_exchange import Exchange
from lockstep.broker.security.sasl_session import Mechanism, SaslSession
from lockstep.broker.security.scram import ScramExchange, ScramMechanism, TokenLogin
from lockstep.broker.security.scram_credentials import ScramCredentials
from lockstep.broker.settings.oauthbearer_settings import (
    ALLOWED_URLS,
    EXPECTED_AUDIENCE,
    EXPECTED_ISSUER,
    JWKS_URL,
    UNSIGNED_TOKENS,
)
from lockstep.broker.settings.security_settings import JAAS_CONFIG, ListenerSecurity
from lockstep.protocol.jaas import JaasEntry, MalformedJaas, parse_jaas

if TYPE_CHECKING:
    from lockstep.broker.security.token_keys import TokenKeys

log = logging.getLogger("lockstep.security")

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTHBEARER_HANDLER: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
)
HANDLER_CLASS: Final = "sasl.server.callback.handler.class"
_USER: Final = "user_"
_NOT_SERVED: Final = {
    "GSSAPI": "Kerberos is not served; SCRAM-SHA-512 needs nothing besides",
}
_NONCE_BYTES: Final = 18

Credentials = Callable[[], ScramCredentials]
"""The stored credentials."""
TokenLogins = Callable[[ScramMechanism, str], TokenLogin | None]
"""The login by a mechanism and a delegation token's id."""


def _no_token(mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
    """A broker without delegation tokens."""
    return None


class SaslListener:
    """See the module. Raises ConfigError.

    Args:
        credentials: of SCRAM users.
        secret: of this process, for the salts of unknown users where the cluster has recorded no secret.
        tokens: logins by delegation tokens, of both mechanisms of SCRAM.
    """

    def __init__(
        self,
        security: ListenerSecurity,
        credentials: Credentials,
        secret: bytes = os.urandom(32),
        tokens: TokenLogins = _no_token,
    ) -> None:
        self.max_receive_bytes: int = security.get("sasl.server.max.receive.size")
        self.failure_delay_seconds: float = security.get("connection.failed.authentication.delay.ms") / 1000
        names: tuple[str, ...] = security.get("sasl.enabled.mechanisms")
        served = ", ".join([plain.NAME, *scram.MECHANISMS, oauthbearer.NAME])
        if not names:
            raise security.error("sasl.enabled.mechanisms", f"names none of {served}")
        self.mechanisms: dict[str, Mechanism] = {}
        self.token_keys: TokenKeys | None = None
        """The keys of OAUTHBEARER, which the server refreshes."""
        for name in names:
            begin: Callable[[], Exchange]
            if name == plain.NAME:
                begin = _plain(security)
            elif name in scram.MECHANISMS:
                begin = _scram(security, scram.MECHANISMS[name], credentials, secret, tokens)
            elif name == oauthbearer.NAME:
                begin, self.token_keys = _oauthbearer(security)
            else:
                reason = _NOT_SERVED.get(name, "no such mechanism")
                raise security.error("sasl.enabled.mechanisms", f"{name}: {reason}; served are {served}")
            _check_handler_class(security, name)
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
    security: ListenerSecurity,
    mechanism: ScramMechanism,
    credentials: Credentials,
    secret: bytes,
    tokens: TokenLogins,
) -> Callable[[], ScramExchange]:
    _entry(security, mechanism.name, SCRAM_MODULE)

    def begin() -> ScramExchange:
        stored = credentials()
        nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        return ScramExchange(
            mechanism,
            lambda user: stored.get((mechanism.name, user)),
            nonce,
            stored.secret or secret,
            lambda token_id: tokens(mechanism, token_id),
            stored.usual_form(mechanism.name),
        )

    return begin


def _oauthbearer(security: ListenerSecurity) -> tuple[Callable[[], OAuthBearerExchange], TokenKeys | None]:
    """The logins by token, and the keys of tokens; without keys only unsigned tokens are accepted."""
    # Here and not above: the library and its cryptography take memory, which only who uses them should pay.
    from lockstep.broker.security.token_keys import TokenKeys, UnreadableKeys, UnusableKeys
    from lockstep.broker.security.token_validator import TokenRules, TokenValidator

    name = oauthbearer.NAME
    _entry(security, name, OAUTHBEARER_MODULE)
    rules = TokenRules(
        audiences=security.get(EXPECTED_AUDIENCE, name),
        issuer=security.get(EXPECTED_ISSUER, name) or "",
        skew_seconds=security.get("sasl.oauthbearer.clock.skew.seconds", name),
        name_claim=security.get("sasl.oauthbearer.sub.claim.name", name),
        scope_claim=security.get("sasl.oauthbearer.scope.claim.name", name),
        accepts_unsigned=security.get(UNSIGNED_TOKENS, name),
    )
    if rules.accepts_unsigned:
        setting = security.name_of(UNSIGNED_TOKENS, name)
        log.warning("%s: a client that reaches listener %s may be any user", setting, security.listener_name)
    url = security.get(JWKS_URL, name)
    keys: TokenKeys | None = None
    if url is not None:
        _check_expectations(security, rules.audiences, rules.issuer)
        refresh_ms = security.get("sasl.oauthbearer.jwks.endpoint.refresh.ms", name)
        try:
            keys = TokenKeys(url, security.get(ALLOWED_URLS, name), refresh_ms / 1000, time.monotonic)
        except UnusableKeys as error:
            make_error = security.temporary_error if isinstance(error, UnreadableKeys) else security.error
            raise make_error(JWKS_URL, str(error), name) from None
        if url.startswith("http:"):
            log.warning(
                "%s: keys of tokens come without encryption: %s", security.name_of(JWKS_URL, name), url
            )
    elif not rules.accepts_unsigned:
        raise security.error(JWKS_URL, f"{name} needs the keys of tokens: file:///PATH or a URL", name)
    validator = TokenValidator(
        rules,
        (lambda: ()) if keys is None else (lambda: keys.keys),
        (lambda: None) if keys is None else keys.request_refresh,
        lambda: wall_clock_ms() // 1000,
    )
    return lambda: OAuthBearerExchange(validator.validate), keys


def _check_expectations(security: ListenerSecurity, audiences: Collection[str], issuer: str) -> None:
    """Raises ConfigError where tokens for others, or of others, would be accepted without a word."""
    for name, is_set, allowing in (
        (EXPECTED_AUDIENCE, audiences, "sasl.oauthbearer.allow.unverified.audience"),
        (EXPECTED_ISSUER, issuer, "sasl.oauthbearer.allow.unverified.issuer"),
    ):
        if not is_set and not security.get(allowing, oauthbearer.NAME):
            problem = f"{oauthbearer.NAME} needs it; {allowing}=true does without"
            raise security.error(name, problem, oauthbearer.NAME)


def _check_handler_class(security: ListenerSecurity, mechanism: str) -> None:
    """Raises ConfigError for a class of Java that would decide about logins."""
    handler = security.get(HANDLER_CLASS, mechanism)
    if handler and (mechanism, handler) != (oauthbearer.NAME, OAUTHBEARER_HANDLER):
        raise security.error(HANDLER_CLASS, f"classes are not served; remove it for {mechanism}", mechanism)


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
