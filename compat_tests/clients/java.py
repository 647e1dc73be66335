"""Apache Kafka's own Java client in several versions, each through a driver JVM of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from compat_tests.clients.driven import Driven
from compat_tests.clients.security import OAUTHBEARER, Security
from compat_tests.java_driver import JavaDriver
from compat_tests.kafka_jars import KAFKA, JarSet, client_jars

_COMMON = "org.apache.kafka.common.security"
_OAUTH = f"{_COMMON}.oauthbearer"
_SCRAM_MODULE = f"{_COMMON}.scram.ScramLoginModule"
_MODULES = {"PLAIN": f"{_COMMON}.plain.PlainLoginModule", OAUTHBEARER: f"{_OAUTH}.OAuthBearerLoginModule"}


class Java(Driven):
    """The judge's version; its JVM runs Kafka's tools too."""

    name = f"Java {KAFKA.version}"
    jars: ClassVar[JarSet] = KAFKA
    cannot: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def start_driver(cls) -> JavaDriver:
        return JavaDriver(cls.jars)

    @classmethod
    def version(cls) -> str:
        return cls.jars.version

    def security_words(self) -> dict[str, str]:
        return java_words(self.security)


def java_words(security: Security) -> dict[str, str]:
    """The settings of the Java client, which Kafka's tools take, too."""
    if security.protocol == "PLAINTEXT":
        return {}
    words = {
        "security.protocol": security.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": security.ca,
    }
    if security.identity:
        words |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": security.identity}
    if security.mechanism:
        module = _MODULES.get(security.mechanism, _SCRAM_MODULE)
        login = f' username="{security.username}" password="{security.password}"' if security.username else ""
        words |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": f"{module} required{login};"}
    if security.token_file:
        words["sasl.oauthbearer.token.endpoint.url"] = Path(security.token_file).as_uri()
        words["sasl.login.callback.handler.class"] = f"{_OAUTH}.OAuthBearerLoginCallbackHandler"
    return words


# Fixed in 4.x: older versions split for ever, or until their stack is full.
_SPLIT = {"split": "splits a batch into pieces of batch.size, even where that is what is too large"}


class Java34(Java):
    """The version in Spark 3.5."""

    name = "Java 3.4.1"
    cannot: ClassVar[Mapping[str, str]] = _SPLIT
    jars = client_jars("3.4.1")


class Java39(Java):
    """The last of 3.x, in Spark 4."""

    name = "Java 3.9.2"
    cannot: ClassVar[Mapping[str, str]] = _SPLIT
    jars = client_jars("3.9.2")


class Java43(Java):
    """The version before the judge's."""

    name = "Java 4.3.1"
    cannot: ClassVar[Mapping[str, str]] = {
        OAUTHBEARER: "needs the library jose4j, which it does not bring, for any token",
    }
    jars = client_jars("4.3.1")
