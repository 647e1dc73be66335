"""Apache Kafka's own Java client 4.3.1, through the driver JVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compat_tests.clients.driven import Driven
from compat_tests.java_driver import JavaDriver
from compat_tests.kafka_jars import KAFKA_VERSION


class Java(Driven):
    name = "Java"
    cannot: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def start_driver(cls) -> JavaDriver:
        return JavaDriver()

    @classmethod
    def version(cls) -> str:
        return KAFKA_VERSION
