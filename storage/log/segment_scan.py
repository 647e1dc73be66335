"""Reading a segment's frames, each verified: for recovery, replay, index rebuilds and `inspect`.

A scan walks marker, frames, marker, frames, and stops at the first thing that does not verify. It reports
where and why; what that means (end of the log, torn tail, corruption) is for the caller to decide, with the
help of `highest_promise`. A frame is taken only if its header continues the chain and its payload verifies.

Which marker counts: it verifies, is at its own position, and is of the log's current generation
from `generation_start` on, or below it of a former one, never decreasing. Below a truncation the
former generation's last write may continue in stale bytes; the newer generation's first marker, written
where the log was truncated, ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crc32c import crc32c

from lockstep.storage.log.batch_flags import apply_marks, max_marks_bytes, min_marks_bytes
from lockstep.storage.log.format import (
    FORMAT,
    FRAME,
    FRAME_BYTES,
    FRAME_FLAGS_KNOWN,
    LAST_KIND,
    byte_of,
    payload_problem,
    payload_views,
    position_of,
    segment_of,
)
from lockstep.storage.log.marker import MARKER, MARKER_BYTES, MARKER_CRC_FROM, MARKER_MAGIC, decode_marker
from lockstep.storage.types import ENTRY, ENTRY_BYTES, DirectoryEntry, Frame, FrameKind, NewerFormat

WINDOW_BYTES = 256 << 10
"""Two of them are alive at a time. Larger ones cost memory that a heap keeps, and scan no faster."""
PROMISE_WINDOW_BYTES = 1 << 20
"""Small enough that its memory is used again and again: new memory costs as much as the search."""
Read = Callable[[int, int], bytes]
"""(length, offset) to bytes, short only at the end of the file."""


class Window:
    """A moving window of a file: one big read serves many frames."""

    __slots__ = ("_exact_below", "_read", "base", "size", "view")

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._exact_below = 0
        """A read of more than was requested has failed below this."""
        self.size = size
        self.base = 0
        self.view = memoryview(b"")

    def at(self, offset: int, length: int) -> int:
        """The start of the bytes at `offset` in `view`, with `length` of them there; -1 beyond the end."""
        if offset + length > self.size:
            return -1
        at = offset - self.base
        if at < 0 or at + length > len(self.view):
            self.view = memoryview(self._read_from(offset, length))
            self.base = offset
            at = 0
            if len(self.view) < length:
                return -1
        return at

    def _read_from(self, offset: int, length: int) -> bytes:
        """More than these bytes, where the disk can read it."""
        more = min(max(WINDOW_BYTES, length), self.size - offset)
        if more > length and offset >= self._exact_below:
            try:
                return self._read(more, offset)
            except OSError:
                self._exact_below = offset + more
        return self._read(length, offset)


class LogTail:
    """The end that the next frame must follow."""

    __slots__ = ("chain", "index", "next_lsn", "term", "time_ms")

    def __init__(self, index: int, term: int, next_lsn: int, chain: int, time_ms: int) -> None:
        self.index = index
        self.term = term
        self.next_lsn = next_lsn
        self.chain = chain
        self.time_ms = time_ms

    def copy(self) -> LogTail:
        return LogTail(self.index, self.term, self.next_lsn, self.chain, self.time_ms)


class ScannedFrame:
    """A verified frame in a window; `frame()` gives it a life of its own (payloads are views, not copies)."""

    __slots__ = (
        "batch_count",
        "end",
        "entries",
        "first_lsn",
        "head_bytes",
        "index",
        "kind",
        "offset",
        "payload_at",
        "payload_offset",
        "record_count",
        "term",
        "time_ms",
        "view",
    )

    view: memoryview
    offset: int
    """Where in its segment the frame begins; it ends at `end`, its payloads begin at `payload_offset`."""
    payload_offset: int
    end: int
    payload_at: int
    head_bytes: int
    kind: int
    term: int
    index: int
    first_lsn: int
    time_ms: int
    record_count: int
    batch_count: int
    entries: list[tuple[int, ...]]
    """The directory, as plain tuples in `DirectoryEntry`'s order."""

    @property
    def payloads(self) -> memoryview:
        """All payloads, as they lie one after the other. Not of a scan that reads only heads."""
        return self.view[self.payload_at : self.payload_at + self.end - self.payload_offset]

    def frame(self) -> Frame:
        head_at = self.payload_at + self.offset - self.payload_offset
        return Frame(
            FrameKind(self.kind),
            self.term,
            self.index,
            self.first_lsn,
            self.time_ms,
            [DirectoryEntry(*fields) for fields in self.entries],
            payload_views(self.view, self.payload_at, self.entries),
            self.record_count,
            bytes(self.view[head_at : head_at + self.head_bytes]),
        )


class SegmentScan:
    """One pass over a segment. After it: `offset` and `reason` have the position and the reason of its end,
    `tail` the state after its frames, `promise` the highest flushed position in its markers."""

    __slots__ = (
        "_position",
        "_seed",
        "_window",
        "generation",
        "generation_start",
        "heads_only",
        "last_generation",
        "needs_payloads",
        "offset",
        "promise",
        "reason",
        "rewritten",
        "sequence",
        "tail",
    )

    def __init__(
        self,
        read: Read,
        size: int,
        sequence: int,
        seed: int,
        tail: LogTail,
        offset: int,
        generation: int,
        generation_start: int,
        rewritten: bool = False,
    ) -> None:
        self.rewritten = rewritten
        """Written as a whole: marks follow each head, and no generation but its own is in it."""
        self.heads_only = False
        """Whether a frame is taken whatever its payloads are: for finding frames that are verified later."""
        self.needs_payloads = True
        """False where heads alone are used, so that the disk may have lost payloads."""
        self._window = Window(read, size)
        self._seed = seed
        self.sequence = sequence
        self._position = position_of(sequence, 0)
        self.tail = tail
        self.offset = offset
        self.generation = generation
        self.generation_start = generation_start
        self.last_generation = 0
        self.promise = 0
        self.reason = ""

    def _marker_at(self, offset: int) -> tuple[int, int, int] | None:
        """(generation, flushed position, where the write ends) of the marker that counts here, or None."""
        window = self._window
        at = offset - window.base
        if at < 0 or at + MARKER_BYTES > len(window.view):
            at = window.at(offset, MARKER_BYTES)
            if at < 0:
                self.reason = "the segment is full"
                return None
        view = window.view
        magic, crc, generation, own, flushed, write_bytes, _ = MARKER.unpack_from(view, at)
        if magic != MARKER_MAGIC or crc32c(view[at + MARKER_CRC_FROM : at + MARKER_BYTES], self._seed) != crc:
            self.reason = "no marker"
            return None
        if own != self._position | offset:
            self.reason = "a marker of another position"
            return None
        end = offset + MARKER_BYTES + write_bytes
        if self.rewritten:
            current = generation == self.last_generation
        elif own >= self.generation_start:
            current = generation == self.generation
        else:
            current = self.last_generation <= generation <= self.generation
            if segment_of(self.generation_start) == self.sequence:
                end = min(end, byte_of(self.generation_start))
        if not current:
            self.reason = f"a marker of generation {generation}"
            return None
        return generation, flushed, end if end < window.size else window.size

    def frames(self) -> Iterator[ScannedFrame]:
        """Every frame from `offset` on, until something does not verify."""
        while (marker := self._marker_at(self.offset)) is not None:
            self.last_generation, flushed, write_end = marker
            if flushed > self.promise:
                self.promise = flushed
            self.offset += MARKER_BYTES
            while self.offset < write_end:
                frame = self._frame_at(self.offset, write_end)
                if frame is None:
                    reason = self.reason
                    superseded = self._marker_at(self.offset)
                    if superseded is None or superseded[0] == self.last_generation:
                        self.reason = reason
                        return
                    break
                self.offset = frame.end
                yield frame

    def _head_at(self, offset: int, room: int) -> int:
        """The start of the frame at `offset` in the window, with all of it there; -1 where it cannot be
        one."""
        window = self._window
        at = offset - window.base
        if room < FRAME_BYTES:
            self.reason = "a frame cut short"
            return -1
        if at < 0 or at + FRAME_BYTES > len(window.view):
            at = window.at(offset, FRAME_BYTES)
            if at < 0:
                self.reason = "a frame beyond the end of the file"
                return -1
        fields = FRAME.unpack_from(window.view, at)
        head, count, directory, payload = fields[3], *fields[10:]
        whole = minimum = head + directory + payload
        if self.rewritten:  # after its marks the bytes may be more or fewer than in the head
            minimum = head + directory + min_marks_bytes(count)
            whole = min(room, whole + max_marks_bytes(count))
        if not self.needs_payloads:
            whole = min(whole, head + directory + (max_marks_bytes(count) if self.rewritten else 0))
        if head < FRAME_BYTES or minimum > room or directory != count * ENTRY_BYTES:
            self.reason = "a frame header with impossible lengths"
            return -1
        return at if at + whole <= len(window.view) else window.at(offset, whole)

    def _frame_at(self, offset: int, write_end: int) -> ScannedFrame | None:
        tail = self.tail
        self.reason = ""
        at = self._head_at(offset, write_end - offset)
        if at < 0:
            return None
        view = self._window.view
        (crc, fmt, kind, head, flags, term, index, lsn, time_ms, records, count, directory, payload) = (
            FRAME.unpack_from(view, at)
        )
        if not self._continues(tail.chain, view[at + 4 : at + head + directory], crc):
            self.reason = "a frame header that does not continue the chain"
            return None
        if fmt > FORMAT or flags & ~FRAME_FLAGS_KNOWN or kind > LAST_KIND:
            raise NewerFormat(
                f"segment {self.sequence} byte {offset}: frame format {fmt}, kind {kind}, flags {flags:#x}"
            )
        if not self._follows(tail, index, lsn, term):
            self.reason = f"index {index}, term {term}, LSN {lsn} after {tail.index}, {tail.term}"
            return None
        found = ScannedFrame()
        found.view = view
        found.offset, found.head_bytes = offset, head + directory
        found.kind, found.term, found.index = kind, term, index
        found.first_lsn, found.time_ms = lsn, time_ms
        found.record_count, found.batch_count = records, count
        found.entries = list(ENTRY.iter_unpack(view[at + head : at + head + directory]))
        if not self._take_payloads(found, at + head + directory, payload, crc):
            return None
        tail.index, tail.term, tail.next_lsn = index, term, lsn + records
        tail.chain, tail.time_ms = crc, time_ms
        return found

    def _continues(self, chain: int, head: memoryview, crc: int) -> bool:
        return crc32c(head, chain) == crc

    def _follows(self, tail: LogTail, index: int, lsn: int, term: int) -> bool:
        return index == tail.index + 1 and lsn == tail.next_lsn and term >= tail.term

    def _take_payloads(self, found: ScannedFrame, at: int, payload: int, chain: int) -> bool:
        """Finds the payloads after a directory, marks considered; returns whether they verify."""
        offset = found.offset + found.head_bytes
        if self.rewritten:
            try:
                marks, payload = apply_marks(found.view, at, found.entries, chain)
            except ValueError as error:
                self.reason = str(error)
                return False
            at += marks
            offset += marks
            # Compressing again may have made it longer.
            if self.needs_payloads and at + payload > len(found.view):
                head_at = self._window.at(found.offset, offset + payload - found.offset)
                if head_at < 0:
                    self.reason = "payloads cut short"
                    return False
                found.view, at = self._window.view, head_at + offset - found.offset
        found.payload_at, found.payload_offset, found.end = at, offset, offset + payload
        return self._payloads_verify(found, payload)

    def _payloads_verify(self, frame: ScannedFrame, payload: int) -> bool:
        if self.heads_only:
            return True
        at = frame.payload_at
        self.reason = payload_problem(frame.view, at, at + payload, frame.entries, self.rewritten)
        return not self.reason


def highest_promise(
    read: Read, size: int, sequence: int, seed: int, generation: int, offset: int
) -> tuple[int, int]:
    """The highest flushed position that a marker of this generation at `offset` or after it has, and
    the position of that marker (0, 0 if none): looks at all bytes, chained or not."""
    best, best_at = 0, 0
    while offset + MARKER_BYTES <= size:
        data = read(min(PROMISE_WINDOW_BYTES, size - offset), offset)
        hit = data.find(MARKER_MAGIC)
        while hit >= 0:
            found = decode_marker(data, hit, seed)
            if (
                found is not None
                and found[0] == generation
                and found[1] == position_of(sequence, offset + hit)
                and found[2] > best
            ):
                best, best_at = found[2], offset + hit
            hit = data.find(MARKER_MAGIC, hit + 1)
        if len(data) < MARKER_BYTES:  # the file ends here, whatever size it had
            break
        offset += len(data) - MARKER_BYTES + 1
    return best, best_at
