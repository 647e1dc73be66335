"""The result of opening a log's directory: the recovered state, and a report for the log line about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.storage.log.checkpoint_file import PlacedCheckpoint
from lockstep.storage.log.lost_segments import LostFile
from lockstep.storage.log.segment_pool import ReadyFile
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.log.segments import Segment
from lockstep.storage.log.state_file import StateFile


@dataclass(frozen=True)
class RecoveryReport:
    """The result of opening the log, for one log line."""

    frames_scanned: int
    bytes_scanned: int
    end_text: str
    """The position of the log's end, in words."""
    reason: str
    """The reason why the scan stopped there."""
    ignored_checkpoints: tuple[str, ...]
    rebuilt_indexes: int
    damaged_slot: bool
    salvaged_from: int = 0
    """The first frame that a salvaging open has truncated because of corruption, with all after it; 0:
    none."""
    salvaged_state: bool = False
    """The hard state was lost and re-created: this is another incarnation."""
    skipped_segments: str = ""
    """After that: which segments are not there, though there are older ones; empty where none is missing."""
    lost_files: tuple[str, ...] = ()
    """Segment files below the checkpoint that are missing, cut short, or without a valid header."""
    wrongly_freed: tuple[str, ...] = ()
    """Names of segment files that stay in the log, as they are whole, though a freed file names them."""


class Recovered:
    """The recovered state from which `DataLog` starts."""

    __slots__ = (
        "checkpoints",
        "leftover",
        "lost",
        "may_join",
        "ready",
        "report",
        "segments",
        "state_file",
        "tail",
    )

    def __init__(
        self,
        state_file: StateFile,
        checkpoints: list[PlacedCheckpoint],
        segments: list[Segment],
        tail: LogTail,
        ready: list[ReadyFile],
        leftover: list[Path],
        report: RecoveryReport,
        may_join: bool,
        lost: dict[int, LostFile],
    ) -> None:
        self.state_file = state_file
        self.checkpoints = checkpoints
        """The two newest valid ones, oldest first."""
        self.segments = segments
        """The segments in log order; the last one is active. Empty for a log without a frame or a segment."""
        self.tail = tail
        self.ready = ready
        self.leftover = leftover
        """Files of freed or joined segments, to be recycled."""
        self.report = report
        self.may_join = may_join
        """True if no part of an unfinished join is left."""
        self.lost = lost
        """By sequence; their segments are among `segments`."""
