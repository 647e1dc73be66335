"""kafka-python 2.3.3, the last of 2.x: 3.x's adapter with 2.x's administration, in a process of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from compat_tests.clients.driven import Driven
from compat_tests.line_driver import LineDriver
from compat_tests.python_driver import pinned, python_driver

_REQUIREMENTS = "kafka-python-2.txt"


class KafkaPython2(Driven):
    """Its producer is not idempotent by default, unlike that of 3.x."""

    name = "kafka-python 2"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "fails every record of a batch that is too large, it does not split it",
        "acks=0": "keeps such a request in its buffer until one that expects an answer follows",
        "null key and value": "refuses a record without key and value",
        "null header values": "refuses a header value of None (`headers` must be `(str, bytes)`)",
        "topic id": "speaks Metadata up to v8, which has no topic ids",
        "cooperative": "rebalances eagerly only",
        "transaction admin": "has no calls to list or describe transactions",
        "delete offset": "has no call to delete a group's offset",
        "set config": "its alter_configs replaces all of a topic's configs",
    }

    @classmethod
    def start_driver(cls) -> LineDriver:
        return python_driver(_REQUIREMENTS, "compat_tests.clients.kafka_python_2_adapter:KafkaPython2Adapter")

    @classmethod
    def version(cls) -> str:
        found = re.search(r"^kafka-python==(\S+)", pinned(_REQUIREMENTS).read_text(), re.MULTILINE)
        return found[1] if found else "unknown"
