"""A batch query: what `spark.read.format("lockstep")` reads.

Invariants: where each partition begins and ends is fixed when the query is planned; a task reads its range
and nothing else. The reader is pickled and sent to the tasks, so it holds options alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connector.connection import Cluster
from spark_connector.options import EARLIEST, LATEST, OptionError, Position, SourceOptions
from spark_connector.source.fetching import RangeReader
from spark_connector.source.planning import Range, divided
from spark_connector.source.positions import partitions_of, resolved

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads from `startingOffsets` (earliest) to `endingOffsets` (latest)."""

    def __init__(self, options: SourceOptions) -> None:
        for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
            if name.lower() in options.named:
                raise OptionError(name, "is for streams: use endingOffsets in a batch query")
        _refuse(options.starting, LATEST, "latest")
        _refuse(options.ending, EARLIEST, "earliest")
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range. OptionError, BrokerError, ConnectionFailed."""
        options = self._options
        with connected(options) as cluster:
            parts = partitions_of(cluster, options.chosen)
            start = resolved(cluster, parts, options.starting, default=EARLIEST, committed=options.committed)
            end = resolved(cluster, parts, options.ending, default=LATEST, committed=options.committed)
        ranges = [Range(*part, start[part], end[part]) for part in parts]
        return [InputPartition(each) for each in divided_as(options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_range(self._options, partition.value)


def connected(options: SourceOptions) -> Cluster:
    """The cluster that the options name."""
    how = options.connecting
    return Cluster(how.bootstrap, client_id=how.client_id, timeout_s=how.timeout_s, security=how.security)


def divided_as(options: SourceOptions, ranges: Sequence[Range]) -> list[Range]:
    """The ranges as the options want them divided."""
    return divided(
        ranges, min_partitions=options.min_partitions, most_records=options.max_records_per_partition
    )


def read_range(options: SourceOptions, wanted: Range | None) -> Iterator[pa.RecordBatch]:
    """The rows of a range as Arrow batches; of None, which Spark makes of an empty plan, nothing."""
    if wanted is None:
        return
    from spark_connector.source.columns import arrow_schema, record_batch

    schema = arrow_schema(with_headers=options.include_headers)
    with connected(options) as cluster:
        for columns in RangeReader(cluster, wanted, options):
            yield record_batch(columns, wanted.topic, wanted.partition, schema)


def _refuse(position: Position, which: int, name: str) -> None:
    if position.everywhere == which or which in (position.offsets or {}).values():
        raise OptionError(position.option, f"{name} reads nothing in a batch query")
