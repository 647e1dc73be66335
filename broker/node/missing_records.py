"""The review of records that are missing at the beginning of salvaged logs, once this node knows its topics.

Owns: the verdict on each missing range, which the log's damage table keeps, and the log line that names the
ranges. Invariant: nothing is reviewed before group 0 has applied the entries that its log had at the start:
before that, the cleanup policies of topics are unknown or old. A range of a topic that is not known even then
stays unconfirmed, and reads of it fail. Does not: find missing records (`storage/missing_records.py`), or
report them afterwards (`broker/maintenance/damage.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum, auto
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


class MissingRangeVerdict(Enum):
    """The result of the review of one missing range."""

    CONFIRMED = auto()
    """The records are missing; the range is reported as damage."""
    POSSIBLE = auto()
    """The records are missing, or compaction removed them; reads skip the range."""
    DROPPED = auto()
    """No record is missing any more, or the partition's state is in the checkpoint."""
    TOPIC_UNKNOWN = auto()
    """This node does not know the partition's topic, so the range is reviewed again."""
    NOT_OPENED = auto()
    """The log group has not opened the partition since the start, so the range is reviewed again."""


class MissingRecordsReview:
    """Reviews the unconfirmed missing ranges of this node's log groups."""

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._logged_unknown: set[tuple[int, int]] = set()
        """(log group, local id) of the partitions of unknown topics that were logged."""
        self._logged_losses: set[int] = set()
        """The log groups whose possible losses were logged."""
        self._last_error = ""

    def update(self) -> None:
        """Reviews the ranges that are not confirmed yet, and logs the verdicts. Called at intervals."""
        metadata = self._cluster.groups.get(METADATA_GROUP)
        if metadata is None or metadata.applied_index < min(
            metadata.recovered_index, metadata.raft.last_index
        ):
            return
        for group_id, group in sorted(self._cluster.groups.items()):
            unconfirmed = group.log.damage.list_unconfirmed()
            if unconfirmed or (group.possible_losses and group_id not in self._logged_losses):
                self._review(group, unconfirmed)

    def _review(self, group: LogGroup, unconfirmed: Sequence[DamagedRange]) -> None:
        reviewed: dict[MissingRangeVerdict, list[DamagedRange]] = {
            verdict: [] for verdict in MissingRangeVerdict
        }
        for missing in unconfirmed:
            reviewed[self._verdict(group, missing)].append(missing)
        confirmed, possible = reviewed[MissingRangeVerdict.CONFIRMED], reviewed[MissingRangeVerdict.POSSIBLE]
        dropped = reviewed[MissingRangeVerdict.DROPPED]
        if confirmed or dropped or possible:
            try:
                group.log.damage.resolve_missing(confirmed, dropped, possible)
            except OSError as error:
                self._log_write_failure(group, error)
                return
        self._log_verdicts(
            group,
            confirmed=self._texts(group, confirmed),
            possible=self._texts(group, possible),
            topic_unknown=self._texts(
                group, self._not_logged_yet(group, reviewed[MissingRangeVerdict.TOPIC_UNKNOWN])
            ),
            losses=self._possible_losses(group),
        )

    def _verdict(self, group: LogGroup, missing: DamagedRange) -> MissingRangeVerdict:
        if is_obsolete(group.log, group.control, missing):
            return MissingRangeVerdict.DROPPED
        partition = group.partitions.get(missing.local_id)
        if partition is None:
            return MissingRangeVerdict.NOT_OPENED
        if partition.topic_id in INTERNAL_TOPIC_IDS:
            return MissingRangeVerdict.DROPPED
        policy = self._cleanup_policy(partition.topic_id)
        if policy is None:
            return MissingRangeVerdict.TOPIC_UNKNOWN
        return MissingRangeVerdict.POSSIBLE if "compact" in policy else MissingRangeVerdict.CONFIRMED

    def _cleanup_policy(self, topic_id: bytes) -> str | None:
        topic = self._cluster.image.topics.get(topic_id)
        default = ",".join(self._cluster.settings.log_cleanup_policy)
        return None if topic is None else topic.overrides.get("cleanup.policy", default)

    # --- the log line ---------------------------------------------------------------------------------------

    def _not_logged_yet(self, group: LogGroup, ranges: Sequence[DamagedRange]) -> list[DamagedRange]:
        """The ranges of partitions that no log line has named as of unknown topics; this one will."""
        logged = self._logged_unknown
        found = [each for each in ranges if (group.group_id, each.local_id) not in logged]
        logged.update((group.group_id, each.local_id) for each in found)
        return found

    def _possible_losses(self, group: LogGroup) -> list[str]:
        """The texts of a group's possible losses (log.flush=os); none after the first time."""
        if group.group_id in self._logged_losses:
            return []
        self._logged_losses.add(group.group_id)
        return [
            self._text(each.topic_id, each.partition_index, each.first_offset, each.end_offset)
            for each in group.possible_losses
            if each.topic_id not in INTERNAL_TOPIC_IDS and each.local_id in group.partitions
        ]

    def _texts(self, group: LogGroup, ranges: Sequence[DamagedRange]) -> list[str]:
        partitions = group.partitions
        return [
            self._text(partition.topic_id, partition.index, each.first_offset, each.end_offset)
            for each in ranges
            if (partition := partitions.get(each.local_id)) is not None
        ]

    def _text(self, topic_id: bytes, index: int, first_offset: int, end_offset: int) -> str:
        topic = self._cluster.image.topics.get(topic_id)
        name = topic.name if topic is not None else f"topic {topic_id.hex()}"
        return f"{name}-{index}: offsets {first_offset} to {end_offset - 1}"

    def _log_write_failure(self, group: LogGroup, error: OSError) -> None:
        """Logs that the damage file cannot be written; the same failure once."""
        text = (
            f"log group {group.group_id}: the damage file, which is to record the missing records, cannot be "
            f"written: {error}"
        )
        if text != self._last_error:
            log.warning("%s", text)
        self._last_error = text

    def _log_verdicts(
        self,
        group: LogGroup,
        *,
        confirmed: Sequence[str],
        possible: Sequence[str],
        topic_unknown: Sequence[str],
        losses: Sequence[str],
    ) -> None:
        parts = []
        if confirmed:
            parts.append(
                f"these records above log starts are missing: {_join_first(confirmed)} (unless a topic was "
                "compacted before, and compaction removed them); their consumers get CORRUPT_MESSAGE until "
                "`lockstep log skip-damage TOPIC-PARTITION` makes consumers skip them"
            )
        if possible:
            parts.append(
                f"these records are missing, or compaction removed them: {_join_first(possible)} (consumers "
                "on this node skip these offsets without an error where no other node can lead)"
            )
        if topic_unknown:
            parts.append(
                "these records are missing, of topics that this node does not know: "
                f"{_join_first(topic_unknown)}"
            )
        if losses:
            parts.append(
                "these records are missing, or were deleted before a power loss, which log.flush=os cannot "
                f"distinguish: {_join_first(losses)}"
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
