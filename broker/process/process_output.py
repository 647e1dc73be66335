"""Asynchronous standard output and standard error, so that the event loop never blocks on their reader.

Owns: for each stream a queue of lines and a thread that writes them. Invariants: a write to `sys.stdout` or
`sys.stderr` only appends to the queue, even if the reader stalls (a blocked log driver, a full pipe, a
terminal after Ctrl-S); beyond `MAX_QUEUED_BYTES` the oldest lines are dropped and counted; lines keep their
order, and one line has the number of those dropped there; at its end the process waits `DRAIN_SECONDS` for
both streams together. If both streams are one file, one thread writes both, so that the order between them is
kept, too.

The streams themselves are replaced, not only the handler of the log: warnings, the interpreter's own
complaints and the loggers of libraries write to `sys.stderr`, and they do so on the event loop.
Does not: format log lines beyond `UtcFormatter`, or write what C code prints.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, TextIO, cast

from lockstep.protocol.printable import escape_unprintable
from lockstep.protocol.utc_time import utc_time

MAX_QUEUED_BYTES: Final = 1 << 20
"""LIMIT. Some ten thousand lines of one stream."""
MAX_WRITE_BYTES: Final = 1 << 16
"""LIMIT. Bytes of one write(2): the default capacity of a pipe. Longer lines are queued in pieces, and so is
text of which no newline comes."""
OWN_LOGGER: Final = "lockstep"
DRAIN_SECONDS: Final = 1.0
"""How long the process waits at its end; a reader that reads takes `MAX_QUEUED_BYTES` in less."""


class _DropCounter:
    """Dropped lines of all writers of the process."""

    def __init__(self) -> None:
        self.lines = 0
        self._lock = threading.RLock()

    def add(self, lines: int) -> None:
        with self._lock:
            self.lines += lines


_dropped: Final = _DropCounter()


def dropped_lines() -> int:
    """The number of lines of this process that were dropped."""
    return _dropped.lines


class LineWriter:
    """A thread that writes queued lines to a file descriptor. Thread-safe; `put` never blocks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._queued_bytes = 0
        self._unreported = 0
        """Dropped lines that no written line has reported yet."""
        self._is_writing = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name=f"output-{descriptor}", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue a line, or a piece of a long one."""
        dropped = 0
        with self._changed:
            self._lines.append(line)
            self._queued_bytes += len(line)
            while self._queued_bytes > MAX_QUEUED_BYTES and len(self._lines) > 1:
                self._queued_bytes -= len(self._lines.popleft())
                dropped += 1
            self._unreported += dropped
            self._changed.notify_all()
        if dropped:
            _dropped.add(dropped)

    def drain(self, seconds: float) -> bool:
        """Wait until all lines are written; False if that takes longer than `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._is_writing, seconds)

    def close(self) -> None:
        """End the thread once all lines are written."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines or self._is_closed)
                if not self._lines:
                    return
                self._is_writing = True
                unreported, self._unreported = self._unreported, 0
                lines = [self._lines.popleft()]
                size = len(lines[0])
                while self._lines and size + len(self._lines[0]) <= MAX_WRITE_BYTES:
                    lines.append(self._lines.popleft())
                    size += len(lines[-1])
                self._queued_bytes -= size
            if unreported:
                lines.insert(0, _dropped_line(unreported))
            try:
                self._write(b"".join(lines))
            except OSError:
                # The reader has gone (EPIPE), or the disk is full: drop these lines, and try the next ones.
                dropped = len(lines) - bool(unreported)
                _dropped.add(dropped)
                with self._changed:
                    self._unreported += unreported + dropped

    def _write(self, text: bytes) -> None:
        """Raises OSError."""
        view = memoryview(text)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # another process made the file non-blocking for all who share it
                waiting = select.poll()
                waiting.register(self._descriptor, select.POLLOUT)
                waiting.poll()


def _dropped_line(count: int) -> bytes:
    now = utc_time(time.time_ns() // 1_000_000)
    return f"{now} WARNING  {count} lines were dropped here: they could not be written\n".encode()


class QueuedStream(io.TextIOBase):
    """A text stream whose lines a `LineWriter` writes."""

    def __init__(self, writer: LineWriter, descriptor: int) -> None:
        super().__init__()
        self._writer = writer
        self._descriptor = descriptor
        self._partial_line = ""
        self._lock = threading.RLock()
        """The garbage collector may warn, and so write, within a write of the same thread."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Queue whole lines, and keep the rest until its newline: `print` writes that separately."""
        with self._lock:
            whole, newline, rest = text.rpartition("\n")
            if newline:
                self._put(self._partial_line + whole + newline)
                self._partial_line = rest
            else:
                self._partial_line += text
            if len(self._partial_line) > MAX_WRITE_BYTES:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Queue what has no newline yet."""
        with self._lock:
            part, self._partial_line = self._partial_line, ""
            self._put(part)

    def drain(self, seconds: float) -> bool:
        """Drain the flushed lines, as `LineWriter.drain`."""
        return self._writer.drain(seconds)

    def end(self) -> None:
        """End the stream, as `LineWriter.close`: nothing is written to it any more."""
        self._writer.close()

    def _put(self, text: str) -> None:
        line = text.encode(self.encoding, self.errors)
        for start in range(0, len(line), MAX_WRITE_BYTES):
            self._writer.put(line[start : start + MAX_WRITE_BYTES])


@contextlib.contextmanager
def queued_output() -> Iterator[None]:
    """Replace `sys.stdout` and `sys.stderr`; at the end wait `DRAIN_SECONDS`, then restore them.

    If a reader still stalls then, the replaced streams stay: later lines must not block on it either,
    and are lost unless it reads on before the process ends.
    """
    before = sys.stdout, sys.stderr
    sys.stdout.flush()
    sys.stderr.flush()
    streams = _replace()
    try:
        yield
    finally:
        if _drain(streams):
            sys.stdout, sys.stderr = before
            for stream in streams:
                stream.end()


def drain_output() -> None:
    """Wait up to `DRAIN_SECONDS` for both streams together, before an `os._exit`."""
    _drain([stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, QueuedStream)])


def _drain(streams: Sequence[QueuedStream]) -> bool:
    """Write out what was written, all within `DRAIN_SECONDS`; False if that takes longer."""
    deadline = time.monotonic() + DRAIN_SECONDS
    for stream in streams:
        stream.flush()
    return all([stream.drain(max(deadline - time.monotonic(), 0)) for stream in streams])


def _replace() -> list[QueuedStream]:
    try:
        output, errors = sys.stdout.fileno(), sys.stderr.fileno()
        are_same = os.path.sameopenfile(output, errors)
    except (OSError, ValueError):  # a stream without a file, as under pytest: it never blocks
        return []
    writer = LineWriter(errors)
    for_errors = QueuedStream(writer, errors)
    for_output = QueuedStream(writer if are_same else LineWriter(output), output)
    sys.stdout, sys.stderr = cast(TextIO, for_output), cast(TextIO, for_errors)
    return [for_errors, for_output]


class UtcFormatter(logging.Formatter):
    """`2026-11-28T09:52:26.288Z INFO     text`, with a traceback below it.

    Text of `OWN_LOGGER` and below may quote clients, files and other nodes: whatever it quotes, it stays one
    line.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return utc_time(int(record.created * 1000))

    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.name.partition(".")[0] == OWN_LOGGER:
            record.message = escape_unprintable(record.message)
        return super().formatMessage(record)


@contextlib.contextmanager
def log_to_stderr() -> Iterator[None]:
    """Log to standard error: from INFO on for `OWN_LOGGER`, from WARNING on for all others.

    At the end the loggers are as before: the stream may be closed by a program that runs this in its own
    process.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(UtcFormatter())
    loggers = [logging.root, logging.getLogger(OWN_LOGGER)]
    before = [(logger, logger.handlers, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers = [handler]
    for logger in loggers[1:]:
        logger.setLevel(logging.INFO)
        logger.propagate = False
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, handlers, level, propagate in before:
            logger.handlers = handlers
            logger.setLevel(level)
            logger.propagate = propagate
