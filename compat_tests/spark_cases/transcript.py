"""What Spark answered within one case, with names and numbers of the run taken out, to be compared.

Owns: the rules of what is comparable. Topics are numbered by age (`unique_name` counts up); of an exception
stay its class and its message's kind: the error condition in brackets, or the first words without numbers,
ids and lists. A case that depends on time leaves those answers out (`Spark.stream(..., kept=False)`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_TOPIC = re.compile(r"case-\d+-\d+")
_CONDITION = re.compile(r"\[([A-Z0-9_.]+)\]")
_LISTS = re.compile(r"\{.*\}|\(.*\)|\[.*\]|\b(?:Set|Map|HashMap|List)\b")
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|-?\d+")
_BROKERS_WORDS = re.compile(r"(org\.apache\.kafka\.common\.errors\.\w+).*")
"""A broker's error is its class; what it says beside is its own."""
_KIND_CHARACTERS = 120

_of_kafka: dict[str, list[Any]] = {}
"""Case -> what Apache Kafka's transcript was in this run."""


class Transcript:
    """The answers of one case on one broker, in order."""

    def __init__(self) -> None:
        self._answers: list[Any] = []

    def add(self, what: str, answer: Any) -> None:
        """One answer, as JSON has it."""
        self._answers.append([what, answer])

    def comparable(self) -> list[Any]:
        """The answers without the run's own names."""
        text = json.dumps(self._answers, sort_keys=True)
        topics = {name: f"topic-{place:03}" for place, name in enumerate(sorted(set(_TOPIC.findall(text))))}
        found = json.loads(_TOPIC.sub(lambda match: topics[match[0]], text))
        assert isinstance(found, list)
        return found


def kinds(causes: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Class and message's kind of each exception."""
    return [[kind, "" if _BROKERS_WORDS.match(kind) else _message_kind(message)] for kind, message in causes]


def _message_kind(message: str) -> str:
    first = _BROKERS_WORDS.sub(r"\1", message.strip().partition("\n")[0])
    condition = _CONDITION.match(first)
    if condition is not None:
        return condition[1]
    return _IDS.sub("N", _LISTS.sub("…", _TOPIC.sub("topic", first)))[:_KIND_CHARACTERS]


def compare(case: str, target: str, transcript: Transcript) -> None:
    """Keep Kafka's; AssertionError where another broker's differs from it."""
    answers = transcript.comparable()
    if target == "kafka":
        _of_kafka[case] = answers
    elif case in _of_kafka:
        expected = _of_kafka[case]
        assert answers == expected, f"{target} differs from Apache Kafka:\n{answers}\nnot\n{expected}"
