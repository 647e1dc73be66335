"""The security of a client's connections: TLS and SASL, by Kafka's property names.

Owns: the values of the properties, the errors for wrong ones, and the TLS context made of them.
Invariants: an error names the property and the remedy; no secret is in an error, a repr or a log line; an
unknown property of security is rejected, not ignored. Properties of Kafka's clients that have nothing to do
with security are left out. Does not: connect (`connection`, `blocking_connection`), log in (`sasl`).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lockstep.kafka_client.key_files import UnreadableKeyFile, load_own, load_trusted
from lockstep.kafka_client.property_names import NAMES, PREFIXES, SECURITY_PROTOCOL, TOKEN_URL
from lockstep.protocol.client_errors import ClientError
from lockstep.protocol.jaas import MalformedJaas, parse_jaas
from lockstep.protocol.scram import MECHANISMS

Properties = Mapping[str, str]
"""Kafka's client properties."""

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
_MECHANISMS: Final = (PLAIN, *MECHANISMS, OAUTHBEARER)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TLS_VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
_JAAS_FORM: Final = 'write MODULE required username="USER" password="PASSWORD";'
_MAX_TOKEN_BYTES: Final = 256 * 1024
"""LIMIT. Half of what a broker reads before a login."""


class InvalidProperty(ClientError):
    """A property that cannot be used; the text begins with its name, and has the remedy."""


class UnreadablePropertyFile(InvalidProperty):
    """A property that names a file which is not there, or cannot be read now."""


@dataclass(frozen=True)
class ClientSecurity:
    """The security of a client's connections. Make it with `of`."""

    protocol: str = "PLAINTEXT"
    context: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    """None without TLS."""
    mechanism: str | None = None
    """None without a login."""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token_auth: bool = False
    """True where user and password are the id and the HMAC of a delegation token."""
    token_path: str = ""
    """The file with the token of OAUTHBEARER."""

    @classmethod
    def of(cls, properties: Properties | None) -> ClientSecurity:
        """Parses Kafka's client properties; those that are not of security are left out. InvalidProperty."""
        given = {name: str(text).strip() for name, text in (properties or {}).items()}
        for name in given:
            if name.startswith(PREFIXES) and name not in NAMES:
                close = get_close_matches(name, NAMES, 1, 0.75)
                hint = f"is {close[0]} meant?" if close else f"there are {', '.join(NAMES)}"
                raise InvalidProperty(f"{name}: is no property of this client; {hint}")
        protocol = _one_of(given, SECURITY_PROTOCOL, _PROTOCOLS, "PLAINTEXT")
        context = _context(given) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL_"):
            return cls(protocol, context)
        mechanism = _one_of(given, "sasl.mechanism", _MECHANISMS, "")
        if mechanism == OAUTHBEARER:
            return cls(protocol, context, mechanism, token_path=_token_path(given))
        return cls(protocol, context, mechanism, *_credential(given, mechanism))

    def read_token(self) -> str:
        """The token of OAUTHBEARER as its file has it now: a later login finds the next one. Raises
        InvalidProperty."""
        try:
            with open(self.token_path, "rb") as stream:
                token = stream.read(_MAX_TOKEN_BYTES + 1).decode("ascii").strip()
        except OSError as error:
            raise InvalidProperty(f"{TOKEN_URL}: {_read_failure(self.token_path, error)}") from None
        except UnicodeDecodeError:
            token = ""
        if not token or len(token) > _MAX_TOKEN_BYTES or not token.isprintable() or " " in token:
            raise InvalidProperty(f"{TOKEN_URL}: {self.token_path} has no token, which is one word")
        return token


WITHOUT_SECURITY: Final = ClientSecurity()


def read_properties(path: str) -> dict[str, str]:
    """The properties in a file of Java's form, as Kafka's tools take it. Raises InvalidProperty."""
    try:
        import javaproperties
    except ImportError:
        raise InvalidProperty(f"{path}: the package javaproperties is needed to read it") from None
    try:
        with Path(path).open(encoding="utf-8") as stream:
            return dict(javaproperties.load(stream))
    except OSError as error:
        raise InvalidProperty(_read_failure(path, error)) from None
    except ValueError:  # of its encoding, and of \\u escapes
        raise InvalidProperty(f"{path} is no file of properties: write NAME=VALUE on each line") from None


def _read_failure(path: str, error: OSError) -> str:
    return f"{path} cannot be read: {(error.strerror or str(error)).lower()}"


def _one_of(given: Properties, name: str, allowed: tuple[str, ...], default: str) -> str:
    value = given.get(name, default).upper()
    if value in allowed:
        return value
    if not value:
        raise InvalidProperty(f"{name}: is missing; one of {', '.join(allowed)}")
    if value == "GSSAPI":
        raise InvalidProperty(f"{name}: Kerberos (GSSAPI) is not offered; one of {', '.join(allowed)}")
    close = get_close_matches(value, allowed, 1)
    hint = f"; is {close[0]} meant?" if close else ""
    raise InvalidProperty(f"{name}: {value[:40]!r} is none of {', '.join(allowed)}{hint}")


def _credential(given: Properties, mechanism: str) -> tuple[str, str, bool]:
    name = "sasl.jaas.config"
    if not given.get(name):
        raise InvalidProperty(f"{name}: is missing; {_JAAS_FORM}")
    try:
        options = parse_jaas(given[name]).options
    except MalformedJaas as error:
        raise InvalidProperty(f"{name}: {error}; {_JAAS_FORM}") from None
    for option in ("username", "password"):
        if not options.get(option):
            raise InvalidProperty(f"{name}: {option} is missing; {_JAAS_FORM}")
    if "\0" in options["username"] + options["password"]:
        raise InvalidProperty(f"{name}: username and password cannot have a zero character")
    token_auth = options.get("tokenauth", "false").lower() == "true"
    if token_auth and mechanism == PLAIN:
        raise InvalidProperty("sasl.mechanism: delegation tokens (tokenauth) need a SCRAM mechanism")
    return options["username"], options["password"], token_auth


def _token_path(given: Properties) -> str:
    url = urlsplit(given.get(TOKEN_URL, ""))
    if url.scheme != "file" or url.netloc or not os.path.isabs(unquote(url.path)):
        raise InvalidProperty(
            f"{TOKEN_URL}: a file with the token, file:///PATH, is needed; none is fetched from an issuer"
        )
    return unquote(url.path)


def _context(given: Properties) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("", "https"):
        raise InvalidProperty(
            "ssl.endpoint.identification.algorithm: is neither https nor empty, which leaves the broker's "
            "name unchecked"
        )
    context.check_hostname = algorithm == "https"
    enabled = given.get("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3"
    named = [each.strip().upper() for each in enabled.split(",")]
    if not all(each in _TLS_VERSIONS for each in named):
        raise InvalidProperty(f"ssl.enabled.protocols: {enabled[:40]!r}: TLSv1.2 and TLSv1.3 are offered")
    versions = sorted(_TLS_VERSIONS[each] for each in named)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    try:
        load_trusted(context, given)
        load_own(context, given)
    except UnreadableKeyFile as error:
        raise UnreadablePropertyFile(str(error)) from None
    except ValueError as error:
        raise InvalidProperty(str(error)) from None
    return context
