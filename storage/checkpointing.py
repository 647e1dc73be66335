"""When a group's state is written down: cut at one frame, completed at its commit, written in a thread.

Invariants: a checkpoint's index is committed when the file is written; one is under way at a time; a cut
whose frame is truncated is dropped. Source: docs/storage_rules.md, decision 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from storage.derived_state import DerivedState
from storage.log.data_log import DataLog
from storage.raft.configuration import Configuration
from storage.types import Checkpoint, StorageFull

CONFIGURATION_SECTION = "configuration"
MOST_BATCHES = 50_000
"""So many batches are replayed in about a second: beyond them a checkpoint does not wait for the end of the
segment. One of 64 MiB holds seven times as many offset commits."""


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
        "_written",
        "index",
        "under_way",
        "wanted",
    )

    def __init__(
        self,
        log: DataLog,
        state: DerivedState,
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
        self.index = log.checkpoint.index if log.checkpoint else 0
        """The newest entry that a flushed checkpoint covers."""
        self.under_way: asyncio.Future[None] | None = None
        self.wanted = False
        """Somebody waits for another one, time or not."""

    def appended(self, time_ms: int) -> None:
        """Frames have been appended and followed, up to leader time `time_ms`: cut where it is time to."""
        if self._cut is not None or self.under_way is not None:
            return
        due = self._log.sealed_since_checkpoint or self._state.applied_batches >= MOST_BATCHES
        if due or self.wanted:
            self.cut(time_ms)

    def cut(self, time_ms: int) -> None:
        """Cut at the last appended frame; nothing may be appended to the state beyond it."""
        log = self._log
        self.wanted = False
        self._cut = Checkpoint(
            log.last_index, log.last_term, log.next_lsn, log.chain, time_ms, self._state.cut(time_ms)
        )

    def applied(self, index: int, time_ms: int) -> None:
        """The frame at `index` is committed and applied, and no later one: write, if it is the cut's."""
        cut = self._cut
        if cut is None or cut.index != index:
            return
        self._cut = None
        self._state.complete(cut.sections, time_ms)
        cut.sections[CONFIGURATION_SECTION] = self._configuration_at(index).encode()
        self.under_way = self._loop.run_in_executor(self._threads, self._log.write_checkpoint, cut)
        self.under_way.add_done_callback(lambda done: self._ended(done, index))

    def _ended(self, done: asyncio.Future[None], index: int) -> None:
        self.under_way = None
        error = done.exception()
        if error is None:
            self._log.forget_closed(self._state.control.is_closed)
            self.index = max(self.index, index)
            self._written(index)
        elif not isinstance(error, StorageFull):
            self._failed(error)

    def truncated(self, last_index: int) -> None:
        """The frames after `last_index` are gone."""
        if self._cut is not None and self._cut.index > last_index:
            self._cut = None

    def installed(self, index: int) -> None:
        """The log has been switched to a shipped checkpoint, which is durable."""
        self._cut = None
        self.index = index
