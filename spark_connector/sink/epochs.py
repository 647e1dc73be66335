"""The committed epochs of a query: one record an epoch, found again by its lock.

Owns: the record's contents, and the commit of an epoch, which happens exactly once.
Invariants: a commit holds the write lock `spark/QUERY` with the offset of the query's last record as its
mark, so it is rejected after any other commit; then that record decides: our epoch with as many rows means
that it is done; another number of rows, a later epoch, or a newer run after ours, that we are fenced; else
the commit is sent again, with the new mark. A lost response is the same case. Aborting undoes no commit.
Does not: write records (`stage`). Source: docs/staged.md; the rules for locks (docs/locks.md).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.lock_words import HWM, WRITE
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.protocol.staged_messages import (
    LockstepStagedRequest,
    LockstepStagedResponse,
    Stage,
    StagedRecord,
    StagedTopic,
)
from spark_connector.connection import BrokerError, ClientError, ClusterClient, ConnectionFailed
from spark_connector.sink.stage import StageSummary

COMMIT_PARTITION: Final = 0
MAX_FORMER_RUNS: Final = 100
"""The former runs that a record lists."""
RETRIABLE_COMMIT_ERRORS: Final = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT})
FETCH_BYTES: Final = 1 << 20
FETCH_NAMES_TOPICS: Final = 12
_CONFLICT: Final = re.compile(r"\breason=LOCK\b.* conflict_offset=(\d+) (exact|estimate)")
_VERSION: Final = 1


class Fenced(ClientError):
    """The committed epoch is another run's, or of another checkpoint: this run may not write any more."""


@dataclass(frozen=True)
class EpochRecord:
    """The newest committed epoch of a query, with its run."""

    query: str
    run: str
    epoch: int
    records: int
    former: tuple[str, ...] = ()
    """The former runs, oldest first."""

    def value(self) -> bytes:
        """Encodes the record for the log."""
        fields = {"version": _VERSION, **vars(self)}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def of(cls, value: bytes | None) -> EpochRecord | None:
        """Decodes a record; None where it is no epoch record."""
        try:
            match json.loads(value or b""):
                case {
                    "version": 1,
                    "query": str(query),
                    "run": str(run),
                    "epoch": int(epoch),
                    "records": int(records),
                    "former": list(former),
                }:
                    return cls(query, run, epoch, records, tuple(map(str, former)))
        except ValueError:
            pass
        return None


class _EndRequest(NamedTuple):
    """A request to end stages, for the leader of this partition."""

    topic: str
    partition: int
    request: LockstepStagedRequest
    about: str


class Epochs:
    """Commits and aborts of one query's epochs.

    Args:
        commit_topic: the topic of its records; `lockstep.locks=true`, in the log group of the rows.
        accepted: an epoch that counts as done where it is committed, with any number of rows.
    """

    def __init__(
        self, cluster: ClusterClient, commit_topic: str, query: str, accepted: int | None = None
    ) -> None:
        self._cluster = cluster
        self._accepted = accepted
        self._topic = commit_topic
        self._query = query

    def commit(self, run: str, epoch: int, stages: Sequence[StageSummary]) -> bool:
        """Makes the epoch visible; False where it was visible before.

        Raises Fenced, BrokerError (as for an expired stage), ConnectionFailed; it may be repeated.
        """
        mark = -1
        last: EpochRecord | None = None
        while True:
            former = () if last is None else last.former
            if last is not None and last.run != run:
                former = (*[each for each in former if each != last.run], last.run)[-MAX_FORMER_RUNS:]
            record = EpochRecord(self._query, run, epoch, sum(each.records for each in stages), former)
            found = self._try_commit(record, mark, stages)
            if found is None:
                return True
            mark, last = found
            if last is None:
                continue
            if last.epoch == epoch:
                self.abort(stages)  # what a repetition staged; nothing is open of what was committed
                # To call it done where the rows are others would lose some without a word.
                if last.records != record.records and epoch != self._accepted:
                    raise Fenced(
                        f"query {self._query}: epoch {epoch} is committed with {last.records} rows, and "
                        f"comes again with {record.records}; was the checkpoint set back or copied? Where "
                        "the query's source has fewer records now (compaction, retention), or the query "
                        f"gives other rows each time, acceptEpoch={epoch} continues after the committed rows"
                    )
                return False
            if last.epoch > epoch or run in last.former:
                self.abort(stages)
                raise Fenced(
                    f"query {self._query}: run {last.run} has committed epoch {last.epoch}, and run {run} "
                    f"comes with epoch {epoch}; do two drivers share one checkpoint, or was it set back?"
                )

    def abort(self, stages: Sequence[StageSummary]) -> None:
        """Ends the open stages among these, also where another one fails. Raises as `commit`; an unreachable
        stage expires by itself."""
        self._end(
            _EndRequest(
                *stage.topic_partitions[0],
                LockstepStagedRequest(query=self._query, stages=[_stage_message(stage)]),
                f"abort of stage {stage.producer_id}",
            )
            for stage in _non_empty(stages)
        )

    def abandon(self, topics: Iterable[str]) -> None:
        """Ends all open stages of the query in the log groups of these topics. Raises as `abort`."""
        self._end(
            _EndRequest(
                name,
                0,
                LockstepStagedRequest(query=self._query, abandoned=[name]),
                f"what query {self._query} has open around {name}",
            )
            for name in sorted(set(topics))
        )

    # --- private ------------------------------------------------------------------------------------------

    def _end(self, requests: Iterable[_EndRequest]) -> None:
        """Ends all stages, as far as possible. Raises the first failure of the last round."""
        pending = dict(enumerate(requests))

        def attempt() -> None:
            failure: ClientError | None = None
            silent: set[str] = set()
            for number, each in list(pending.items()):
                if each.topic in silent:  # its leader has timed out already
                    continue
                try:
                    leader = self._cluster.leader(each.topic, each.partition)
                    response = leader.call(each.request, LockstepStagedResponse)
                    if response.error_code:
                        raise BrokerError(response.error_code, each.about, response.error_message)
                except ClientError as error:
                    failure = failure or error
                    if isinstance(error, ConnectionFailed):
                        silent.add(each.topic)
                else:
                    del pending[number]
            if failure is not None:
                raise failure

        self._cluster.retry(attempt, retriable=RETRIABLE_COMMIT_ERRORS)

    def _try_commit(
        self, record: EpochRecord, mark: int, stages: Sequence[StageSummary]
    ) -> tuple[int, EpochRecord | None] | None:
        """None when it is committed; else the conflicting record and its offset (see `_newest`)."""
        building = BatchBuilder()
        lock = f"spark/{self._query}".encode()
        headers = [(HWM, b"%d" % mark), (WRITE, lock)]
        building.append(record.value(), lock, timestamp_ms=time.time_ns() // 1_000_000, headers=headers)
        request = LockstepStagedRequest(
            query=self._query,
            stages=[_stage_message(each) for each in _non_empty(stages)],
            is_commit=True,
            record=[
                StagedRecord(topic=self._topic, partition_index=COMMIT_PARTITION, records=building.build())
            ],
        )

        def attempt() -> LockstepStagedResponse:
            connection = self._cluster.leader(self._topic, COMMIT_PARTITION)
            response = connection.call(request, LockstepStagedResponse)
            if response.error_code and response.error_code != ErrorCode.POLICY_VIOLATION:
                about = f"the commit of epoch {record.epoch} of query {self._query}"
                raise BrokerError(response.error_code, about, response.error_message)
            return response

        response = self._cluster.retry(attempt, retriable=RETRIABLE_COMMIT_ERRORS)
        if not response.error_code:
            return None
        conflict = _CONFLICT.search(response.error_message or "")
        if conflict is None:
            about = f"the commit of epoch {record.epoch} of query {self._query}"
            raise BrokerError(response.error_code, about, response.error_message)
        return self._newest(int(conflict[1]), mark, is_exact=conflict[2] == "exact")

    def _newest(self, upto: int, after: int, *, is_exact: bool) -> tuple[int, EpochRecord | None]:
        """The query's newest record above `after`: at `upto` or, where that is an estimate, below.

        An estimate may stand for locks of other queries: no record then, and all up to there is read.
        """
        found = self._newest_in(upto, upto)
        if found is None:
            found = self._newest_in(after + 1, upto)
        if found is not None:
            return found
        if not is_exact:
            return upto, None
        raise ClientError(
            f"query {self._query}: {self._topic} has no record of it at {upto}, whose lock is raised; "
            "was the topic cut? It needs retention.ms=-1 and retention.bytes=-1"
        )

    def _newest_in(self, first: int, last: int) -> tuple[int, EpochRecord] | None:
        newest: tuple[int, EpochRecord] | None = None
        position = first
        while position <= last:
            data = self._fetch(position)
            begun = position
            for at, header in iter_headers(data):
                if not header.is_control:
                    for each in iter_records(data, at):
                        read = EpochRecord.of(each.value)
                        if read is not None and read.query == self._query and first <= each.offset <= last:
                            newest = each.offset, read
                position = header.base_offset + header.last_offset_delta + 1
            if position <= begun:
                break
        return newest

    def _fetch(self, offset: int) -> bytes:
        part = FetchPartition(
            partition=COMMIT_PARTITION, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=1,
            topics=[FetchTopic(topic=self._topic, partitions=[part])],
        )

        def attempt() -> bytes:
            connection = self._cluster.leader(self._topic, COMMIT_PARTITION)
            response = connection.call(request, FetchResponse, newest=FETCH_NAMES_TOPICS)
            for topic in response.responses:
                for each in topic.partitions:
                    if each.error_code:
                        raise BrokerError(each.error_code, f"{self._topic}, offset {offset}")
                    return bytes(memoryview(each.records or b""))  # type: ignore[arg-type]
            raise BrokerError(response.error_code, f"{self._topic}, offset {offset}")

        return self._cluster.retry(attempt)


def _non_empty(stages: Sequence[StageSummary]) -> list[StageSummary]:
    """The stages with batches."""
    return [each for each in stages if each.topic_partitions]


def _stage_message(stage: StageSummary) -> Stage:
    topics: dict[str, list[int]] = {}
    for topic, partition in stage.topic_partitions:
        topics.setdefault(topic, []).append(partition)
    staged_topics = [StagedTopic(name=name, partition_indexes=sorted(each)) for name, each in topics.items()]
    return Stage(producer_id=stage.producer_id, topics=staged_topics)
