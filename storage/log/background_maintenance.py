"""A log's work beside appending: ready segments, index files, checkpoints, freeing dead segments.

All of it may run in a background thread (`start`) or inline (`run_once`); nothing here is needed for an
acknowledged append, and a full disk is a state (`disk_error`), not a failure; so is another error
(`write_error`). Order that crashes rely on:
a checkpoint is durable before anything below it is freed; a freed segment is named in the state file (as
below the oldest) or by a freed file before its file gets another name.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from lockstep.storage.log.checkpoint_file import (
    PlacedCheckpoint,
    checkpoint_name,
    is_checkpoint,
    load_checkpoints,
    name_beside,
    write_checkpoint,
)
from lockstep.storage.log.file_system import FileSystem, is_full, write_error
from lockstep.storage.log.format import segment_of
from lockstep.storage.log.freed_segments import forget_freed, record_freed
from lockstep.storage.log.segment_pool import ReadyFile, SegmentPool
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.log.state_file import LogState, StateFile
from lockstep.storage.types import Checkpoint, HardState

MAX_FILES_REMOVED_AT_ONCE: Final = 4
"""Joined segments whose files are removed before other threads may take the lock: removing a name may take
milliseconds."""
REMOVAL_PAUSE_SECONDS: Final = 0.001
"""The pause between: no waiting thread gets the released lock by itself, so one needs the time to take it."""


class BackgroundMaintenance:
    """Owns the pool, the state file and the checkpoint files of one log."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        group_id: int,
        table: SegmentTable,
        pool: SegmentPool,
        state_file: StateFile,
        checkpoints: list[PlacedCheckpoint],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._group_id = group_id
        self._table = table
        self.pool = pool
        self._state_file = state_file
        self._checkpoints = [
            PlacedCheckpoint(placed.name, placed.checkpoint.without_sections(), placed.position)
            for placed in checkpoints
        ]
        self._state_lock = threading.Lock()
        """Held while the state file is read, changed and saved."""
        self._work_lock = threading.RLock()
        """Held while maintenance work is done, and by `pause`. Taken before each of the other locks."""
        self._checkpoint_lock = threading.Lock()
        """Held while checkpoint files are written, loaded or removed."""
        self._queue_lock = threading.Lock()
        """Guards `_unindexed`, `_dead` and the pool's count of waiting threads; never held during a write."""
        self._unindexed: list[Segment] = []
        """Sealed segments whose index file is not written yet."""
        self._dead: list[Segment] = []
        """Segments without live records, out of the table, whose files are not freed yet."""
        self._full_error = self._write_error = ""
        self._full_failures = 0
        self.checkpoint_bytes = 0
        """Written to checkpoint files since open."""
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    # -- state ------------------------------------------------------------------------------------------

    @property
    def state(self) -> LogState:
        return self._state_file.state

    def save_hard_state(self, hard: HardState) -> None:
        """Saves the state; both slots are flushed when this returns. After an OSError it must not be used."""
        with self._state_lock:
            self._state_file.save(replace(self.state, hard=hard))

    def begin_generation(self, position: int) -> int:
        """Begins a new generation at `position`, with all below it flushed; returns its number."""
        with self._state_lock:
            return self._begin(self.state, position)

    def begin_installed(self, first_sequence: int, position: int) -> int:
        """The switch of an installation: the log begins with this segment, and at `position` a generation."""
        with self._state_lock:
            return self._begin(replace(self.state, oldest_sequence=first_sequence), position)

    def _begin(self, state: LogState, position: int) -> int:
        generation = state.generation + 1
        self._state_file.save(replace(state, generation=generation, generation_start=position))
        return generation

    def raise_whole_index(self, index: int) -> None:
        """Saves that records may be missing until the entry `index` is applied: newer ones came in place of
        them from another node. An index below the saved one changes nothing."""
        with self._state_lock:
            if index > self.state.whole_index:
                self._state_file.save(replace(self.state, whole_index=index))

    def save_join_count(self, joins: int) -> None:
        """Makes join number `joins` count: recovery uses its joined segment from now on, and no longer the
        segments that it was made of."""
        with self._state_lock:
            self._state_file.save(replace(self.state, joins=joins))

    def remove_joined(self, segments: Sequence[Segment]) -> None:
        """Removes the files of joined segments, which do not count any more; readers continue in them. A few
        at a time, as the event loop may wait for `pause`. The next open removes what cannot be removed now,
        or is left at a stop: a new log may then be in this directory."""
        for at in range(0, len(segments), MAX_FILES_REMOVED_AT_ONCE):
            if at:
                time.sleep(REMOVAL_PAUSE_SECONDS)
            with self._work_lock:
                if self.is_stopped:
                    return
                for segment in segments[at : at + MAX_FILES_REMOVED_AT_ONCE]:
                    self._discard_unindexed(segment)
                    for path in (segment.path, segment.index_path):
                        with contextlib.suppress(OSError):
                            self._fs.unlink(path)

    # -- running ----------------------------------------------------------------------------------------

    @property
    def disk_error(self) -> str:
        """Why the last try to write something beside the log found no room; empty when it did."""
        return (self.pool.failed if self.pool.is_full else "") or self._full_error

    @property
    def write_error(self) -> str:
        """Why the last try to write something beside the log failed though the disk is not full; empty when
        none did."""
        return ("" if self.pool.is_full else self.pool.failed) or self._write_error

    @property
    def disk_failures(self) -> int:
        """Tries that found no room since open."""
        return self.pool.full_failures + self._full_failures

    @property
    def is_stopped(self) -> bool:
        """The log is being closed, or was. False within `pause`: it is not closed before the end of that."""
        return self._stopping

    def start(self) -> None:
        """Starts a daemon thread that does the work as it comes up."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lockstep-log", daemon=True)
            self._thread.start()
            self._wake.set()

    def stop(self) -> None:
        if self._thread is not None:
            self._stopping = self.pool.closing = True
            self._wake.set()
            self._thread.join()
            self._thread = None
        self._stopping = True

    def close(self) -> None:
        """Stops the thread; writes the pending files, without new segments."""
        self.stop()
        self.run_once()
        self._state_file.close()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Pauses the background work for the context; the filling of a spare segment ends for now."""
        with self._queue_lock:
            self.pool.waited_for += 1
        self._work_lock.acquire()
        try:
            with self._queue_lock:
                self.pool.waited_for -= 1
            yield
        finally:
            self._work_lock.release()
        if self._thread is not None:
            self._wake.set()

    def wake(self) -> None:
        """There is something to do: wakes the thread, or does it now where there is none. Nothing once
        stopped: `close` does the rest, and after it the files are not this log's any more."""
        if self._thread is not None:
            self._wake.set()
        elif not self._stopping:
            self.run_once()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            self.run_once()

    def run_once(self) -> None:
        """Does all queued work: dead segments, index files, segments ahead. Work that is queued while a
        segment is being filled is done before the next one is filled."""
        with self._work_lock:
            self._do_queued_work()
            while not self._stopping and self.pool.wants_more() and self.pool.prepare():
                self._do_queued_work()
            if not self.pool.wants_more():
                self.pool.forget_failure()  # what failed was one more than is kept

    def _do_queued_work(self) -> None:
        """Frees segments first: an index file may wait for the space that this frees, never the other way
        round."""
        errors: list[OSError] = []
        for step in (self._free_dead_segments, self._drop_surplus, self._write_indexes):
            try:
                step()
            except OSError as error:
                errors.append(error)
        full = [str(error) for error in errors if is_full(error)]
        other = [str(error) for error in errors if not is_full(error)]
        self._full_failures += len(full)
        self._full_error, self._write_error = full[0] if full else "", other[0] if other else ""

    def _drop_surplus(self) -> None:
        if not self.pool.wants_more():
            self.pool.drop_surplus()

    # -- index files ------------------------------------------------------------------------------------

    def add_unindexed(self, segment: Segment) -> None:
        """Queues a sealed segment whose index is still only in memory."""
        with self._queue_lock:
            self._unindexed.append(segment)

    def _write_indexes(self) -> None:
        """Writes each queued index file once; one that cannot be written does not stop the others."""
        failure: OSError | None = None
        with self._queue_lock:
            waiting = list(self._unindexed)
        for segment in waiting:
            try:
                if self._table.is_current(segment):
                    self._table.write_index(segment)
            except OSError as error:
                failure = failure or error
            else:
                self._discard_unindexed(segment)
        if failure is not None:
            raise failure

    def _discard_unindexed(self, segment: Segment) -> None:
        with self._queue_lock:
            if segment in self._unindexed:
                self._unindexed.remove(segment)

    def forget_index(self, segment: Segment) -> None:
        """Removes the index file of a segment, which is outdated."""
        with self._work_lock:
            self._discard_unindexed(segment)
            self._remove(segment.index_path)

    def forget(self, replaced: list[Segment], kept_sequence: int) -> None:
        """A truncation replaced these: index files are wrong from now on, and the segments beyond the kept
        one, oldest first, are ready again."""
        for segment in replaced:
            self.forget_index(segment)
        dropped = [s for s in replaced if s.sequence > kept_sequence]
        self.pool.put_in_front([ReadyFile(s.sequence, s.path, s.size) for s in dropped])

    # -- freeing ----------------------------------------------------------------------------------------

    def queue_dead(self, segments: list[Segment]) -> None:
        """Queues dead segments, already out of the table; their files are freed once no reader has them."""
        for segment in segments:
            self._discard_unindexed(segment)
        with self._queue_lock:
            self._dead.extend(segments)

    def adopt_leftover(self, paths: list[Path]) -> None:
        """Adopts the files of segments that were freed before the last crash or stop."""
        for path in paths:
            self._remove(path.with_suffix(".index"))
            self.pool.reclaim(path)

    def _free_dead_segments(self) -> None:
        """Records the queued dead segments as freed, then gives the files that no reader has to the pool."""
        with self._queue_lock:
            dead = list(self._dead)
        if not dead:
            return
        oldest = min(segment.sequence for segment in self._table)
        beyond = [
            sequence
            for segment in dead
            if segment.sequence > oldest
            for sequence in range(segment.first_sequence, segment.sequence + 1)
        ]
        if beyond:
            record_freed(self._fs, self._directory, beyond)
        with self._state_lock:
            if oldest > self.state.oldest_sequence:
                self._state_file.save(replace(self.state, oldest_sequence=oldest))
        read_still = set()
        for segment in dead:
            if not self._table.close_if_unread(segment):
                read_still.add(segment.sequence)
            else:
                self._remove(segment.index_path)
                self.pool.reclaim(segment.path)
                with self._queue_lock:
                    self._dead.remove(segment)
        forget_freed(self._fs, self._directory, oldest, read_still)

    def _remove(self, path: Path) -> None:
        try:
            self._fs.unlink(path)
        except FileNotFoundError:
            return

    # -- checkpoints ------------------------------------------------------------------------------------

    def freeable_below(self) -> int:
        """Sequences below this lie under the older of the two kept checkpoints."""
        return segment_of(self._checkpoints[0].position) if len(self._checkpoints) >= 2 else 0

    @property
    def checkpoints(self) -> list[PlacedCheckpoint]:
        """The one or two kept, oldest first, without their sections."""
        return self._checkpoints

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest valid checkpoint, read from its file."""
        with self._checkpoint_lock:
            names = [placed.name for placed in self._checkpoints]
            whole, _ = load_checkpoints(self._fs, self._directory, names, self._group_id)
            return whole[-1].checkpoint if whole else None

    @property
    def checkpoint_sequence(self) -> int:
        return segment_of(self._checkpoints[-1].position) if self._checkpoints else 0

    def write_checkpoint(self, checkpoint: Checkpoint, position: int) -> None:
        """Durable when this returns; the two newest are kept. StorageFull and WriteFailed leave the old ones
        valid. A checkpoint of a log that has been replaced meanwhile is dropped."""
        with self._checkpoint_lock:
            if segment_of(position) < self.state.oldest_sequence:
                return
            try:
                former = self._checkpoints[-1].name if self._checkpoints else ""
                name = name_beside(former, checkpoint.index)
                write_checkpoint(self._fs, self._directory, self._group_id, checkpoint, position, name)
            except OSError as error:
                if is_full(error):
                    self._full_error = str(error)
                    self._full_failures += 1
                raise write_error(f"checkpoint at index {checkpoint.index}", error) from error
            self.checkpoint_bytes += sum(map(len, checkpoint.sections.values()))
            kept = [c for c in self._checkpoints if c.name != name]
            self._checkpoints = [*kept, PlacedCheckpoint(name, checkpoint.without_sections(), position)][-2:]
            self._remove_other_checkpoints()

    def adopt_installed(self, placed: PlacedCheckpoint) -> None:
        """Makes the installed checkpoint the only one, after the switch."""
        with self._checkpoint_lock:
            name = checkpoint_name(placed.checkpoint.index)
            self._fs.rename(self._directory / placed.name, self._directory / name)
            self._fs.fsync_dir(self._directory)
            self._checkpoints = [
                PlacedCheckpoint(name, placed.checkpoint.without_sections(), placed.position)
            ]
            self._remove_other_checkpoints()

    def _remove_other_checkpoints(self) -> None:
        names = {c.name for c in self._checkpoints}
        for other in self._fs.list_dir(self._directory):
            if is_checkpoint(other) and other not in names:
                self._remove(self._directory / other)
