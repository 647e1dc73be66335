"""The review of records that salvaged logs lack at their beginning, once this node knows its topics.

Owns: which missing ranges are confirmed, so that they are reported as damage, and which of them only as
possible ones, because compaction may have removed the records; the log line with both. Invariant: nothing is
reviewed before group 0 has applied what its log held at the start: before that, the policies of topics are
unknown or old. A range of a topic that is not known even then waits, and reads of it fail. Does not: find
missing records (`storage/missing_records.py`), or report them afterwards (`broker/maintenance/damage.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, METADATA_TOPIC_ID, MetadataCache
from lockstep.broker.metadata.topic_validation import FIXED_IDS
from lockstep.storage.log.damage import DamagedRange
from lockstep.storage.log.missing_segment import EMPTY_DIRECTORY
from lockstep.storage.log_group import LogGroup
from lockstep.storage.missing_records import is_obsolete

log = logging.getLogger("lockstep")

INTERNAL_TOPIC_IDS: Final = (METADATA_TOPIC_ID, *FIXED_IDS.values())
MAX_LOGGED_PARTITIONS: Final = 20
"""Partitions with missing records of one kind that one log line names."""


class MissingRecordsReview:
    """See the module."""

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._named: set[tuple[int, int]] = set()
        """(log group, local id) of the partitions that a line named because their topic is not known."""
        self._with_losses: set[int] = set()
        """The log groups whose possible losses a line named."""
        self._last_error = ""

    def update(self) -> None:
        """Review what is to be reviewed by now."""
        metadata = self._cluster.groups.get(METADATA_GROUP)
        if metadata is None or metadata.applied_index < min(
            metadata.recovered_index, metadata.raft.last_index
        ):
            return
        for group_id, group in sorted(self._cluster.groups.items()):
            found = group.log.damage.list_unconfirmed()
            if found or (group.possible_losses and group_id not in self._with_losses):
                self._review(group, found)

    def _review(self, group: LogGroup, found: Sequence[DamagedRange]) -> None:
        confirmed: list[DamagedRange] = []
        dropped: list[DamagedRange] = []
        possible: list[DamagedRange] = []
        certain: list[str] = []
        compacted: list[str] = []
        unknown: list[str] = []
        for each in found:
            partition = group.partitions.get(each.partition)
            if is_obsolete(group.log, group.control, each):
                dropped.append(each)
                continue
            if partition is None:
                continue  # its data group has yet to open it again
            if partition.topic_id in INTERNAL_TOPIC_IDS:
                dropped.append(each)  # their state is in the checkpoint
                continue
            text = self._text(partition.topic_id, partition.index, each.first_offset, each.end_offset)
            policy = self._policy(partition.topic_id)
            if policy is None:
                if (group.group_id, each.partition) not in self._named:
                    unknown.append(text)
                    self._named.add((group.group_id, each.partition))
            elif "compact" in policy:
                possible.append(each)
                compacted.append(text)
            else:
                confirmed.append(each)
                certain.append(text)
        if confirmed or dropped or possible:
            try:
                group.log.damage.settle_missing(confirmed, dropped, possible)
            except OSError as error:
                self._not_written(group, error)
                return
        self._log(group, certain, compacted, unknown, self._losses(group))

    def _losses(self, group: LogGroup) -> list[str]:
        if group.group_id in self._with_losses:
            return []
        self._with_losses.add(group.group_id)
        return [
            self._text(each.topic_id, each.partition, each.first_offset, each.end_offset)
            for each in group.possible_losses
            if each.topic_id not in INTERNAL_TOPIC_IDS and each.local_id in group.partitions
        ]

    def _policy(self, topic_id: bytes) -> str | None:
        topic = self._cluster.image.topics.get(topic_id)
        default = ",".join(self._cluster.settings.log_cleanup_policy)
        return None if topic is None else topic.overrides.get("cleanup.policy", default)

    def _text(self, topic_id: bytes, index: int, first_offset: int, end_offset: int) -> str:
        topic = self._cluster.image.topics.get(topic_id)
        name = topic.name if topic is not None else f"topic {topic_id.hex()}"
        return f"{name}-{index}: offsets {first_offset} to {end_offset - 1}"

    def _not_written(self, group: LogGroup, error: OSError) -> None:
        text = f"log group {group.group_id}: which records are missing cannot be written: {error}"
        if text != self._last_error:
            log.warning("%s", text)
        self._last_error = text

    def _log(
        self,
        group: LogGroup,
        certain: Sequence[str],
        compacted: Sequence[str],
        unknown: Sequence[str],
        losses: Sequence[str],
    ) -> None:
        parts = []
        if certain:
            parts.append(
                f"these records above log starts are missing: {_join_first(certain)} (unless a topic was "
                "compacted before, and compaction removed them); their consumers get CORRUPT_MESSAGE until "
                "`lockstep log skip-damage TOPIC-PARTITION` gives them up"
            )
        if compacted:
            parts.append(
                f"these are missing, or compaction removed them: {_join_first(compacted)} (reads pass over "
                "them here, where no other node can lead)"
            )
        if unknown:
            parts.append(f"these are missing, of topics that are not known here: {_join_first(unknown)}")
        if losses:
            parts.append(
                "these are missing, or were deleted before a power loss, which log.flush=os does not tell: "
                f"{_join_first(losses)}"
            )
        if not parts:
            return
        log.error(
            "log group %d: its state file or damage file was damaged, and its log begins with frame %d in "
            "segment %d: %s. To get missing records from other nodes, %s",
            group.group_id,
            group.log.oldest_index,
            group.log.oldest_segment,
            "; ".join(parts),
            EMPTY_DIRECTORY,
        )


def _join_first(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_LOGGED_PARTITIONS
    return ", ".join(texts[:MAX_LOGGED_PARTITIONS]) + (f" and {more} more partitions" if more > 0 else "")
