"""The failures of TLS and logins, and each client's error text: regular expressions that both brokers meet.

Owns: the failures, the texts, and which texts do not name the reason. A case calls a client's
`first_contact`, with settings for an early timeout; the lines of its log count, too. Java's TLS, in Apache
Kafka, chooses other alerts than OpenSSL's, in Lockstep, and not always the same ones; a client's text
differs where it prints the alert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compat_tests.clients.aio_kafka import AioKafka
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.go import FranzGo, KafkaGo, Sarama
from compat_tests.clients.java import Java, Java34, Java39, Java43
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.clients.kafka_python_2 import KafkaPython2
from compat_tests.clients.kcat import Kcat
from compat_tests.clients.node import KafkaJs, Platformatic
from compat_tests.clients.security import Security
from compat_tests.secured.brokers import (
    CERTIFIED,
    LOGIN,
    ONE_MECHANISM,
    PLAINTEXT,
    ClientConnection,
    Credentials,
)

PASSWORD = "a wrong password, by PLAIN"
SCRAM_PASSWORD = "a wrong password, by SCRAM-SHA-512"
USER = "an unknown user, by SCRAM-SHA-512"
MECHANISM = "a mechanism that the listener does not have"
UNTRUSTED_BROKER = "a broker's certificate of an authority that the client does not trust"
EXPIRED = "an expired client certificate"
UNTRUSTED_CLIENT = "a client certificate of an authority that the broker does not trust"
MISSING = "no client certificate where one is required"
NO_TLS = "a client without TLS at a listener with it"
TLS = "a client with TLS at a listener without it"

FAILURES: Mapping[str, Callable[[Credentials], ClientConnection]] = {
    PASSWORD: lambda own: ClientConnection(LOGIN, own.login("PLAIN", password="wrong")),
    SCRAM_PASSWORD: lambda own: ClientConnection(LOGIN, own.login("SCRAM-SHA-512", password="wrong")),
    USER: lambda own: ClientConnection(LOGIN, own.login("SCRAM-SHA-512", "nobody", "wrong")),
    MECHANISM: lambda own: ClientConnection(ONE_MECHANISM, own.login("PLAIN")),
    UNTRUSTED_BROKER: lambda own: ClientConnection(
        CERTIFIED, Security("SSL", ca=own.foreign_ca, identity=own.client)
    ),
    EXPIRED: lambda own: ClientConnection(CERTIFIED, own.certified(own.expired)),
    UNTRUSTED_CLIENT: lambda own: ClientConnection(CERTIFIED, own.certified(own.untrusted)),
    MISSING: lambda own: ClientConnection(CERTIFIED, own.certified()),
    NO_TLS: lambda own: ClientConnection(CERTIFIED, Security()),
    TLS: lambda own: ClientConnection(PLAINTEXT, own.certified()),
}

_TIMED_OUT = r"Timed out waiting for a node assignment"
_OUT_OF_MEMORY = r"The AdminClient thread has exited"
"""The client reads the alert, which only Apache Kafka sends there, as the size of a response: out of
memory."""
_JAVA = {
    PASSWORD: r"Authentication failed: Invalid username or password",
    SCRAM_PASSWORD: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    USER: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    MECHANISM: r"mechanism 'PLAIN' not enabled in the server, enabled mechanisms are \[SCRAM-SHA-512\]",
    UNTRUSTED_BROKER: r"SSL handshake failed(?s:.*)unable to find valid certification path",
    EXPIRED: r"Received fatal alert: certificate_(expired|unknown)",
    UNTRUSTED_CLIENT: r"Received fatal alert: (unknown_ca|certificate_unknown|bad_certificate)",
    MISSING: r"Received fatal alert: (certificate_required|bad_certificate)",
    NO_TLS: f"{_TIMED_OUT}|{_OUT_OF_MEMORY}",
    TLS: _TIMED_OUT,
}
_LIBRDKAFKA = {
    PASSWORD: r"Invalid username or password",
    SCRAM_PASSWORD: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    USER: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    MECHANISM: r"Unsupported SASL mechanism",
    UNTRUSTED_BROKER: r"certificate verify failed",
    EXPIRED: r"SSL alert number (45|46)",
    UNTRUSTED_CLIENT: r"SSL alert number (48|46|42)",
    MISSING: r"SSL alert number (116|42)",
    NO_TLS: r"incorrect security\.protocol configuration \(connecting to a SSL listener\?\)",
    TLS: r"SSL connection closed by peer|unexpected eof while reading",
}
_KAFKA_PYTHON = {
    PASSWORD: r"Invalid username or password",
    SCRAM_PASSWORD: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    USER: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    MECHANISM: r"UnsupportedSaslMechanism",
    UNTRUSTED_BROKER: r"CERTIFICATE_VERIFY_FAILED",
    EXPIRED: r"(?i)alert.certificate.(expired|unknown)",
    UNTRUSTED_CLIENT: r"(?i)alert.(unknown.ca|certificate.unknown|bad.certificate)",
    MISSING: r"(?i)alert.(certificate.required|bad.certificate)",
    NO_TLS: r"Unable to bootstrap|NoBrokersAvailable",
    TLS: r"SSL connection closed by server during handshake|EOF occurred in violation of protocol"
    r"|TLS/SSL connection has been closed",  # the last by Python 3.11.2
}
_DISCONNECTED = r"socket disconnected"
"""The client loses a response that arrives together with the end of the connection."""
_KAFKA_PYTHON_3 = {
    **_KAFKA_PYTHON,
    PASSWORD: f"{_KAFKA_PYTHON[PASSWORD]}|{_DISCONNECTED}",
    SCRAM_PASSWORD: f"{_KAFKA_PYTHON[SCRAM_PASSWORD]}|{_DISCONNECTED}",
    USER: f"{_KAFKA_PYTHON[USER]}|{_DISCONNECTED}",
    MECHANISM: f"{_KAFKA_PYTHON[MECHANISM]}|{_DISCONNECTED}",
}
_KAFKA_PYTHON_2 = {**_KAFKA_PYTHON, MECHANISM: _KAFKA_PYTHON_3[MECHANISM]}
_CLOSED = r"Connection at \S+ closed"
_AIOKAFKA = {
    **_KAFKA_PYTHON,
    EXPIRED: _CLOSED,
    UNTRUSTED_CLIENT: _CLOSED,
    MISSING: _CLOSED,
    NO_TLS: _CLOSED,
    TLS: r"Unable connect to \S+: ",
}
_GO = {
    PASSWORD: r"Invalid username or password",
    SCRAM_PASSWORD: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    USER: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    MECHANISM: r"(?i)unsupported.sasl.mechanism|does not support the requested SASL mechanism",
    UNTRUSTED_BROKER: r"x509: certificate signed by unknown authority",
    EXPIRED: r"remote error: tls: (expired certificate|unknown certificate)",
    UNTRUSTED_CLIENT: r"remote error: tls: (unknown certificate( authority)?|bad certificate)",
    MISSING: r"remote error: tls: (certificate required|bad certificate)",
    NO_TLS: r"EOF|is this a plaintext connection speaking to a tls endpoint|closed the connection",
    TLS: r"EOF|is TLS misconfigured",
}
_NODE = {
    PASSWORD: r"Invalid username or password",
    SCRAM_PASSWORD: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    USER: r"invalid credentials with SASL mechanism SCRAM-SHA-512",
    MECHANISM: r"The broker does not support the requested SASL mechanism",
    UNTRUSTED_BROKER: r"self-signed certificate in certificate chain",
    EXPIRED: r"(?i)alert certificate (expired|unknown)",
    UNTRUSTED_CLIENT: r"(?i)alert (unknown ca|certificate unknown|bad certificate)",
    MISSING: r"(?i)alert (certificate required|bad certificate)",
    NO_TLS: r"Closed connection",
    TLS: r"disconnected before secure TLS connection",
}
_LOGIN_FAILED = r"SASL authentication failed"
_WITHOUT_REASON = r"Connection closed"
_PLATFORMATIC = {
    **_NODE,
    PASSWORD: _LOGIN_FAILED,
    SCRAM_PASSWORD: _LOGIN_FAILED,
    USER: _LOGIN_FAILED,
    EXPIRED: _WITHOUT_REASON,
    UNTRUSTED_CLIENT: _WITHOUT_REASON,
    MISSING: _WITHOUT_REASON,
    NO_TLS: _WITHOUT_REASON,
}
REASONS: Mapping[str, Mapping[str, str]] = {
    **{each.name: _JAVA for each in (Java34, Java39, Java43, Java)},
    Confluent.name: {**_LIBRDKAFKA, NO_TLS: r"Disconnected: connection closed by peer"},
    Kcat.name: _LIBRDKAFKA,
    KafkaPython.name: _KAFKA_PYTHON_3,
    KafkaPython2.name: _KAFKA_PYTHON_2,
    AioKafka.name: _AIOKAFKA,
    KafkaJs.name: _NODE,
    Platformatic.name: _PLATFORMATIC,
    FranzGo.name: _GO,
    Sarama.name: _GO,
    KafkaGo.name: _GO,
}

_NO_REASON = "reports that the connection was closed, without a reason"
_LOST = "mostly loses the last response before the connection closes: it reports the close alone"
_TIMEOUT = "reports only a timeout"
NOT_NAMED: Mapping[str, Mapping[str, str]] = {
    **{each.name: {NO_TLS: _TIMEOUT, TLS: _TIMEOUT} for each in (Java34, Java39, Java43, Java)},
    Confluent.name: {NO_TLS: _NO_REASON},
    KafkaPython.name: {
        **dict.fromkeys((PASSWORD, SCRAM_PASSWORD, USER, MECHANISM), _LOST),
        NO_TLS: _NO_REASON,
    },
    KafkaPython2.name: {MECHANISM: _LOST, NO_TLS: _NO_REASON},
    AioKafka.name: dict.fromkeys((EXPIRED, UNTRUSTED_CLIENT, MISSING, NO_TLS, TLS), _NO_REASON),
    KafkaJs.name: {NO_TLS: _NO_REASON},
    Platformatic.name: dict.fromkeys((EXPIRED, UNTRUSTED_CLIENT, MISSING, NO_TLS), _NO_REASON),
    Sarama.name: {NO_TLS: _NO_REASON, TLS: _NO_REASON},
    KafkaGo.name: {NO_TLS: f"{_NO_REASON}; after Apache Kafka's alert with one", TLS: _NO_REASON},
}
"""Client -> the failures for which its text does not name the reason, and what it reports instead."""
