"""The options of `format("lockstep")` for reading, by the names that Spark's own Kafka source has for them.

Owns: their spelling, what each may be, and the words of a refusal, for the sink, too; each names the option
and what to do.
Spark hands options over as text and looks names up without regard to case, and so does this.

Invariants: an option that is not known is refused, not passed over: `startingOffset` would otherwise read
from where nobody asked for. What Spark's Kafka source refuses because it sets it itself is refused here, too.

Does not: ask a broker anything. Options of the sink are read by `sink/settings.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

EARLIEST: Final = -2
LATEST: Final = -1

TopicPartition = tuple[str, int]


class OptionError(ValueError):
    """What a query was told cannot be; the text names it and says what to do.

    Args:
        name: of the option, as the user spells it.
        problem: what is wrong, and what to do.
        kind: what else the name is of: a "column" of what is written, a "method" that was called.
    """

    def __init__(self, name: str, problem: str, *, kind: str = "option") -> None:
        super().__init__(name, problem)  # whatever is pickled is made again of these
        self.name = name
        self.problem = problem
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.problem}"


@dataclass(frozen=True)
class Position:
    """Where a range begins or ends. Of the first four, one is set."""

    everywhere: int | None = None
    """EARLIEST or LATEST."""
    offsets: Mapping[TopicPartition, int] | None = None
    """Of each partition; EARLIEST and LATEST may be among them."""
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    option: str = ""
    """Which one said so; for errors."""
    or_latest: bool = False
    """What a time after the last record means: the end, or an error."""


@dataclass(frozen=True)
class Connecting:
    """How to reach the brokers."""

    bootstrap: str
    client_id: str = "lockstep-spark"
    timeout_s: float = 60.0
    security: str = "PLAINTEXT"


@dataclass(frozen=True)
class Chosen:
    """Which partitions are read. One of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class SourceOptions:
    """Everything a reader needs to know; picklable, because tasks get it."""

    connecting: Connecting
    chosen: Chosen
    starting: Position
    ending: Position
    committed: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    poll_timeout_s: float = 120.0
    fetch_bytes: int = 1024 * 1024
    """Of one partition in one Fetch, Kafka's own default: larger answers leave the processor's caches before
    they are decoded."""
    check_crcs: bool = True
    group_id: str | None = None
    group_id_prefix: str = "lockstep-spark"
    named: Mapping[str, str] = field(default_factory=dict)
    """As they were given, names in lower case."""


_NAMES: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.security.protocol",
    "kafka.request.timeout.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.check.crcs",
)
_WITHOUT_MEANING: Final = frozenset(
    {
        "kafka.max.poll.records",
        "kafka.fetch.min.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.max.bytes",
        "kafka.receive.buffer.bytes",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
    }
)
"""Tuning of Spark's own source that changes no row; there is nothing here that it would tune."""
_SET_BY_SOURCE: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "positions are stored when Spark has committed a batch",
    "kafka.key.deserializer": "keys are binary; cast or decode the column",
    "kafka.value.deserializer": "values are binary; cast or decode the column",
    "kafka.interceptor.classes": "there are no interceptors",
}
_NOT_OFFERED: Final = {
    "minoffsetspertrigger": "use a trigger with a processing time",
    "maxtriggerdelay": "use a trigger with a processing time",
}
_LARGEST_FETCH_BYTES: Final = 128 * 1024 * 1024


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """What `given` say, with defaults for the rest. Raises OptionError."""
    named = {name.lower(): str(text).strip() for name, text in given.items()}
    _known(given)
    starting, ending = _starting(named), _ending(named)
    limits = {
        name: _count(named, name) for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minPartitions")
    }
    isolation = _one_of(named, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
    return SourceOptions(
        connecting=connecting(named),
        chosen=_chosen(named),
        starting=starting,
        ending=ending,
        committed=isolation == "read_committed",
        include_headers=_flag(named, "includeHeaders", default=False),
        fail_on_data_loss=_flag(named, "failOnDataLoss", default=True),
        max_offsets_per_trigger=limits["maxOffsetsPerTrigger"],
        max_bytes_per_trigger=limits["maxBytesPerTrigger"],
        min_partitions=limits["minPartitions"],
        max_records_per_partition=_count(named, "maxRecordsPerPartition"),
        poll_timeout_s=(_count(named, "kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
        fetch_bytes=_fetch_bytes(named),
        check_crcs=_flag(named, "kafka.check.crcs", default=True),
        group_id=named.get("kafka.group.id") or None,
        group_id_prefix=named.get("groupidprefix") or "lockstep-spark",
        named=named,
    )


def connecting(named: Mapping[str, str]) -> Connecting:
    """How to reach the brokers; names in lower case. Raises OptionError."""
    bootstrap = named.get("kafka.bootstrap.servers", "")
    if not bootstrap:
        raise OptionError("kafka.bootstrap.servers", "is missing: say HOST:PORT of one broker or several")
    security = named.get("kafka.security.protocol", "PLAINTEXT").upper()
    if security != "PLAINTEXT":
        raise OptionError(
            "kafka.security.protocol", f"{security} is not offered, PLAINTEXT alone; leave it out"
        )
    timeout_ms = _count(named, "kafka.request.timeout.ms")
    return Connecting(
        bootstrap,
        client_id=named.get("kafka.client.id") or "lockstep-spark",
        timeout_s=60.0 if timeout_ms is None else timeout_ms / 1000,
    )


def unknown(name: str, names: Sequence[str]) -> OptionError:
    """The refusal of an option that is none of `names`."""
    spelled = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), spelled, 1, cutoff=0.8)
    meant = "".join(f"Did you mean {spelled[each]}? " for each in near)
    return OptionError(name, f"is not known. {meant}There are {', '.join(names)}")


def _known(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in _NAMES} | _WITHOUT_MEANING
    for name in given:
        lower = name.lower()
        if lower in known:
            continue
        if lower in _SET_BY_SOURCE:
            raise OptionError(name, f"is not supported, as in Spark's Kafka source: {_SET_BY_SOURCE[lower]}")
        if lower in _NOT_OFFERED:
            raise OptionError(name, f"is not offered: {_NOT_OFFERED[lower]}")
        if lower.startswith(("kafka.sasl.", "kafka.ssl.")):
            raise OptionError(name, "the brokers offer neither TLS nor SASL; leave it out")
        raise unknown(name, _NAMES)


def _chosen(named: Mapping[str, str]) -> Chosen:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if named.get(name.lower())]
    if len(given) != 1:
        raise OptionError(
            "subscribe", f"one of assign, subscribe and subscribePattern is needed, not {len(given)}"
        )
    text = named[given[0].lower()]
    if given == ["subscribe"]:
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError("subscribe", f"{text!r} names no topic")
        return Chosen(topics=topics)
    if given == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError("subscribePattern", f"{text!r} is not a regular expression: {error}") from None
        return Chosen(pattern=text)
    return Chosen(partitions=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    found = _json(text, "assign", '{"topic":[0,1]}')
    partitions = []
    for topic, indexes in found.items():
        if not isinstance(indexes, list) or not all(_is_count(each) for each in indexes):
            raise OptionError("assign", f'the partitions of {topic} are {indexes!r}; say {{"{topic}":[0,1]}}')
        partitions += [(topic, index) for index in indexes]
    if not partitions:
        raise OptionError("assign", f"{text!r} names no partition")
    return tuple(sorted(set(partitions)))


def _starting(named: Mapping[str, str]) -> Position:
    strategy = _one_of(named, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    timed = _timed(named, "startingTimestamp", "startingOffsetsByTimestamp", or_latest=strategy == "latest")
    return timed or _offsets(named, "startingOffsets")


def _ending(named: Mapping[str, str]) -> Position:
    timed = _timed(named, "endingTimestamp", "endingOffsetsByTimestamp", or_latest=True)
    return timed or _offsets(named, "endingOffsets")


def _timed(named: Mapping[str, str], one: str, each: str, *, or_latest: bool) -> Position | None:
    if named.get(one.lower()):
        text = named[one.lower()]
        if not text.isdecimal():
            raise OptionError(one, f"{text!r} is not a time in milliseconds since 1970")
        return Position(timestamp_ms=int(text), option=one, or_latest=or_latest)
    if named.get(each.lower()):
        found = _by_partition(named[each.lower()], each)
        return Position(timestamps_ms=found, option=each, or_latest=or_latest)
    return None


def _offsets(named: Mapping[str, str], name: str) -> Position:
    text = named.get(name.lower(), "")
    if text.lower() in ("earliest", "latest"):
        return Position(everywhere=EARLIEST if text.lower() == "earliest" else LATEST, option=name)
    if not text:
        return Position(option=name)  # what is meant depends on who asks
    return Position(offsets=_by_partition(text, name, least=EARLIEST), option=name)


def _by_partition(text: str, name: str, least: int = 0) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json(text, name, '{"topic":{"0":23}}').items():
        if not isinstance(partitions, dict):
            raise OptionError(name, f'{topic} has {partitions!r}; say {{"{topic}":{{"0":23}}}}')
        for index, number in partitions.items():
            if not index.isdecimal() or type(number) is not int or number < least:
                raise OptionError(name, f"{topic}, partition {index}: {number!r} cannot be")
            found[topic, int(index)] = number
    return found


def _json(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(name, f"{text[:80]!r} is not JSON such as {example}")
    return found


def _fetch_bytes(named: Mapping[str, str]) -> int:
    size = _count(named, "kafka.max.partition.fetch.bytes")
    if size is not None and size > _LARGEST_FETCH_BYTES:
        raise OptionError("kafka.max.partition.fetch.bytes", f"{size} is more than {_LARGEST_FETCH_BYTES}")
    return size or SourceOptions.fetch_bytes


def _count(named: Mapping[str, str], name: str) -> int | None:
    text = named.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(name, f"{text!r} is not a whole number above 0")
    return int(text)


def _flag(named: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = named.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(name, f"{text!r} is neither true nor false")
    return text == "true"


def _one_of(named: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = named.get(name.lower(), allowed[0]).lower()
    if text not in allowed:
        raise OptionError(name, f"{text!r} is none of {', '.join(allowed)}")
    return text


def _is_count(found: object) -> bool:
    return type(found) is int and found >= 0
