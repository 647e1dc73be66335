"""`replay`: topics of an archive back into topics, each partition in its order, byte for byte.

Owns: the order (one task writes a partition, from its first record on) and the rows' places: the n-th record
that the archive has of a partition is at offset n of the same partition there. Keys, values, headers and
times are those of the archive; offsets are the same where the archive has all of them, and close up where
the log had transaction markers or compaction had taken records.

Restart it with the same checkpoint: each task lists the end of its partition (`partition_appender`)
and resumes there, so rows of a killed run are not written again. An archive that grows meanwhile may be
replayed again, too: the new rows are appended.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import Headers
from spark_connector.connection import ClusterClient
from spark_connector.pipelines import log_frames
from spark_connector.pipelines.claims import TopicClaim, claim_topic
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.partition_appender import BatchSettings, PartitionAppender
from spark_connector.pipelines.progress import ProgressReporter

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_RESULT: Final = "partition INT, rows BIGINT, appended BIGINT"
_HEADERS: Final[Headers] = []


@dataclass(frozen=True)
class ReplaySettings:
    """`into`: the new topics' names, with {topic} for the archived one's."""

    bootstrap: str
    archive: str
    topics: tuple[str, ...]
    into: str
    checkpoint: Path
    format: str = "delta"
    partitions: int | None = None
    """None: as many as the archive has records of."""
    batch: BatchSettings = field(default_factory=BatchSettings)
    replication: int = -1
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL."""


def run(spark: SparkSession, settings: ReplaySettings, progress: ProgressReporter) -> dict[str, Any]:
    """Replays the missing rows. Returns figures; raises PipelineFailed, ClientError, Spark's errors."""
    began = time.monotonic()
    found = log_frames.archive(spark, settings.format, settings.archive)
    rows = appended = 0
    for topic in settings.topics:
        records = found.where(found.topic == topic)
        claimed = _make_claim(settings, topic, records)
        progress.note(f"{topic} into {claimed.topic}")
        for result in _write_partitions(records, settings, claimed).collect():
            rows += result.rows
            appended += result.appended
        progress.end(rows, f"{appended:,} of them now")
    elapsed = time.monotonic() - began
    return {"rows": rows, "appended": appended, "resumed": rows - appended, "seconds": round(elapsed, 3)}


def _make_claim(settings: ReplaySettings, topic: str, records: DataFrame) -> TopicClaim:
    from pyspark.sql import functions

    (most,) = records.agg(functions.max("partition")).collect()[0]
    if most is None:
        raise PipelineFailed(f"{settings.archive} has no records of topic {topic}")
    partitions = settings.partitions or most + 1
    if partitions <= most:
        raise PipelineFailed(f"--partitions {partitions}: {topic} has records of partition {most}")
    with ClusterClient(settings.bootstrap, properties=settings.properties) as cluster:
        return claim_topic(
            cluster,
            settings.checkpoint,
            settings.into.replace("{topic}", topic),
            f"{topic} of the archive {settings.archive}",
            partitions=partitions,
            configs={},
            replication=settings.replication,
        )


def _write_partitions(records: DataFrame, settings: ReplaySettings, claimed: TopicClaim) -> DataFrame:
    """A row for each partition, once the frame is evaluated."""
    columns = records.selectExpr(
        "partition", "offset", "key", "value", "unix_millis(timestamp) AS timestamp_ms", "headers"
    )
    ordered = columns.repartition(claimed.partitions, "partition").sortWithinPartitions("partition", "offset")
    return ordered.mapInArrow(_writer(settings, claimed), _RESULT)


def _writer(
    settings: ReplaySettings, claimed: TopicClaim
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """The function that a task applies to its rows."""

    def write(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        with ClusterClient(settings.bootstrap, properties=settings.properties) as cluster:
            partitions = _Partitions(cluster, claimed, settings.batch)
            for each in batches:
                partitions.take(each)
            partitions.finish()
        result = partitions.result
        yield pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.array([one[0] for one in result], pyarrow.int32()),
                pyarrow.array([one[1] for one in result], pyarrow.int64()),
                pyarrow.array([one[2] for one in result], pyarrow.int64()),
            ],
            ["partition", "rows", "appended"],
        )

    return write


class _Partitions:
    """The partitions of one task, one after the other."""

    def __init__(self, cluster: ClusterClient, claimed: TopicClaim, batch: BatchSettings) -> None:
        self._cluster = cluster
        self._claim = claimed
        self._batch = batch
        self._partition = -1
        self._appender: PartitionAppender | None = None
        self._row = 0
        self._last_offset = -1
        self.result: list[tuple[int, int, int]] = []
        """Partition, rows of it, those appended here."""

    def take(self, records: pyarrow.RecordBatch) -> None:
        """Appends rows in order of partition and offset. Raises PipelineFailed for a record that the archive
        has twice.
        """
        partitions, offsets, keys, values, times, headers = (column.to_pylist() for column in records.columns)
        for number, partition in enumerate(partitions):
            if partition != self._partition:
                self.finish()
                self._begin(partition)
            appender = self._appender
            assert appender is not None
            if offsets[number] <= self._last_offset:
                raise PipelineFailed(f"partition {partition}: the archive has offset {offsets[number]} twice")
            self._last_offset = offsets[number]
            if self._row >= appender.position:
                found = headers[number]
                named = [(one["key"], one["value"]) for one in found] if found else _HEADERS
                appender.add((values[number], keys[number], times[number], named))
            self._row += 1

    def finish(self) -> None:
        """Waits until all rows of the current partition are stored."""
        if self._appender is None:
            return
        appender, self._appender = self._appender, None
        appender.finish()
        if appender.resumed_at > self._row:
            raise PipelineFailed(
                f"partition {self._partition} of {self._claim.topic} has {appender.resumed_at} records, the "
                f"archive {self._row}: it is not this archive's replay"
            )
        self.result.append((self._partition, self._row, self._row - appender.resumed_at))

    def _begin(self, partition: int) -> None:
        self._partition = partition
        self._appender = PartitionAppender(self._cluster, self._claim, partition, self._batch)
        self._row = 0
        self._last_offset = -1


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this pipeline."""
    command.add_argument("--archive", required=True, metavar="PATH", help="what `archive` has made")
    command.add_argument(
        "--format", choices=log_frames.FORMATS, default="delta", help="(default %(default)s)"
    )
    command.add_argument("--topics", required=True, metavar="A,B", help="which topics of it")
    command.add_argument(
        "--into", default="{topic}-replayed", metavar="NAME", help="the new topics (default %(default)s)"
    )
    command.add_argument(
        "--partitions", type=int, help="of each new topic (default: as many as have records)"
    )
    command.add_argument("--replication", type=int, default=-1, help="(default: the broker's)")
    command.add_argument("--compression", choices=[each.name.lower() for each in Codec], default="none")
    command.add_argument(
        "--checkpoint", type=Path, required=True, metavar="DIR", help="a restarted run must be given it again"
    )


def from_arguments(options: argparse.Namespace) -> ReplaySettings:
    """Raises PipelineFailed for invalid options."""
    topics = tuple(name.strip() for name in options.topics.split(",") if name.strip())
    if not topics:
        raise PipelineFailed("--topics names no topic")
    if len(topics) > 1 and "{topic}" not in options.into:
        raise PipelineFailed(f"--into {options.into}: several topics need {{topic}} in it")
    return ReplaySettings(
        options.bootstrap,
        options.archive,
        topics,
        options.into,
        options.checkpoint,
        options.format,
        options.partitions,
        BatchSettings(codec=Codec[options.compression.upper()]),
        options.replication,
    )
