"""The options of `format("lockstep")` for reading, by the names that Spark's own Kafka source has for them.

Owns: their spelling, their values, and the error texts, for the sink, too; each names the option and the
remedy.
Spark hands options over as text and looks names up without regard to case, and so does this.

Invariants: an unknown option is rejected, not ignored: `startingOffset` would otherwise read from another
offset. An option that Spark's Kafka source rejects because it sets it itself is rejected here, too.

Does not: send requests. Options of the sink are read by `sink/settings.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from lockstep.kafka_client.property_names import NAMES as PROPERTIES

EARLIEST: Final = -2
LATEST: Final = -1

TopicPartition = tuple[str, int]


class OptionError(ValueError):
    """An invalid option of a query; the text names it and the remedy.

    Args:
        name: of the option, as the user spells it.
        problem: the fault and the remedy.
        kind: the kind of the name: an "option", a "column" that is written, a "method".
    """

    def __init__(self, name: str, problem: str, *, kind: str = "option") -> None:
        super().__init__(name, problem)  # whatever is pickled is made again of these
        self.name = name
        self.problem = problem
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.problem}"


@dataclass(frozen=True)
class OffsetRangeLimit:
    """The beginning or the end of a range, as Spark's KafkaOffsetRangeLimit. One of the first four is set."""

    everywhere: int | None = None
    """EARLIEST or LATEST."""
    offsets: Mapping[TopicPartition, int] | None = None
    """The offset of each partition; EARLIEST and LATEST are possible."""
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    option: str = ""
    """The option that set it; for errors."""
    or_latest: bool = False
    """True: a time after the last record means the end; False: an error."""


@dataclass(frozen=True)
class ConnectionOptions:
    """The addresses, timeouts and security of connections; picklable, as tasks get it."""

    bootstrap: str
    client_id: str = "lockstep-spark"
    timeout_s: float = 60.0
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL, from which each task makes its own TLS context."""


@dataclass(frozen=True)
class PartitionSelection:
    """The partitions to read. One of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class SourceOptions:
    """Everything a reader needs to know; picklable, because tasks get it."""

    connection: ConnectionOptions
    selection: PartitionSelection
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    committed: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    poll_timeout_s: float = 120.0
    fetch_bytes: int = 1024 * 1024
    """The bytes of one partition in one Fetch, Kafka's own default: larger responses leave the processor's
    caches before they are decoded."""
    check_crcs: bool = True
    group_id: str | None = None
    group_id_prefix: str = "lockstep-spark"
    named: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options as the user set them, names in lower case."""


_KAFKA: Final = "kafka."
SECURITY_NAMES: Final = tuple(_KAFKA + name for name in PROPERTIES)
"""The options of TLS and SASL, of the sink, too."""
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
    "kafka.request.timeout.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.check.crcs",
    *SECURITY_NAMES,
)
_IGNORED: Final = frozenset(
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
"""Tuning of Spark's own source that changes no row; this source has nothing to tune by it."""
_SET_BY_SOURCE: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "positions are stored when Spark has committed a batch",
    "kafka.key.deserializer": "keys are binary; cast or decode the column",
    "kafka.value.deserializer": "values are binary; cast or decode the column",
    "kafka.interceptor.classes": "there are no interceptors",
}
_UNSUPPORTED: Final = {
    "minoffsetspertrigger": "use a trigger with a processing time",
    "maxtriggerdelay": "use a trigger with a processing time",
}
_MAX_FETCH_BYTES: Final = 128 * 1024 * 1024


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Parses `given`, with defaults for the rest. Raises OptionError."""
    named = {name.lower(): str(text).strip() for name, text in given.items()}
    _check_names(given)
    starting, ending = _starting_limit(named), _ending_limit(named)
    limits = {
        name: _count(named, name) for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minPartitions")
    }
    isolation = _one_of(named, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
    return SourceOptions(
        connection=connection_options(named),
        selection=_parse_selection(named),
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


def connection_options(named: Mapping[str, str]) -> ConnectionOptions:
    """Parses the options of the connection; names in lower case. Raises OptionError."""
    bootstrap = named.get("kafka.bootstrap.servers", "")
    if not bootstrap:
        raise OptionError("kafka.bootstrap.servers", "is missing: set HOST:PORT of one broker or several")
    timeout_ms = _count(named, "kafka.request.timeout.ms")
    return ConnectionOptions(
        bootstrap,
        client_id=named.get("kafka.client.id") or "lockstep-spark",
        timeout_s=60.0 if timeout_ms is None else timeout_ms / 1000,
        properties=security_properties(named),
    )


def security_properties(named: Mapping[str, str]) -> dict[str, str]:
    """Kafka's client properties of TLS and SASL among the options; names in lower case."""
    return {name.removeprefix(_KAFKA): named[name] for name in SECURITY_NAMES if name in named}


def unknown_option(name: str, names: Sequence[str]) -> OptionError:
    """The error for an option that is none of `names`."""
    spelled = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), spelled, 1, cutoff=0.8)
    meant = "".join(f"Did you mean {spelled[each]}? " for each in near)
    return OptionError(name, f"is not known. {meant}There are {', '.join(names)}")


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in _NAMES} | _IGNORED
    for name in given:
        lower = name.lower()
        if lower in known:
            continue
        if lower in _SET_BY_SOURCE:
            raise OptionError(name, f"is not supported, as in Spark's Kafka source: {_SET_BY_SOURCE[lower]}")
        if lower in _UNSUPPORTED:
            raise OptionError(name, f"is not offered: {_UNSUPPORTED[lower]}")
        raise unknown_option(name, _NAMES)


def _parse_selection(named: Mapping[str, str]) -> PartitionSelection:
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
        return PartitionSelection(topics=topics)
    if given == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError("subscribePattern", f"{text!r} is not a regular expression: {error}") from None
        return PartitionSelection(pattern=text)
    return PartitionSelection(partitions=_parse_assign(text))


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    found = _json(text, "assign", '{"topic":[0,1]}')
    partitions = []
    for topic, indexes in found.items():
        if not isinstance(indexes, list) or not all(_is_count(each) for each in indexes):
            raise OptionError(
                "assign", f'the partitions of {topic} are {indexes!r}; write {{"{topic}":[0,1]}}'
            )
        partitions += [(topic, index) for index in indexes]
    if not partitions:
        raise OptionError("assign", f"{text!r} names no partition")
    return tuple(sorted(set(partitions)))


def _starting_limit(named: Mapping[str, str]) -> OffsetRangeLimit:
    strategy = _one_of(named, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    timed = _time_limit(
        named, "startingTimestamp", "startingOffsetsByTimestamp", or_latest=strategy == "latest"
    )
    return timed or _offsets(named, "startingOffsets")


def _ending_limit(named: Mapping[str, str]) -> OffsetRangeLimit:
    timed = _time_limit(named, "endingTimestamp", "endingOffsetsByTimestamp", or_latest=True)
    return timed or _offsets(named, "endingOffsets")


def _time_limit(named: Mapping[str, str], one: str, each: str, *, or_latest: bool) -> OffsetRangeLimit | None:
    if named.get(one.lower()):
        text = named[one.lower()]
        if not text.isdecimal():
            raise OptionError(one, f"{text!r} is not a time in milliseconds since 1970")
        return OffsetRangeLimit(timestamp_ms=int(text), option=one, or_latest=or_latest)
    if named.get(each.lower()):
        found = _by_partition(named[each.lower()], each)
        return OffsetRangeLimit(timestamps_ms=found, option=each, or_latest=or_latest)
    return None


def _offsets(named: Mapping[str, str], name: str) -> OffsetRangeLimit:
    text = named.get(name.lower(), "")
    if text.lower() in ("earliest", "latest"):
        return OffsetRangeLimit(everywhere=EARLIEST if text.lower() == "earliest" else LATEST, option=name)
    if not text:
        return OffsetRangeLimit(option=name)  # its meaning depends on the caller
    return OffsetRangeLimit(offsets=_by_partition(text, name, least=EARLIEST), option=name)


def _by_partition(text: str, name: str, least: int = 0) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json(text, name, '{"topic":{"0":23}}').items():
        if not isinstance(partitions, dict):
            raise OptionError(name, f'{topic} has {partitions!r}; write {{"{topic}":{{"0":23}}}}')
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
    if size is not None and size > _MAX_FETCH_BYTES:
        raise OptionError("kafka.max.partition.fetch.bytes", f"{size} is more than {_MAX_FETCH_BYTES}")
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
