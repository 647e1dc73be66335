"""The settings of encryption and of who a client is, each with its reason: a part of `config.Settings`.

Kafka's names and defaults (SslConfigs, BrokerSecurityConfigs). With the prefix `listener.name.NAME.`, the
name in lower case, a setting is of that listener alone and goes before the one without. Does not: read keys
or certificates (`broker/security/`), or know which listeners there are (`config.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.broker.settings.oauthbearer_settings import OAuthBearerSettings
from lockstep.broker.settings.properties import (
    ConfigError,
    Kind,
    Property,
    UnusableFile,
    properties_of,
    setting,
)

LISTENER_PREFIX: Final = "listener.name."
CLIENT_AUTH_NONE: Final = "none"
CLIENT_AUTH_REQUESTED: Final = "requested"
CLIENT_AUTH_REQUIRED: Final = "required"
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
JAAS_CONFIG: Final = "sasl.jaas.config"
LOCATIONS: Final = ("ssl.keystore.location", "ssl.truststore.location")
"""Settings that name a file."""
PER_MECHANISM: Final = frozenset(
    {JAAS_CONFIG, "connections.max.reauth.ms", *(name for name in properties_of(OAuthBearerSettings))}
)
"""Settings that may have the name of a mechanism, in lower case, behind the listener's."""
MECHANISMS: Final = ("gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512")


@dataclass(frozen=True)
class SecuritySettings(OAuthBearerSettings):
    """Encryption and authentication of clients' connections."""

    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        Kind.STRING,
        "JKS",
        "Form of the key store. A PKCS12 file is read by any of PKCS12 and JKS, as in Kafka; a file in the "
        "form JKS is rejected.",
        choices=STORE_TYPES,
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        Kind.STRING,
        None,
        "File with the private key and the certificates of the broker. It is read again when it changes.",
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password", Kind.PASSWORD, None, "Password of a PKCS12 key store."
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password", Kind.PASSWORD, None, "Password of an encrypted private key in PEM form."
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key", Kind.PASSWORD, None, "The private key itself, in PEM form, instead of a file."
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        Kind.PASSWORD,
        None,
        "The certificates of `ssl.keystore.key`, in PEM form, the broker's own first.",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type", Kind.STRING, "JKS", "Form of the trust store.", choices=STORE_TYPES
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        Kind.STRING,
        None,
        "File with the certificates of those whom the broker trusts to certify clients. It is read again "
        "when it changes.",
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password", Kind.PASSWORD, None, "Password of a PKCS12 trust store."
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        Kind.PASSWORD,
        None,
        "The trusted certificates themselves, in PEM form, instead of a file.",
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        Kind.STRING,
        CLIENT_AUTH_NONE,
        "required: a client must have a certificate; requested: one that it has must be valid; none: the "
        "broker does not ask for one.",
        choices=(CLIENT_AUTH_REQUIRED, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_NONE),
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        Kind.STRING,
        "DEFAULT",
        "Rules, of which the first that matches makes a client's name from the subject of its certificate: "
        "RULE:pattern/replacement/ with L or U behind it for lower or upper case, or DEFAULT.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols", Kind.LIST, TLS_VERSIONS, "Versions of TLS.", choices=TLS_VERSIONS
    )
    ssl_allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes",
        Kind.BOOLEAN,
        False,
        "A new certificate may have another subject than the one it replaces while the broker runs.",
    )
    ssl_allow_san_changes: bool = setting(
        "ssl.allow.san.changes",
        Kind.BOOLEAN,
        False,
        "A new certificate may lack a name that the one has which it replaces while the broker runs.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        Kind.LIST,
        (),
        "Cipher suites by their registered names; none: those that OpenSSL takes for secure. Suites of TLS "
        "1.3 can only be allowed or not all together.",
    )

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        ("GSSAPI",),
        "SASL mechanisms of the listeners whose protocol has SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. Kafka's default, GSSAPI, is not served.",
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        Kind.PASSWORD,
        None,
        'Users of PLAIN, as PlainLoginModule required user_NAME="PASSWORD" ...; it counts with the prefix '
        "of a listener and a mechanism alone: listener.name.NAME.plain.sasl.jaas.config.",
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        Kind.INT,
        524_288,
        "Largest request before a login, as in Kafka.",
        minimum=1,
        unit="bytes",
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        100,
        "How long the answer to a failed login waits.",
        minimum=0,
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        Kind.LONG,
        0,
        "Longest life of a login, after which the client has to log in again (KIP-368); 0: no end.",
    )

    lockstep_scram_users: str = setting(
        "lockstep.scram.users",
        Kind.PASSWORD,
        "",
        "The first SCRAM users, as SCRAM-SHA-512=[name=NAME,password=PASSWORD] with commas between: the "
        "controller stores those that it does not have, and changes none.",
    )

    listener_texts: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The settings of single listeners as text, by their full names."""


SECURITY_PROPERTIES: Final = properties_of(SecuritySettings)
"""Property name -> (attribute, declaration)."""


def listener_prefix(listener_name: str) -> str:
    """The prefix of a listener's own settings."""
    return f"{LISTENER_PREFIX}{listener_name.lower()}."


def split_listener_name(name: str) -> tuple[str, str] | None:
    """The listener and the setting that `listener.name.LISTENER.SETTING` names; None for another name or one
    that no listener has for itself. With capital letters it is of no listener, as in Kafka."""
    if not name.startswith(LISTENER_PREFIX) or name != name.lower():
        return None
    rest = name.removeprefix(LISTENER_PREFIX)
    for setting_name in SECURITY_PROPERTIES:
        if rest.endswith(f".{setting_name}"):
            listener_name = rest.removesuffix(f".{setting_name}")
            head, _, last = listener_name.rpartition(".")
            if setting_name in PER_MECHANISM and last in MECHANISMS and head:
                listener_name = head
            return listener_name, setting_name
    return None


def declared_for_listener(name: str) -> Property | None:
    """The declaration of a listener's own setting, under its full name; None for any other name."""
    split = split_listener_name(name)
    if split is None:
        return None
    declared = SECURITY_PROPERTIES[split[1]][1]
    return Property(
        name,
        declared.kind,
        declared.default,
        declared.doc,
        declared.minimum,
        declared.maximum,
        declared.choices,
    )


def in_lower_case(name: str) -> str | None:
    """The name that a listener's own setting would have, for one that is written with capital letters, which
    Kafka ignores; None for any other name. Source: Kafka's ListenerName.configPrefix."""
    lower = name.lower()
    return lower if lower != name and split_listener_name(lower) is not None else None


def is_without_mechanism(name: str) -> bool:
    """True for users of PLAIN, or another login module, without the prefix of a listener and a mechanism:
    Kafka ignores them. Source: Kafka's JaasContext.loadServerContext."""
    if name == JAAS_CONFIG:
        return True
    split = split_listener_name(name)
    return split is not None and name == f"{listener_prefix(split[0])}{JAAS_CONFIG}"


class ListenerSecurity:
    """The security settings of one listener, each with the name that it was set by."""

    def __init__(self, settings: SecuritySettings, listener_name: str, texts: Mapping[str, str]) -> None:
        self.listener_name = listener_name
        self._prefix = listener_prefix(listener_name)
        self._settings, self._texts = settings, texts

    def get(self, name: str, mechanism: str = "") -> Any:
        """The value of a setting, by Kafka's name, for a mechanism or for all. Raises ConfigError.

        An empty value of the listener itself leaves out that of all listeners, if it may be missing; an
        empty location is none.
        """
        attribute, declared = SECURITY_PROPERTIES[name]
        full_name = self.name_of(name, mechanism)
        text = self._texts.get(full_name)
        if text == "" and declared.default is None:
            return None
        if text is None:
            value = None if name == JAAS_CONFIG else getattr(self._settings, attribute)
            return None if value == "" and name in LOCATIONS else value
        try:
            return declared.parse(text)
        except ConfigError as error:
            raise ConfigError(full_name, error.value, error.problem) from None

    def has_own(self, name: str) -> bool:
        """True if the listener has the setting for itself."""
        return self._prefix + name in self._texts

    def full_name(self, name: str, mechanism: str = "") -> str:
        """The name of a setting of this listener, and of a mechanism, alone."""
        return self._prefix + (f"{mechanism.lower()}.{name}" if mechanism else name)

    def name_of(self, name: str, mechanism: str = "") -> str:
        """The name under which a person has set, or would set, a setting of this listener."""
        if mechanism and (name == JAAS_CONFIG or self.full_name(name, mechanism) in self._texts):
            return self.full_name(name, mechanism)
        return self._prefix + name if self.has_own(name) else name

    def error(self, name: str, problem: str, mechanism: str = "") -> ConfigError:
        """The error of a setting of this listener; a secret is not shown."""
        return self._error(ConfigError, name, problem, mechanism)

    def temporary_error(self, name: str, problem: str, mechanism: str = "") -> ConfigError:
        """The same for a file that a later start may find: it is not there, or not valid now."""
        in_file = name in LOCATIONS or str(self.get(name, mechanism)).startswith("file:")
        return self._error(UnusableFile if in_file else ConfigError, name, problem, mechanism)

    def _error(self, kind: type[ConfigError], name: str, problem: str, mechanism: str) -> ConfigError:
        declared = SECURITY_PROPERTIES[name][1]
        shown = declared.show(self.get(name, mechanism))
        if shown and declared.kind is Kind.PASSWORD:
            shown = "[hidden]"
        return kind(self.name_of(name, mechanism), shown or "", problem)
