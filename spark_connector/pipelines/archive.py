"""`archive`: a log into Parquet or Delta, in directories by topic, date and hour, exactly once.

Owns: one streaming query. Spark logs the offsets of a micro-batch before it reads them, and repeats that
batch after a crash; the sink recognises a batch that it has. Delta records the query's id and the batch
in the table's own transaction (SetTransaction); the Parquet sink has a list of its files, `_spark_metadata`,
which Spark's readers follow. Restart it with the same path and checkpoint. Another program that reads a
Parquet archive would also see files of a killed writer: use Delta for it.

Does not: compact small files (Delta's OPTIMIZE does), or read records that were deleted before it read them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_connector.connection import ClusterClient
from spark_connector.pipelines import log_frames
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.progress import ProgressReporter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_POLL_S: Final = 0.5


@dataclass(frozen=True)
class ArchiveSettings:
    """`every`: a trigger's interval ("30 seconds") of an archive that follows the log; None: the present
    records.
    """

    bootstrap: str
    topics: tuple[str, ...]
    to: str
    format: str = "delta"
    source: str = "kafka"
    checkpoint: str | None = None
    records_per_batch: int = 200_000
    every: str | None = None
    files_per_hour: int = 1
    """The number of files of each topic, batch and hour: as many tasks share the records of one hour."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL."""

    @property
    def checkpoint_path(self) -> str:
        """A path within the archive, where readers skip names that begin with an underscore."""
        return self.checkpoint or f"{self.to.rstrip('/')}/_checkpoint"


def run(spark: SparkSession, settings: ArchiveSettings, progress: ProgressReporter) -> dict[str, Any]:
    """Archives until the trigger is done, or for ever. Returns figures; raises PipelineFailed,
    ClientError."""
    with ClusterClient(settings.bootstrap, properties=settings.properties) as cluster:
        cluster.topics(settings.topics)  # one that is not there is named, whichever source would read it
    options = log_frames.read_options(
        settings.bootstrap,
        settings.topics,
        {"maxOffsetsPerTrigger": str(settings.records_per_batch)},
        settings.properties,
    )
    records = _repartition(
        spark, log_frames.with_archive_columns(log_frames.stream(spark, settings.source, options)), settings
    )
    writer = (
        records.writeStream.format(settings.format)
        .option("path", settings.to)
        .option("checkpointLocation", settings.checkpoint_path)
        .partitionBy(*log_frames.DIRECTORIES)
        .queryName(f"archive to {settings.to}")
    )
    if settings.every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=settings.every)
    query = writer.start()
    try:
        return _await_query(query, progress)
    finally:
        query.stop()


def _repartition(spark: SparkSession, records: DataFrame, settings: ArchiveSettings) -> DataFrame:
    """Collects the rows of one directory in a few tasks: else each partition of a topic would make a file
    for each hour.
    """
    from pyspark.sql import functions

    tasks = max(spark.sparkContext.defaultParallelism, 1)
    share = f"pmod(partition, {settings.files_per_hour})"
    return records.repartition(tasks, *log_frames.DIRECTORIES, functions.expr(share))


def _await_query(query: StreamingQuery, progress: ProgressReporter) -> dict[str, Any]:
    """Waits for the end of the query and reports its progress."""
    rows = batches = 0
    last_batch = -1
    first_batch: int | None = None
    began = time.monotonic()
    progress.at(0)
    ended = False
    while not ended:
        ended = query.awaitTermination(_POLL_S)
        for each in query.recentProgress:
            if each["batchId"] <= last_batch or not each["numInputRows"]:
                continue
            last_batch = each["batchId"]
            first_batch = last_batch if first_batch is None else first_batch
            rows += each["numInputRows"]
            batches += 1
        progress.at(rows, f"batch {last_batch}" if batches else "")
    progress.end(rows, f"{batches} batches")
    return {
        "rows": rows,
        "batches": batches,
        "first_batch": first_batch,
        "seconds": round(time.monotonic() - began, 3),
    }


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this pipeline."""
    command.add_argument("--topics", required=True, metavar="A,B", help="which topics")
    command.add_argument("--to", required=True, metavar="PATH", help="where the archive is, or is made")
    command.add_argument(
        "--format", choices=log_frames.FORMATS, default="delta", help="(default %(default)s)"
    )
    command.add_argument(
        "--source",
        choices=log_frames.SOURCES,
        default="lockstep",
        help="Spark's source (default %(default)s)",
    )
    command.add_argument("--checkpoint", metavar="PATH", help="(default: PATH/_checkpoint)")
    command.add_argument(
        "--records-per-batch", type=int, default=200_000, metavar="N", help="(default %(default)s)"
    )
    command.add_argument(
        "--files-per-hour",
        type=int,
        default=1,
        metavar="N",
        help="of a topic and batch (default %(default)s)",
    )
    command.add_argument(
        "--every",
        metavar="INTERVAL",
        help='follow the log, a batch each "30 seconds"; default: what is there now',
    )


def from_arguments(options: argparse.Namespace) -> ArchiveSettings:
    """Raises PipelineFailed for invalid options."""
    topics = tuple(name.strip() for name in options.topics.split(",") if name.strip())
    if not topics:
        raise PipelineFailed("--topics names no topic")
    for name in ("records_per_batch", "files_per_hour"):
        if (number := getattr(options, name)) < 1:
            raise PipelineFailed(f"--{name.replace('_', '-')} {number}: there is at least one")
    return ArchiveSettings(
        options.bootstrap,
        topics,
        options.to,
        options.format,
        options.source,
        options.checkpoint,
        options.records_per_batch,
        options.every,
        options.files_per_hour,
    )
