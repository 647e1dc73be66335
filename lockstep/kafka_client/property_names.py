"""The properties of TLS and SASL that our clients take, by the names of Kafka's clients. Pure, so that
options of others, such as Spark's, can be checked by them.

Does not: know what their values mean (`security`).
"""

from __future__ import annotations

from typing import Final

SECURITY_PROTOCOL: Final = "security.protocol"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
NAMES: Final = (
    SECURITY_PROTOCOL,
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.jaas.config",
    TOKEN_URL,
)
PREFIXES: Final = ("security.", "ssl.", "sasl.")
"""A property that begins so, and is none of `NAMES`, is rejected: it would not do what its user expects."""
