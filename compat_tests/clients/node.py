"""The Node clients: kafkajs and @platformatic/kafka, each in a driver of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compat_tests.clients.driven import Driven
from compat_tests.line_driver import LineDriver
from compat_tests.node_driver import locked_version, node_driver


class KafkaJs(Driven):
    """The widest spread; without a release since 2.2.4. Reads by partition within a throw-away group."""

    name = "kafkajs"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "a send is one batch; one that is too large is refused as a whole",
        "null header values": "cannot write a header without a value (it measures the value's length)",
        "offset out of range": "starts at the beginning or end by itself and does not tell the application",
        "no offset for a time": "answers the end offset where there is none",
        "topic id": "speaks Metadata up to version 6, which has no topic ids",
        "cooperative": "has one assignor of its own, round robin",
        "static members": "has no setting for a group instance id",
        "set offset of a live group": "looks at the group's state itself and asks the broker nothing",
        "delete offset": "has no such call",
        "transaction admin": "has no calls to list or describe transactions",
        "set config": "has only AlterConfigs, which resets whatever it does not name",
    }

    @classmethod
    def start_driver(cls) -> LineDriver:
        return node_driver("kafkajs.mjs")

    @classmethod
    def version(cls) -> str:
        return locked_version("kafkajs")


class Platformatic(Driven):
    """The last line that runs on Node 20; 2.x needs Node 22."""

    name = "platformatic"
    cannot: ClassVar[Mapping[str, str]] = {
        "codec zstd": "takes zstd from Node itself, from Node 22.15 on",
        "xerial snappy": "reads snappy without frames, not the Java client's",
        "split": "a send is one batch; one that is too large is refused as a whole",
        "LogAppendTime": "shows the producer's timestamp whatever the batch's timestamp type is",
        "idempotent without waiting": "numbers a send by what was answered before: several at once have the "
        "same number, and all but the first are lost, though acknowledged",
        "describe without creating": "reports an unknown topic in its own words, without the broker's error",
        "reuse of an id": "asks for its producer id as if it had had number 0, so an id in use is refused",
        "empty transactions": "asks to end what has not begun, which is refused",
        "transaction admin": "has no calls to list or describe transactions",
        "cooperative": "joins with its own round robin (or an assignor written by the user)",
        "static members": "hands partitions out by member id, which is a new one after each start: a static "
        "member keeps its own only by chance",
    }

    @classmethod
    def start_driver(cls) -> LineDriver:
        return node_driver("platformatic.mjs")

    @classmethod
    def version(cls) -> str:
        return f"@platformatic/kafka {locked_version('@platformatic/kafka')}"
