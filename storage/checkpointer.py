"""Checkpoints of a group's state: cut at one frame, completed at its commit, written in a thread.

Invariants: a checkpoint's index is committed when the file is written; one is under way at a time; a cut
whose frame is truncated is dropped. Source: docs/storage_rules.md, decision 2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.state_machines import StateMachines
from lockstep.storage.types import Checkpoint, StorageFull, WriteFailed

log_of_checkpoints = logging.getLogger(__name__)

CONFIGURATION_SECTION = "configuration"
MAX_BATCHES = 50_000
"""A restart replays this many batches in about a second: beyond it a checkpoint does not wait for
the end of the segment. One of 64 MiB holds seven times as many offset commits."""
RETRY_SECONDS: Final = 10
"""The pause after a checkpoint that could not be written while the disk is not full."""


class Checkpointer:
    """The checkpoints of one group.

    Args:
        configuration_at: the membership in force at an index.
        written: called on the loop when one is durable, with its index.
        failed: called with an error that leaves the disk in doubt.
    """

    __slots__ = (
        "_configuration_at",
        "_cut",
        "_failed",
        "_log",
        "_loop",
        "_state",
        "_threads",
        "_write_failed",
        "_written",
        "index",
        "requested",
        "under_way",
    )

    def __init__(
        self,
        log: DataLog,
        state: StateMachines,
        configuration_at: Callable[[int], Configuration],
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        written: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._state = state
        self._configuration_at = configuration_at
        self._loop = loop
        self._threads = threads
        self._written = written
        self._failed = failed
        self._cut: Checkpoint | None = None
        self._write_failed = False
        """Whether the last attempt failed for another reason than a full disk."""
        self.index = log.checkpoint.index if log.checkpoint else 0
        """The newest entry that a flushed checkpoint covers."""
        self.under_way: asyncio.Future[None] | None = None
        self.requested = False
        """A checkpoint is due with the next frames, whatever `on_append` would decide."""

    def on_append(self, time_ms: int) -> None:
        """Cuts a checkpoint where one is due, after frames up to leader time `time_ms` were appended."""
        if self._cut is not None or self.under_way is not None:
            return
        due = self._log.sealed_since_checkpoint or self._state.applied_batches >= MAX_BATCHES
        if due or self.requested:
            self.cut(time_ms)

    def cut(self, time_ms: int) -> None:
        """Cuts at the last appended frame; the state must have seen nothing beyond it."""
        log = self._log
        self.requested = False
        self._cut = Checkpoint(
            log.last_index,
            log.last_term,
            log.next_lsn,
            log.chain,
            time_ms,
            self._state.snapshot_appended(time_ms),
        )

    def on_apply(self, index: int, time_ms: int) -> None:
        """Writes the cut, if the frame at `index`, the last applied one, is the cut's."""
        cut = self._cut
        if cut is None or cut.index != index:
            return
        self._cut = None
        self._state.add_committed(cut.sections, time_ms)
        cut.sections[CONFIGURATION_SECTION] = self._configuration_at(index).encode()
        self.under_way = self._loop.run_in_executor(self._threads, self._log.write_checkpoint, cut)
        self.under_way.add_done_callback(lambda done: self._on_written(done, index))

    def _on_written(self, done: asyncio.Future[None], index: int) -> None:
        self.under_way = None
        error = done.exception()
        if error is None:
            self._log.forget_closed(self._state.control.is_closed)
            self.index = max(self.index, index)
            self._written(index)
            if self._write_failed:
                self._write_failed = False
                log_of_checkpoints.info("log group %d: checkpoints are written again", self._log.group_id)
        elif isinstance(error, WriteFailed):
            self._on_write_failed(error)
        elif not isinstance(error, StorageFull):
            self._failed(error)

    def _on_write_failed(self, error: WriteFailed) -> None:
        """Logs the first failure of a series, and allows another attempt after a while. Full disks are
        handled elsewhere (`broker/maintenance/full_disks.py`)."""
        if not self._write_failed:
            self._write_failed = True
            log_of_checkpoints.error(
                "log group %d: %s; the former checkpoint stays valid, so no more log files are freed and the "
                "next start takes longer; retried after %d s",
                self._log.group_id,
                error,
                RETRY_SECONDS,
            )
        self._loop.call_later(RETRY_SECONDS, self._log.retry_space)

    def on_truncate(self, last_index: int) -> None:
        """Drops a cut whose frame is truncated."""
        if self._cut is not None and self._cut.index > last_index:
            self._cut = None

    def on_install(self, index: int) -> None:
        """Continues from a snapshot that the log has been switched to, and that is durable."""
        self._cut = None
        self.index = index
