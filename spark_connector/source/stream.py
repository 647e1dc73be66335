"""A stream: the reader of `spark.readStream.format("lockstep")`, micro-batch by micro-batch.

Owns: the offsets that Spark keeps in the checkpoint, as JSON: {"group": name, "topics": {topic: {"0":
next}}}. The group's name is chosen once and travels with them, so it is one for each checkpoint.

Invariants: a micro-batch has the records between two such offsets, also after any restart. With
`availableNow` the end is fixed when the query starts and nothing is read beyond it. A partition that appears
later is read from its beginning.

Spark stores ends alone. It requests the beginning of the first micro-batch again, twice in a run and again
after a restart, and `latest` has changed by then: so a reader resolves it once and marks it "initial", and
the first end that differs from it has "began", which takes precedence over a later result.

pyspark 4.0 and 4.1 request the newest offset without the previous one: there are no limits per trigger
there, and the group is named after the options. They request the end before the beginning, so that `latest`
is never below that end: there the first micro-batch begins where it ends, after a restart, too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_connector.connection import ClusterClient
from spark_connector.options import EARLIEST, LATEST, OptionError, SourceOptions, TopicPartition
from spark_connector.source.batch import connect, divide_ranges, read_range
from spark_connector.source.byte_limit import PartitionRotation, limit_bytes
from spark_connector.source.positions import is_moving, offsets_at, partitions_of, resolve_offsets
from spark_connector.source.progress import store
from spark_connector.source.range_plan import OffsetRange, Offsets, limit_offsets
from spark_connector.source.range_reader import DataLost

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # before 4.2
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A placeholder: Spark 4.0 and 4.1 do not have this class."""


Json = dict[str, Any]

_INITIAL: Final = "initial"
"""True in the offset that a new checkpoint begins with."""
_BEGAN: Final = "began"
"""In the end of the first micro-batch with records: the offsets of its beginning."""


def offsets_json(group: str, offsets: Mapping[TopicPartition, int]) -> Json:
    """The JSON of a position, which Spark stores."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(index)] = offset
    return {"group": group, "topics": topics}


def offsets_of(kept: Json) -> Offsets:
    """The position in that JSON."""
    return {
        (topic, int(index)): offset
        for topic, partitions in kept["topics"].items()
        for index, offset in partitions.items()
    }


class _StreamReaderBase(DataSourceStreamReader):
    """The common part for all versions of Spark."""

    def __init__(self, options: SourceOptions) -> None:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in options.named:
                raise OptionError(name, "is for batch queries: a stream has no end")
        self._options = options
        self._cluster: ClusterClient | None = None
        self._initial: Json | None = None
        """The beginning of a new checkpoint, once it is resolved."""
        self._newest: Json | None = None
        self._committed: Json | None = None
        """The last committed position of the group."""
        self._rotation = PartitionRotation()
        self._target: Offsets | None = None
        """The end of a query with availableNow."""

    def __getstate__(self) -> Json:
        """The state for tasks, which need the options alone."""
        return {**self.__dict__, "_cluster": None}

    def initialOffset(self) -> Json:
        """The beginning of a new checkpoint: `startingOffsets`, latest by default; resolved once."""
        if self._initial is not None:
            return self._initial
        options, cluster = self._options, self._connect()
        parts = partitions_of(cluster, options.selection)
        start = resolve_offsets(cluster, parts, options.starting, default=LATEST, committed=options.committed)
        if self._target is not None:  # Spark requested it first, and records may have come since
            self._target = {part: max(end, start.get(part, end)) for part, end in self._target.items()}
        self._initial = offsets_json(options.group_id or self._new_group(), start) | {_INITIAL: True}
        return self._initial

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """A task for each range between two offsets."""
        begins, until = self._micro_batch_start(start, end), offsets_of(end)
        self._check_no_loss(begins, until)
        fresh = [part for part in until if begins.get(part, until[part] + 1) > until[part]]
        if fresh:  # new, or re-created under the same name
            found = offsets_at(self._connect(), fresh, EARLIEST, committed=False)
            self._from_the_beginning(found)
            begins |= found
        ranges = [OffsetRange(*part, begins[part], until[part]) for part in until]
        return [InputPartition(each) for each in divide_ranges(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_range(self._options, partition.value)

    def commit(self, end: Json) -> None:
        """Commits `end`, which Spark will not read before again, as the group's position."""
        self._commit_group(end)

    def stop(self) -> None:
        """Releases what the query holds: it has ended."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _micro_batch_start(self, start: Json, end: Json) -> Offsets:
        """The beginning of the micro-batch between two offsets. Checkpoints of former versions have
        neither "initial" nor "began"."""
        begins = offsets_of(start)
        if _INITIAL not in start:
            return begins
        if _BEGAN in end:
            return offsets_of({"topics": end[_BEGAN]})
        if _INITIAL in end:  # nothing was there to be read
            return offsets_of(end)
        if HAS_LIMITS:
            return begins
        starting, until = self._options.starting, offsets_of(end)
        return {
            part: min(offset, until[part]) if is_moving(starting, part, default=LATEST) else offset
            for part, offset in begins.items()
            if part in until  # one that came meanwhile is read from its beginning, in the next micro-batch
        }

    def _commit_group(self, reached: Json) -> None:
        if reached != self._committed:
            group = self._options.group_id or reached["group"]
            store(self._connect(), group, offsets_of(reached))
            self._committed = reached

    def _connect(self) -> ClusterClient:
        if self._cluster is None:
            self._cluster = connect(self._options)
        return self._cluster

    def _new_group(self) -> str:
        if HAS_LIMITS:
            return f"{self._options.group_id_prefix}-{uuid4()}"
        text = json.dumps(self._options.named, sort_keys=True).encode()
        return f"{self._options.group_id_prefix}-{hashlib.sha256(text).hexdigest()[:16]}"

    def _ends_now(self) -> Offsets:
        cluster, options = self._connect(), self._options
        return offsets_at(
            cluster, partitions_of(cluster, options.selection), LATEST, committed=options.committed
        )

    def _from_the_beginning(self, fresh: Offsets) -> None:
        """Raises DataLost where a new partition has lost records: a repeated micro-batch would have other
        rows."""
        for (topic, index), offset in sorted(fresh.items()):
            if offset > 0 and self._options.fail_on_data_loss:
                raise DataLost(
                    f"{topic}, partition {index}: new, and begins at {offset} already; failOnDataLoss=false "
                    "continues with the remaining records"
                )

    def _check_no_loss(self, start: Offsets, now: Offsets) -> None:
        """Raises DataLost where a partition ends below the position that was read, or is gone."""
        if not self._options.fail_on_data_loss:
            return
        for (topic, index), offset in sorted(start.items()):
            found = now.get((topic, index))
            if found is None or found < offset:
                there = "is not there any more" if found is None else f"ends at {found} now"
                raise DataLost(
                    f"{topic}, partition {index}: read up to {offset}, it {there}: was the topic re-created? "
                    "failOnDataLoss=false continues with the remaining records"
                )


if HAS_LIMITS:

    class StreamReader(_StreamReaderBase, SupportsTriggerAvailableNow):
        """The reader with limits per trigger, from Spark 4.2 on."""

        def getDefaultReadLimit(self) -> ReadLimit:
            """The limit that the options set. Two limits hold together."""
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.max_bytes_per_trigger is not None:
                return ReadMaxBytes(self._options.max_bytes_per_trigger)
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            """Fixes the end of the query at the present end of the partitions."""
            self._target = self._ends_now()

        def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
            """The end of the next micro-batch; `start` itself where there is nothing new.

            Spark has committed what lies before `start`, but calls `commit` for it only when a further
            micro-batch has something in it: with availableNow never for the last one.
            """
            self._commit_group(start)
            group = self._options.group_id or start["group"]
            begins = offsets_of(start)
            now = self._ends_now() if self._target is None else self._target
            self._newest = offsets_json(group, now)
            self._check_no_loss(begins, now)
            fresh = [part for part in now if begins.get(part, now[part] + 1) > now[part]]
            begins |= offsets_at(self._connect(), fresh, EARLIEST, committed=False)
            end = now
            if isinstance(limit, ReadMaxRows):
                end = limit_offsets(begins, end, limit.max_rows)
            max_bytes = self._options.max_bytes_per_trigger
            if isinstance(limit, ReadMaxBytes):
                max_bytes = limit.max_bytes
            if max_bytes is not None and not isinstance(limit, ReadAllAvailable):
                cluster, committed = self._connect(), self._options.committed
                end = limit_bytes(
                    cluster, begins, end, max_bytes, committed=committed, rotation=self._rotation
                )
            reached = offsets_json(group, end)
            if reached["topics"] == start["topics"]:
                return start  # Spark compares the JSON texts: another field in them would begin a micro-batch
            return reached | {_BEGAN: start["topics"]} if _INITIAL in start else reached

        def reportLatestOffset(self) -> Json | None:
            """The ends of the partitions when they were listed last."""
            return self._newest

else:

    class StreamReader(_StreamReaderBase):  # type: ignore[no-redef]
        """The reader for Spark 4.0 and 4.1, without limits."""

        def __init__(self, options: SourceOptions) -> None:
            super().__init__(options)
            for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
                if name.lower() in options.named:
                    raise OptionError(name, "needs pyspark 4.2 or newer; leave it out")

        def latestOffset(self) -> Json:
            """The present ends of the partitions."""
            return offsets_json(self._options.group_id or self._new_group(), self._ends_now())
