"""What is written while nobody reads: nothing waits, order is kept, what is missing is said."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Iterator

import pytest

from lockstep.broker.process.process_output import (
    DRAIN_SECONDS,
    MAX_QUEUED_BYTES,
    LineWriter,
    QueuedStream,
    UtcFormatter,
    drain_output,
    dropped_lines,
    log_to_stderr,
)
from tests.support.cases import each_case

F_SETPIPE_SZ = 1031
LINE = b"x" * 999 + b"\n"
MISSING = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING  (\d+) lines were dropped here: "
    rb"they could not be written\n"
)


class Pipe:
    """Holds 4 KiB."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, F_SETPIPE_SZ, 4096)

    def read_all(self) -> bytes:
        """Up to the end; on the way everything that waits gets out."""
        os.close(self.writer)
        self.writer = -1
        return self.read()

    def read(self) -> bytes:
        found = []
        while piece := os.read(self.reader, 1 << 16):
            found.append(piece)
        return b"".join(found)

    def close(self) -> None:
        for each in (self.reader, self.writer):
            if each >= 0:
                os.close(each)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def collected(pipe: Pipe, writer: LineWriter) -> bytes:
    """All that comes out, while it is read to the end."""
    found: list[bytes] = []
    reading = threading.Thread(target=lambda: found.append(pipe.read()))
    reading.start()
    assert writer.drain(20)
    pipe_writer, pipe.writer = pipe.writer, -1
    os.close(pipe_writer)
    reading.join(20)
    return found[0]


def test_lines_come_out_in_order(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writer)
    lines = [b"%d\n" % number for number in range(10_000)]
    for line in lines:
        writer.put(line)
    assert collected(pipe, writer) == b"".join(lines)
    writer.close()


def test_nobody_waits_for_a_reader_that_stands_still(pipe: Pipe) -> None:
    writer, before = LineWriter(pipe.writer), dropped_lines()
    lines = [b"%d " % number + LINE for number in range(3000)]
    began = time.monotonic()
    for line in lines:
        writer.put(line)
    assert time.monotonic() - began < 2
    assert not writer.drain(0.1), "nobody reads"
    dropped = dropped_lines() - before
    assert dropped > 1500
    expected, missing = 0, 0
    for line in collected(pipe, writer).splitlines(keepends=True):
        if found := MISSING.fullmatch(line):
            missing += int(found[1])
            expected += int(found[1])
        else:
            assert line == lines[expected], "each gap is said where it is, with its size"
            expected += 1
    assert (expected, missing) == (len(lines), dropped), "and the newest lines are there"
    writer.close()


def test_it_goes_on_after_an_error(pipe: Pipe) -> None:
    """As when the file has no room: the lines of then are missed, and counted."""
    full = os.open("/dev/full", os.O_WRONLY)
    writer, before = LineWriter(full), dropped_lines()
    writer.put(b"a\n")
    writer.put(b"b\n")
    assert writer.drain(20)
    assert dropped_lines() - before == 2
    os.dup2(pipe.writer, full)
    writer.put(b"c\n")
    out = collected_after(writer, pipe, full)
    found = MISSING.match(out)
    assert found is not None
    assert int(found[1]) == 2
    assert out[found.end() :] == b"c\n"


def collected_after(writer: LineWriter, pipe: Pipe, descriptor: int) -> bytes:
    assert writer.drain(20)
    writer.close()
    os.close(descriptor)
    return pipe.read_all()


def test_a_pipe_that_somebody_made_non_blocking(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    writer = LineWriter(pipe.writer)
    for _ in range(50):
        writer.put(LINE)
    assert not writer.drain(0.1)
    assert collected(pipe, writer) == LINE * 50
    writer.close()


def test_a_stream_queues_whole_lines(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writer)
    stream = QueuedStream(writer, pipe.writer)
    print("one", "two", file=stream)
    stream.write("thr")
    stream.write("ee\nfour\nfi")
    stream.write("ve ä \udc80\n")
    assert (stream.fileno(), stream.isatty(), stream.writable()) == (pipe.writer, False, True)
    assert collected(pipe, writer) == "one two\nthree\nfour\nfive ä \\udc80\n".encode()
    writer.close()


def test_text_without_a_newline_is_bounded_too(pipe: Pipe) -> None:
    """Nothing was written, nor dropped, before its newline came: a progress bar, for one, has none."""
    writer = LineWriter(pipe.writer)
    stream = QueuedStream(writer, pipe.writer)
    tracemalloc.start()
    try:
        for _ in range(200):
            stream.write("x" * 50_000)
        assert tracemalloc.get_traced_memory()[0] < 3 * MAX_QUEUED_BYTES
    finally:
        tracemalloc.stop()
    stream.write("the end")
    stream.flush()
    out = collected(pipe, writer)
    assert out.endswith(b"xthe end") and b" lines were dropped here" in out
    writer.close()


def test_a_line_longer_than_the_queue_is_cut(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writer)
    QueuedStream(writer, pipe.writer).write("x" * (3 * MAX_QUEUED_BYTES) + "\n")
    assert writer._queued_bytes <= MAX_QUEUED_BYTES
    collected(pipe, writer)
    writer.close()


def test_both_streams_share_one_deadline(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a process whose readers stand still took twice as long as one stream may."""
    streams = [QueuedStream(LineWriter(pipe.writer), pipe.writer) for _ in range(2)]
    for stream in streams:
        stream.write("x" * 10_000 + "\n")
    with monkeypatch.context() as patch:
        for name, stream in zip(("stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        began = time.monotonic()
        drain_output()
        taken = time.monotonic() - began
    reading = threading.Thread(target=pipe.read)
    reading.start()
    assert all([stream.drain(20) for stream in streams])
    os.close(pipe.writer)
    pipe.writer = -1
    reading.join(20)
    assert DRAIN_SECONDS <= taken < 1.8 * DRAIN_SECONDS


def test_a_log_line_has_the_time_in_utc_and_a_traceback() -> None:
    try:
        raise KeyError("planted")
    except KeyError:
        record = logging.LogRecord("n", logging.WARNING, "f", 1, "it %s", ("failed",), sys.exc_info())
    record.created = 1_795_859_546.288
    lines = UtcFormatter().format(record).splitlines()
    assert lines[0] == "2026-11-28T09:52:26.288Z WARNING  it failed"
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "KeyError: 'planted'"


def test_a_log_line_of_ours_stays_one_line_whatever_it_quotes() -> None:
    quoted = "x\n2026-11-28T09:52:26.288Z ERROR    forged\x1b[2J"
    ours = logging.LogRecord("lockstep.topics", logging.INFO, "f", 1, "configured: %s", (quoted,), None)
    (line,) = UtcFormatter().format(ours).splitlines()
    assert line.endswith("configured: x\\n2026-11-28T09:52:26.288Z ERROR    forged\\x1b[2J")


SCRIPT = """
import logging, sys, time, warnings
from lockstep.broker.process.process_output import drain_output, log_to_stderr, queued_output
began = time.monotonic()
with queued_output(), log_to_stderr():
    BODY
assert time.monotonic() - began < 4, time.monotonic() - began
"""


def run(body: str, *, reads: bool) -> tuple[int, bytes]:
    """Exit status, and what came over a pipe of 4 KiB that both streams go to."""
    pipe = Pipe()
    script = SCRIPT.replace("BODY", body.replace("\n", "\n    "))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=pipe.writer, stderr=pipe.writer)
    os.close(pipe.writer)
    pipe.writer = -1
    try:
        if not reads:
            process.wait(20)
        out = pipe.read()
        return process.wait(20), out
    finally:
        process.kill()
        process.wait()
        pipe.close()


def test_all_output_of_a_process_is_written_in_order() -> None:
    body = """print("ready", flush=True)
logging.getLogger("lockstep.topics").info("ours")
logging.getLogger("asyncio").error("theirs")
warnings.warn("beware")
for number in range(2000): logging.getLogger("lockstep.player").info("%d", number)
print("over")
logging.getLogger("lockstep.storage").critical("the end")"""
    status, out = run(body, reads=True)
    assert status == 0
    lines = out.decode().splitlines()
    assert lines[0] == "ready"
    assert [line.split(maxsplit=1)[1] for line in lines[1:3]] == ["INFO     ours", "ERROR    theirs"]
    assert "beware" in lines[3]
    assert [line.rpartition(" ")[2] for line in lines[-2002:-2]] == [str(each) for each in range(2000)]
    assert lines[-2] == "over"
    assert lines[-1].endswith("CRITICAL the end")


@each_case("end", ["", "drain_output()", "sys.exit(3)", "raise KeyError('planted')"])
def test_the_end_waits_a_moment_for_a_reader_that_stands_still(end: str) -> None:
    status, out = run(f'for _ in range(1000): print("x" * 99)\nprint("over")\n{end}', reads=False)
    assert status == {"sys.exit(3)": 3, "raise KeyError('planted')": 1}.get(end, 0)
    assert 0 < len(out) <= 4096


def test_a_failure_at_the_end_is_reported() -> None:
    status, out = run("raise KeyError('planted')", reads=True)
    assert status == 1
    assert out.endswith(b"KeyError: 'planted'\n")


def test_the_loggers_are_as_before_at_the_end() -> None:
    """The stream may be closed by then, as that of an earlier test is."""
    loggers = [logging.getLogger(name) for name in (None, "lockstep")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]
    with pytest.raises(KeyError), log_to_stderr():
        assert [each.propagate for each in loggers[1:]] == [False]
        raise KeyError("planted")
    assert [(list(each.handlers), each.level, each.propagate) for each in loggers] == before


def test_streams_that_are_no_files_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    from lockstep.broker.process.process_output import queued_output

    with warnings.catch_warnings(), queued_output():
        print("seen")
    assert capsys.readouterr().out == "seen\n"
