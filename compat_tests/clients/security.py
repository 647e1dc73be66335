"""How a client reaches a listener, encrypted or not, logged in or not, in one vocabulary for all clients.

Owns: `Security`, its words (librdkafka's property names, which the drivers take, too) and what Python's
clients make of it. Files are PEM. Does not: make certificates, users or tokens (`compat_tests.secured`).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

OAUTHBEARER = "OAUTHBEARER"
TOKEN_FILE = "sasl.oauthbearer.token.file"
"""A word of ours: librdkafka takes a token by a callback."""


@dataclass(frozen=True, slots=True)
class Security:
    """`identity`: a file with a client's key and certificate; `token_file`: one with a token for a login."""

    protocol: str = "PLAINTEXT"
    ca: str = ""
    identity: str = ""
    mechanism: str = ""
    username: str = ""
    password: str = ""
    token_file: str = ""

    def words(self) -> dict[str, str]:
        """What is set, by librdkafka's names; nothing for a plaintext listener."""
        if self.protocol == "PLAINTEXT":
            return {}
        named = {
            "security.protocol": self.protocol.lower(),
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.identity,
            "ssl.key.location": self.identity,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
            TOKEN_FILE: self.token_file,
        }
        return {name: value for name, value in named.items() if value}

    @classmethod
    def from_words(cls, words: Mapping[str, str]) -> Self:
        return cls(
            words.get("security.protocol", "plaintext").upper(),
            words.get("ssl.ca.location", ""),
            words.get("ssl.certificate.location", ""),
            words.get("sasl.mechanism", ""),
            words.get("sasl.username", ""),
            words.get("sasl.password", ""),
            words.get(TOKEN_FILE, ""),
        )

    @property
    def token(self) -> str:
        return Path(self.token_file).read_text()

    def python_words(self) -> dict[str, Any]:
        """What kafka-python and aiokafka call alike; neither TLS nor a token."""
        if self.protocol == "PLAINTEXT":
            return {}
        words: dict[str, Any] = {"security_protocol": self.protocol}
        if self.mechanism:
            words["sasl_mechanism"] = self.mechanism
        if self.username:
            words |= {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        return words

    def context(self) -> ssl.SSLContext | None:
        """TLS as Python has it; None on a listener without."""
        if "SSL" not in self.protocol:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.identity:
            context.load_cert_chain(self.identity)
        return context


PLAINTEXT = Security()
