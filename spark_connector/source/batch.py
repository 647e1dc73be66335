"""A batch query: the reader of `spark.read.format("lockstep")`.

Invariants: the beginning and the end of each partition are fixed when the query is planned; a task reads its
range alone. The reader is pickled and sent to the tasks, so it holds options alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connector.connection import ClusterClient
from spark_connector.options import EARLIEST, LATEST, OffsetRangeLimit, OptionError, SourceOptions
from spark_connector.source.positions import partitions_of, resolve_offsets
from spark_connector.source.range_plan import OffsetRange, split_ranges
from spark_connector.source.range_reader import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads from `startingOffsets` (earliest) to `endingOffsets` (latest)."""

    def __init__(self, options: SourceOptions) -> None:
        for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
            if name.lower() in options.named:
                raise OptionError(name, "is for streams: use endingOffsets in a batch query")
        _reject_position(options.starting, LATEST, "latest")
        _reject_position(options.ending, EARLIEST, "earliest")
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range. OptionError, BrokerError, ConnectionFailed."""
        options = self._options
        with connect(options) as cluster:
            parts = partitions_of(cluster, options.selection)
            start = resolve_offsets(
                cluster, parts, options.starting, default=EARLIEST, committed=options.committed
            )
            end = resolve_offsets(cluster, parts, options.ending, default=LATEST, committed=options.committed)
        ranges = [OffsetRange(*part, start[part], end[part]) for part in parts]
        return [InputPartition(each) for each in divide_ranges(options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_range(self._options, partition.value)


def connect(options: SourceOptions) -> ClusterClient:
    """Connects to the cluster of the options."""
    how = options.connection
    return ClusterClient(
        how.bootstrap, client_id=how.client_id, timeout_s=how.timeout_s, properties=how.properties
    )


def divide_ranges(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Divides the ranges as the options require."""
    return split_ranges(
        ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
    )


def read_range(options: SourceOptions, requested_range: OffsetRange | None) -> Iterator[pa.RecordBatch]:
    """The rows of a range as Arrow batches; no rows for None, Spark's empty plan."""
    if requested_range is None:
        return
    from spark_connector.source.columns import arrow_schema, record_batch

    schema = arrow_schema(with_headers=options.include_headers)
    with connect(options) as cluster:
        for columns in RangeReader(cluster, requested_range, options):
            yield record_batch(columns, requested_range.topic, requested_range.partition, schema)


def _reject_position(position: OffsetRangeLimit, which: int, name: str) -> None:
    if position.everywhere == which or which in (position.offsets or {}).values():
        raise OptionError(position.option, f"{name} reads nothing in a batch query")
