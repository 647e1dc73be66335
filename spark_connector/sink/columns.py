"""The columns of Spark's rows, and the partition of each row.

Owns: `SinkColumns` (checked once, on the driver) and `RowPartitioner` (an Arrow batch cut by topic and
partition).
Invariants: columns are those of Spark's Kafka sink, and `timestamp`; rows of one partition keep their order;
a key has the partition that the Java producer chooses, a row without one that of its batch.
Does not: encode, send. Source: KafkaWriter of Spark for what is allowed; KIP-480 for rows without keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lockstep.protocol.partitioner import partition_of
from spark_connector.options import OptionError
from spark_connector.sink.batch_encoder import Headers

BYTES: Final = ("binary", "string")
ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "key": BYTES,
    "value": BYTES,
    "topic": ("string",),
    "partition": ("integer", "int"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
MAX_CACHED_KEYS: Final = 100_000
"""LIMIT. Keys whose partition is cached: hashing one costs as much as writing its record."""


@dataclass(frozen=True)
class SinkColumns:
    """The names of the present columns."""

    names: frozenset[str]

    @classmethod
    def of(cls, schema: Any, topic: str | None) -> SinkColumns:
        """From a Spark schema. Raises OptionError for a schema that cannot be written."""
        types = {each.name: each.dataType.simpleString() for each in schema.fields}
        for name, column_type in types.items():
            if name not in ALLOWED:
                raise OptionError(
                    name, f"is none of {', '.join(ALLOWED)}; select what is to be written", kind="column"
                )
            if column_type not in ALLOWED[name]:
                raise OptionError(
                    name, f"is {column_type}, and must be {' or '.join(ALLOWED[name])}", kind="column"
                )
        if "value" not in types:
            raise OptionError(
                "value", "is missing; select what is to be written under this name", kind="column"
            )
        if topic is None and "topic" not in types:
            raise OptionError("topic", "is missing; give it, or a column of this name")
        return cls(frozenset(types))


class Rows(NamedTuple):
    """Rows of one partition, in order."""

    topic: str
    partition: int
    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Headers | None] | None
    timestamps: Sequence[int] | int


class RowPartitioner:
    """Splits one task's Arrow batches. Args: partitions_of: a topic's number of partitions."""

    def __init__(self, columns: SinkColumns, topic: str | None, partitions_of: Callable[[str], int]) -> None:
        self._names = columns.names
        self._topic = topic
        self._partitions_of = partitions_of
        self._cached_partitions: dict[tuple[bytes, int], int] = {}
        self._batch_number = 0

    def split(self, batch: Any, start: int, now_ms: int) -> Iterator[Rows]:
        """The rows of a `pyarrow.RecordBatch`, by partition.

        Args:
            start: the partition of the first batch without keys: tasks begin at different ones.
            now_ms: the time of rows without a timestamp.
        """
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        values = _bytes(columns["value"])
        keys = _bytes(columns["key"]) if _has_any(columns, "key") else None
        headers = _headers(columns["headers"]) if _has_any(columns, "headers") else None
        stamps: Sequence[int] | int = now_ms
        if _has_any(columns, "timestamp"):
            stamps = _milliseconds(columns["timestamp"], now_ms)
        topics = None if self._topic is not None else columns["topic"].to_pylist()
        partitions = columns["partition"].to_pylist() if _has_any(columns, "partition") else None
        batch_number = start + self._batch_number
        self._batch_number += 1
        if topics is None and partitions is None and keys is None:
            only = self._topic or ""
            yield Rows(only, batch_number % self._partitions_of(only), None, values, headers, stamps)
            return
        found: dict[tuple[str, int], list[int]] = {}
        for index in range(len(values)):
            topic: str | None = self._topic if topics is None else topics[index]
            if not topic:
                raise ValueError("a row without a topic: its column 'topic' is null")
            row_partition = None if partitions is None else partitions[index]
            key = None if keys is None else keys[index]
            found.setdefault((topic, self._partition(topic, row_partition, key, batch_number)), []).append(
                index
            )
        for (topic, partition), indexes in found.items():
            yield Rows(
                topic,
                partition,
                None if keys is None else [keys[index] for index in indexes],
                [values[index] for index in indexes],
                None if headers is None else [headers[index] for index in indexes],
                stamps if isinstance(stamps, int) else [stamps[index] for index in indexes],
            )

    def _partition(self, topic: str, partition: int | None, key: bytes | None, batch_number: int) -> int:
        count = self._partitions_of(topic)
        if partition is not None:
            if not 0 <= partition < count:
                raise ValueError(f"a row for partition {partition} of {topic}, which has {count}")
            return partition
        if key is None:
            return batch_number % count
        known = self._cached_partitions.get((key, count))
        if known is None:
            if len(self._cached_partitions) >= MAX_CACHED_KEYS:
                self._cached_partitions.clear()
            known = self._cached_partitions[key, count] = partition_of(key, count)
        return known


def _has_any(columns: dict[str, Any], name: str) -> bool:
    column = columns.get(name)
    return column is not None and column.null_count < len(column)


def _bytes(column: Any) -> list[bytes | None]:
    found: list[Any] = column.to_pylist()
    if "string" in str(column.type):
        return [None if each is None else each.encode() for each in found]
    return found


def _headers(column: Any) -> list[Headers | None]:
    return [
        None if each is None else [(one["key"], one["value"]) for one in each] for each in column.to_pylist()
    ]


def _milliseconds(column: Any, now_ms: int) -> list[int]:
    """Spark's Arrow batches have microseconds."""
    return [now_ms if each is None else each // 1000 for each in column.cast("int64").to_pylist()]
