"""A stream: what `spark.readStream.format("lockstep")` reads, micro-batch by micro-batch.

Owns: the offsets that Spark keeps in the checkpoint, as JSON: {"group": name, "topics": {topic: {"0":
next}}}. The group's name is chosen once and travels with them, so it is one for each checkpoint.

Invariants: a micro-batch is what lies between two such offsets, today and after any restart. With
`availableNow` the end is fixed when the query starts and nothing is read beyond it. A partition that appears
later is read from its beginning.

Spark keeps ends alone. Where the first micro-batch begins it asks anew, twice in a run and again after a
restart, and `latest` means something else by then: so a reader answers once, what it answers says "initial",
and the first end that differs from it says where it "began", which counts for more than a later answer.

pyspark 4.0 and 4.1 ask for the newest offset without saying from where: there are no limits per trigger
there, and the group is named after the options. They ask for the end before the beginning, so that `latest`
is never below that end: there the first micro-batch begins where it ends, after a restart, too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_connector.connection import Cluster
from spark_connector.options import EARLIEST, LATEST, OptionError, SourceOptions, TopicPartition
from spark_connector.source.batch import connected, divided_as, read_range
from spark_connector.source.fetching import DataLost
from spark_connector.source.planning import Offsets, Range, limited
from spark_connector.source.positions import ends, moves, partitions_of, resolved
from spark_connector.source.progress import store
from spark_connector.source.sizing import Turns, within_bytes

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
        """Spark 4.0 and 4.1 know no such thing."""


Json = dict[str, Any]

_INITIAL: Final = "initial"
"""True in the offset that a new checkpoint begins with."""
_BEGAN: Final = "began"
"""In the end of the first micro-batch that has something in it: the topics of where that begins."""


def offsets_json(group: str, offsets: Mapping[TopicPartition, int]) -> Json:
    """What Spark keeps of a position."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(index)] = offset
    return {"group": group, "topics": topics}


def offsets_of(kept: Json) -> Offsets:
    """The position again."""
    return {
        (topic, int(index)): offset
        for topic, partitions in kept["topics"].items()
        for index, offset in partitions.items()
    }


class _Reader(DataSourceStreamReader):
    """What all versions of Spark have in common."""

    def __init__(self, options: SourceOptions) -> None:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in options.named:
                raise OptionError(name, "is for batch queries: a stream has no end")
        self._options = options
        self._cluster: Cluster | None = None
        self._initial: Json | None = None
        """Where a new checkpoint begins, since it was asked for."""
        self._newest: Json | None = None
        self._shown: Json | None = None
        """What the group's position was set to last."""
        self._turns = Turns()
        self._target: Offsets | None = None
        """With availableNow: where the query ends."""

    def __getstate__(self) -> Json:
        """For the tasks, which need the options alone."""
        return {**self.__dict__, "_cluster": None}

    def initialOffset(self) -> Json:
        """Where a new checkpoint begins: `startingOffsets`, latest by default; what it was at first."""
        if self._initial is not None:
            return self._initial
        options, cluster = self._options, self._connected()
        parts = partitions_of(cluster, options.chosen)
        start = resolved(cluster, parts, options.starting, default=LATEST, committed=options.committed)
        if self._target is not None:  # it was taken first, and records may have come since
            self._target = {part: max(end, start.get(part, end)) for part, end in self._target.items()}
        self._initial = offsets_json(options.group_id or self._new_group(), start) | {_INITIAL: True}
        return self._initial

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """A task for each range between two offsets."""
        begins, until = self._begins(start, end), offsets_of(end)
        self._without_loss(begins, until)
        fresh = [part for part in until if begins.get(part, until[part] + 1) > until[part]]
        if fresh:  # new, or made anew under the same name
            found = ends(self._connected(), fresh, EARLIEST, committed=False)
            self._from_the_beginning(found)
            begins |= found
        ranges = [Range(*part, begins[part], until[part]) for part in until]
        return [InputPartition(each) for each in divided_as(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_range(self._options, partition.value)

    def commit(self, end: Json) -> None:
        """Spark will not ask for anything before `end` again: show it as the group's position."""
        self._show(end)

    def stop(self) -> None:
        """The query is over."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _begins(self, start: Json, end: Json) -> Offsets:
        """Where the micro-batch between two offsets begins. Checkpoints of former versions have no marks."""
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
            part: min(offset, until[part]) if moves(starting, part, default=LATEST) else offset
            for part, offset in begins.items()
            if part in until  # one that came meanwhile is read from its beginning, in the next micro-batch
        }

    def _show(self, reached: Json) -> None:
        if reached != self._shown:
            group = self._options.group_id or reached["group"]
            store(self._connected(), group, offsets_of(reached))
            self._shown = reached

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = connected(self._options)
        return self._cluster

    def _new_group(self) -> str:
        if HAS_LIMITS:
            return f"{self._options.group_id_prefix}-{uuid4()}"
        told = json.dumps(self._options.named, sort_keys=True).encode()
        return f"{self._options.group_id_prefix}-{hashlib.sha256(told).hexdigest()[:16]}"

    def _ends_now(self) -> Offsets:
        cluster, options = self._connected(), self._options
        return ends(cluster, partitions_of(cluster, options.chosen), LATEST, committed=options.committed)

    def _from_the_beginning(self, fresh: Offsets) -> None:
        """Raises DataLost where a new partition has lost records already: a repetition would read others."""
        for (topic, index), offset in sorted(fresh.items()):
            if offset > 0 and self._options.fail_on_data_loss:
                raise DataLost(
                    f"{topic}, partition {index}: new, and begins at {offset} already; failOnDataLoss=false "
                    "goes on with what is there"
                )

    def _without_loss(self, start: Offsets, now: Offsets) -> None:
        """Raises DataLost where a partition ends before what was read of it, or is gone."""
        if not self._options.fail_on_data_loss:
            return
        for (topic, index), offset in sorted(start.items()):
            found = now.get((topic, index))
            if found is None or found < offset:
                there = "is not there any more" if found is None else f"ends at {found} now"
                raise DataLost(
                    f"{topic}, partition {index}: read up to {offset}, it {there}: was the topic made anew? "
                    "failOnDataLoss=false goes on with what is there"
                )


if HAS_LIMITS:

    class StreamReader(_Reader, SupportsTriggerAvailableNow):
        """With limits per trigger, from Spark 4.2 on."""

        def getDefaultReadLimit(self) -> ReadLimit:
            """The limit that the options set. Where both are set, both hold."""
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.max_bytes_per_trigger is not None:
                return ReadMaxBytes(self._options.max_bytes_per_trigger)
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            """Nothing beyond what is there now will be read."""
            self._target = self._ends_now()

        def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
            """Where the next micro-batch ends; `start` itself where there is nothing new.

            Spark has committed what lies before `start`, but calls `commit` for it only when a further
            micro-batch has something in it: with availableNow never for the last one.
            """
            self._show(start)
            group = self._options.group_id or start["group"]
            begins = offsets_of(start)
            now = self._ends_now() if self._target is None else self._target
            self._newest = offsets_json(group, now)
            self._without_loss(begins, now)
            fresh = [part for part in now if begins.get(part, now[part] + 1) > now[part]]
            begins |= ends(self._connected(), fresh, EARLIEST, committed=False)
            end = now
            if isinstance(limit, ReadMaxRows):
                end = limited(begins, end, limit.max_rows)
            most_bytes = self._options.max_bytes_per_trigger
            if isinstance(limit, ReadMaxBytes):
                most_bytes = limit.max_bytes
            if most_bytes is not None and not isinstance(limit, ReadAllAvailable):
                cluster, committed = self._connected(), self._options.committed
                end = within_bytes(cluster, begins, end, most_bytes, committed=committed, turns=self._turns)
            reached = offsets_json(group, end)
            if reached["topics"] == start["topics"]:
                return start  # Spark compares texts, and other marks in them would be a micro-batch
            return reached | {_BEGAN: start["topics"]} if _INITIAL in start else reached

        def reportLatestOffset(self) -> Json | None:
            """Where the partitions ended when last looked at."""
            return self._newest

else:

    class StreamReader(_Reader):  # type: ignore[no-redef]
        """As Spark 4.0 and 4.1 have it."""

        def __init__(self, options: SourceOptions) -> None:
            super().__init__(options)
            for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
                if name.lower() in options.named:
                    raise OptionError(name, "needs pyspark 4.2 or newer; leave it out")

        def latestOffset(self) -> Json:
            """Where the partitions end."""
            return offsets_json(self._options.group_id or self._new_group(), self._ends_now())
