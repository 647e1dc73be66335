"""The settings of logins by OAUTHBEARER: a part of `security_settings.SecuritySettings`.

Kafka's names and defaults (SaslConfigs). The URLs that keys may be fetched from are a system property in
Kafka (`org.apache.kafka.sasl.oauthbearer.allowed.urls`), and a setting here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lockstep.broker.settings.properties import Kind, setting

JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS: Final = "lockstep.sasl.oauthbearer.allowed.urls"
EXPECTED_AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
EXPECTED_ISSUER: Final = "sasl.oauthbearer.expected.issuer"
UNSIGNED_TOKENS: Final = "lockstep.testing.insecure.accept.unsigned.tokens"


@dataclass(frozen=True)
class OAuthBearerSettings:
    """The tokens that a listener accepts, and the claims that it reads."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        JWKS_URL,
        Kind.STRING,
        None,
        f"Where the keys are that tokens are signed with (JWKS): a file as file:///PATH, or a URL that "
        f"`{ALLOWED_URLS}` names. A file is read again when it changes.",
    )
    lockstep_sasl_oauthbearer_allowed_urls: tuple[str, ...] = setting(
        ALLOWED_URLS,
        Kind.LIST,
        (),
        "The URLs that keys of tokens may be fetched from. Redirections are not followed.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Kind.LONG,
        3_600_000,
        "Between two fetches of the keys; a token with an unknown key lets them be fetched earlier.",
        minimum=1_000,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        EXPECTED_AUDIENCE, Kind.LIST, (), "A token is for one of these, by its claim aud."
    )
    sasl_oauthbearer_allow_unverified_audience: bool = setting(
        "sasl.oauthbearer.allow.unverified.audience",
        Kind.BOOLEAN,
        False,
        f"Tokens for anybody are accepted where `{EXPECTED_AUDIENCE}` is not set.",
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        EXPECTED_ISSUER, Kind.STRING, None, "Issuer of the tokens, by their claim iss."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = setting(
        "sasl.oauthbearer.allow.unverified.issuer",
        Kind.BOOLEAN,
        False,
        f"Tokens of any issuer are accepted where `{EXPECTED_ISSUER}` is not set.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        Kind.INT,
        30,
        "How much later than now a token may begin.",
        minimum=0,
        unit="seconds",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "The claim that has the principal's name."
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "sasl.oauthbearer.scope.claim.name",
        Kind.STRING,
        "scope",
        "The claim that has the scope: a token whose scope has an empty or an equal item is rejected. "
        "What a client may do is not derived from it.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        "sasl.server.callback.handler.class",
        Kind.CLASS,
        None,
        "Kafka's OAuthBearerValidatorCallbackHandler alone, which need not be named; any other stops the "
        "start. It counts with the prefix of a listener and a mechanism.",
    )
    lockstep_testing_insecure_accept_unsigned_tokens: bool = setting(
        UNSIGNED_TOKENS,
        Kind.BOOLEAN,
        False,
        "For tests alone: a client is logged in as any user that its token names. Never set it where anybody "
        "else reaches the listener.",
    )
