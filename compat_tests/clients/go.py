"""The Go clients: franz-go, sarama and segmentio's kafka-go, each in a process of its own (`go/cmd/`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compat_tests import go_driver
from compat_tests.clients.driven import Driven
from compat_tests.line_driver import LineDriver


class _Go(Driven):
    module: ClassVar[str]

    @classmethod
    def start_driver(cls) -> LineDriver:
        return LineDriver([str(go_driver.driver(cls.name))])

    @classmethod
    def version(cls) -> str:
        go_driver.go_command()  # none without Go
        return go_driver.module_version(cls.module)


class FranzGo(_Go):
    name = "franz-go"
    module = "github.com/twmb/franz-go"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "fails every record of a batch that is too large, it does not split it",
    }


class Sarama(_Go):
    name = "sarama"
    module = "github.com/IBM/sarama"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "fails every record of a batch that is too large, it does not split it",
        "cluster id": "its cluster description has no cluster id",
        "transaction admin": "has no calls to list or describe transactions",
    }


class KafkaGo(_Go):
    name = "kafka-go"
    module = "github.com/segmentio/kafka-go"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "fails every record of a batch that is too large, it does not split it",
        "OAUTHBEARER": "has PLAIN and SCRAM, others are left to its user",
        "idempotence": "has no idempotent producer",
        "auto creation": "its first write says UNKNOWN_TOPIC_OR_PARTITION, the application has to try again",
        "empty key": "its Reader makes no difference between empty and null",
        "empty value": "its Reader makes no difference between empty and null",
        "empty header values": "its Reader makes no difference between empty and null",
        "LogAppendTime": "its Reader gives the producer's timestamp, not the broker's",
        "topic id": "speaks Metadata up to v8, which has no topic ids",
        "delete records": "has no call for it",
        "static members": "has no group.instance.id",
        "roundrobin": "its round robin starts again with every topic",
        "cooperative": "rebalances eagerly only",
        "transactions": "has no transactional producer",
        "transaction admin": "has no call to list transactions, nor for producers",
        "group protocol": "its group description has neither protocol nor protocol type",
    }
