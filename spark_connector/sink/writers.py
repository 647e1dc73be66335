"""The writers that Spark calls, for streams and batches, their messages, and the identity of a task.

Owns: the sequence of steps of one task (`write`) and of the driver (`commit`, `abort`).
Invariants: the messages carry everything that the driver needs: it runs in another process, with a new
writer. A task's epoch is Spark's batch id, its query is that of the checkpoint. A task that fails aborts its
stage; a stage that it cannot reach ends with the next commit, or expires.
Does not: choose the attempt that counts (Spark's commit coordinator does), or retry a batch.
Source: MicroBatchExecution and StreamExecution of Spark 4 for the names of the local properties.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from spark_connector.connection import ClientError, ClusterClient
from spark_connector.sink.batch_encoder import bodies
from spark_connector.sink.columns import RowPartitioner, SinkColumns
from spark_connector.sink.epochs import Epochs
from spark_connector.sink.settings import SinkSettings
from spark_connector.sink.stage import StageSummary, StageWriter
from spark_connector.sink.topics import commit_topic

QUERY_PROPERTY: Final = "sql.streaming.queryId"
EPOCH_PROPERTY: Final = "streaming.sql.batchId"
RUN_PROPERTY: Final = "spark.jobGroup.id"


@dataclass(frozen=True)
class WriteIdentity:
    """The query, run and epoch of a write."""

    query: str
    run: str
    epoch: int


@dataclass
class StageCommitMessage(datasource.WriterCommitMessage):
    """The message of a task to the driver."""

    identity: WriteIdentity
    summary: StageSummary


class _SinkWriter:
    """The common part of streams and batches."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.settings = SinkSettings.of(options)
        self.columns = SinkColumns.of(schema, self.settings.topic)

    def cluster(self) -> ClusterClient:
        settings = self.settings
        return ClusterClient(settings.bootstrap, timeout_s=settings.timeout_s, properties=settings.properties)

    def write(self, identity: WriteIdentity, batches: Iterator[Any], start: int) -> StageCommitMessage:
        """Runs one task: everything is staged when this returns."""
        settings = self.settings
        with self.cluster() as cluster:
            stage = StageWriter(cluster, identity.query, settings.codec)
            routing = RowPartitioner(
                self.columns,
                settings.topic,
                lambda topic: len(cluster.topic(topic, create=True).partitions),
            )
            try:
                for batch in batches:
                    for rows in routing.split(batch, start, time.time_ns() // 1_000_000):
                        for body in bodies(
                            rows.keys, rows.values, rows.headers, rows.timestamps, settings.batch_bytes
                        ):
                            stage.put(rows.topic, rows.partition, body)
                return StageCommitMessage(identity, stage.finish())
            except BaseException:
                with contextlib.suppress(ClientError):
                    Epochs(cluster, "", identity.query).abort([stage.summary])
                raise

    def commit(self, messages: Sequence[StageCommitMessage | None]) -> None:
        """Commits on the driver: the whole epoch is visible when this returns."""
        staged = [each for each in messages if each is not None]
        if not staged:
            return
        identity = staged[0].identity
        if any(
            each.identity.query != identity.query or each.identity.epoch != identity.epoch for each in staged
        ):
            raise ClientError(f"tasks of several queries or epochs in one commit: {staged}")
        stages = [each.summary for each in staged]
        topics = {topic for each in stages for topic, _ in each.topic_partitions}
        if not topics and self.settings.topic is None:
            return  # no row, so no topic that determines the log group
        with self.cluster() as cluster:
            if not topics:  # an epoch without a row: its topic may not be there yet
                topics = {self.settings.topic or ""}
                cluster.topic(self.settings.topic or "", create=True)
            topic = commit_topic(cluster, identity.query, topics, self.settings.commit_topic)
            epochs = Epochs(cluster, topic, identity.query, self.settings.accepted_epoch)
            epochs.commit(identity.run, identity.epoch, stages)

    def abort(self, messages: Sequence[StageCommitMessage | None]) -> None:
        """Aborts the epoch on the driver. Stages of failed tasks end with the query's next commit, or expire:
        another run of the query may be writing. Spark hides the epoch's failure behind an abort that raises,
        so a stage that cannot be aborted now expires."""
        staged = [each for each in messages if each is not None]
        if staged:
            with contextlib.suppress(ClientError), self.cluster() as cluster:
                Epochs(cluster, "", staged[0].identity.query).abort([each.summary for each in staged])

    def abandon(self, messages: Sequence[StageCommitMessage | None], query: str) -> None:
        """Aborts a query of its own on the driver: all of its open stages end, now or (as in `abort`) when
        they expire."""
        topics = {
            topic for each in messages if each is not None for topic, _ in each.summary.topic_partitions
        }
        if self.settings.topic is not None:
            topics.add(self.settings.topic)
        with contextlib.suppress(ClientError), self.cluster() as cluster:
            Epochs(cluster, "", query).abandon(topics)


class StreamWriter(datasource.DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """The sink of a stream. Args: those of `DataSource.streamWriter`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._sink = _SinkWriter(options, schema)

    def write(self, iterator: Iterator[Any]) -> StageCommitMessage:
        """One task of one epoch, Arrow batches."""
        context = TaskContext.get()
        assert context is not None
        query, run = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(RUN_PROPERTY)
        epoch = context.getLocalProperty(EPOCH_PROPERTY)
        if query is None or run is None or epoch is None:
            raise ClientError(
                "this task has no query and epoch; the exactly-once sink works in "
                "micro-batches, not in continuous or real-time mode"
            )
        return self._sink.write(WriteIdentity(query, run, int(epoch)), iterator, context.partitionId())

    def commit(self, messages: list[StageCommitMessage | None], batchId: int) -> None:
        """Make the epoch visible."""
        self._sink.commit(messages)

    def abort(self, messages: list[StageCommitMessage | None], batchId: int) -> None:
        """Undo what is staged, but nothing that is committed."""
        self._sink.abort(messages)


class BatchWriter(datasource.DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """The sink of a batch: a query of its own, with one epoch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._sink = _SinkWriter(options, schema)
        self._query = f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> StageCommitMessage:
        """One task."""
        context = TaskContext.get()
        assert context is not None
        return self._sink.write(WriteIdentity(self._query, self._query, 0), iterator, context.partitionId())

    def commit(self, messages: list[StageCommitMessage | None]) -> None:
        """Make it visible."""
        self._sink.commit(messages)

    def abort(self, messages: list[StageCommitMessage | None]) -> None:
        """Undo what is staged."""
        self._sink.abandon(messages, self._query)
