"""Apache Kafka's own Java client in several versions, each through a driver JVM of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compat_tests.clients.driven import Driven
from compat_tests.java_driver import JavaDriver
from compat_tests.kafka_jars import KAFKA, JarSet, client_jars


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
    jars = client_jars("4.3.1")
