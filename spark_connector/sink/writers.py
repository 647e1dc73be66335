"""What Spark calls: writers of streams and batches, their messages, where a task finds whose it is.

Owns: the joining of the parts for one task (`write`) and for the driver (`commit`, `abort`).
Invariants: all that the driver needs travels in the messages: it runs in another process, with a writer made
anew. A task's epoch is Spark's batch id, its query is that of the checkpoint. A task that fails aborts its
stage as well as it can; what it cannot reach ends with the next commit, or expires.
Does not: decide which attempt counts (Spark's commit coordinator does), or when a batch is tried again.
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

from spark_connector.connection import ClientError, Cluster
from spark_connector.sink.columns import Columns, Routing
from spark_connector.sink.encoding import bodies
from spark_connector.sink.epochs import Epochs
from spark_connector.sink.settings import SinkSettings
from spark_connector.sink.stage import StageWriter, Written
from spark_connector.sink.topics import commit_topic

QUERY_PROPERTY: Final = "sql.streaming.queryId"
EPOCH_PROPERTY: Final = "streaming.sql.batchId"
RUN_PROPERTY: Final = "spark.jobGroup.id"


@dataclass(frozen=True)
class Identity:
    """Whose write it is."""

    query: str
    run: str
    epoch: int


@dataclass
class Staged(datasource.WriterCommitMessage):
    """What a task tells the driver."""

    identity: Identity
    written: Written


class _Sink:
    """What streams and batches share."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.settings = SinkSettings.of(options)
        self.columns = Columns.of(schema, self.settings.topic)

    def cluster(self) -> Cluster:
        settings = self.settings
        return Cluster(settings.bootstrap, timeout_s=settings.timeout_s, security=settings.security)

    def write(self, identity: Identity, batches: Iterator[Any], start: int) -> Staged:
        """One task: everything is staged when this returns."""
        settings = self.settings
        with self.cluster() as cluster:
            stage = StageWriter(cluster, identity.query, settings.codec)
            routing = Routing(
                self.columns,
                settings.topic,
                lambda topic: len(cluster.topic(topic, create=True).partitions),
            )
            try:
                for batch in batches:
                    for rows in routing.cut(batch, start, time.time_ns() // 1_000_000):
                        for body in bodies(
                            rows.keys, rows.values, rows.headers, rows.timestamps, settings.batch_bytes
                        ):
                            stage.put(rows.topic, rows.partition, body)
                return Staged(identity, stage.finish())
            except BaseException:
                with contextlib.suppress(ClientError):
                    Epochs(cluster, "", identity.query).abort([stage.written])
                raise

    def commit(self, messages: Sequence[Staged | None]) -> None:
        """The driver: all of it is visible when this returns, or was before."""
        told = [each for each in messages if each is not None]
        if not told:
            return
        identity = told[0].identity
        if any(
            each.identity.query != identity.query or each.identity.epoch != identity.epoch for each in told
        ):
            raise ClientError(f"tasks of several queries or epochs in one commit: {told}")
        stages = [each.written for each in told]
        topics = {place[0] for each in stages for place in each.places}
        if not topics and self.settings.topic is None:
            return  # no row, and no topic that would say which log group it is about
        with self.cluster() as cluster:
            if not topics:  # an epoch without a row: its topic may not be there yet
                topics = {self.settings.topic or ""}
                cluster.topic(self.settings.topic or "", create=True)
            topic = commit_topic(cluster, identity.query, topics, self.settings.commit_topic)
            epochs = Epochs(cluster, topic, identity.query, self.settings.accepted_epoch)
            epochs.commit(identity.run, identity.epoch, stages)

    def abort(self, messages: Sequence[Staged | None]) -> None:
        """The driver gave the epoch up. What failed tasks left ends with the query's next commit, or expires:
        another run of the query may be writing. Spark hides why the epoch failed behind an abort that
        raises: what brokers cannot be told now expires."""
        told = [each for each in messages if each is not None]
        if told:
            with contextlib.suppress(ClientError), self.cluster() as cluster:
                Epochs(cluster, "", told[0].identity.query).abort([each.written for each in told])

    def abandon(self, messages: Sequence[Staged | None], query: str) -> None:
        """The driver gave a query up that is nobody else's: everything that it has open ends, now or (as in
        `abort`) when it expires."""
        topics = {place[0] for each in messages if each is not None for place in each.written.places}
        if self.settings.topic is not None:
            topics.add(self.settings.topic)
        with contextlib.suppress(ClientError), self.cluster() as cluster:
            Epochs(cluster, "", query).abandon(topics)


class StreamWriter(datasource.DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """The sink of a stream. Args: as Spark calls `DataSource.streamWriter`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._sink = _Sink(options, schema)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """One task of one epoch, Arrow batches."""
        context = TaskContext.get()
        assert context is not None
        query, run = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(RUN_PROPERTY)
        epoch = context.getLocalProperty(EPOCH_PROPERTY)
        if query is None or run is None or epoch is None:
            raise ClientError(
                "this task does not say which query and epoch it is of; the exactly-once sink works in "
                "micro-batches, not in continuous or real-time mode"
            )
        return self._sink.write(Identity(query, run, int(epoch)), iterator, context.partitionId())

    def commit(self, messages: list[Staged | None], batchId: int) -> None:
        """Make the epoch visible."""
        self._sink.commit(messages)

    def abort(self, messages: list[Staged | None], batchId: int) -> None:
        """Undo what is staged, but nothing that is committed."""
        self._sink.abort(messages)


class BatchWriter(datasource.DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """The sink of a batch: a query of its own, with one epoch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._sink = _Sink(options, schema)
        self._query = f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> Staged:
        """One task."""
        context = TaskContext.get()
        assert context is not None
        return self._sink.write(Identity(self._query, self._query, 0), iterator, context.partitionId())

    def commit(self, messages: list[Staged | None]) -> None:
        """Make it visible."""
        self._sink.commit(messages)

    def abort(self, messages: list[Staged | None]) -> None:
        """Undo what is staged."""
        self._sink.abandon(messages, self._query)
