"""Random reads of a log that is not in memory: fetches of one partition (the job "random_read"), one after
another, and the same by the disk alone.

Owns: the offsets (the same seed gives the same ones) and evicting a directory's files from the page cache, so
that the disk is read. Invariant: each response has the batch with the requested offset.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from array import array
from pathlib import Path
from typing import Any

from bench.load.connection import ResponseReader, connect
from bench.load.latency import quantiles
from bench.load.wire import LEAST_BATCH_BYTES, FetchTemplate, UnexpectedResponse, batch_span

READ_BYTES = 64 * 1024
"""A few batches: what a reader of one record costs."""
RANDOM_SEED = 7

Result = dict[str, Any]


def evict(directory: Path) -> None:
    """Have the system forget the clean pages of every file below; dirty ones are written first."""
    os.sync()
    for path in directory.rglob("*"):
        if not path.is_file():
            continue
        number = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(number)


def device_read(directory: Path, reads: int) -> array[int]:
    """Nanoseconds of reads of the largest files below, at random places, by this process."""
    sized = [(path.stat().st_size, path) for path in directory.rglob("*") if path.is_file()]
    most = max(size for size, _ in sized)
    draw = random.Random(RANDOM_SEED + 1)
    latencies = array("q")
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(path.open("rb", 0)) for size, path in sorted(sized) if size > most // 2]
        for _ in range(reads):
            number = draw.choice(files).fileno()
            place = draw.randrange(os.fstat(number).st_size - READ_BYTES)
            began = time.perf_counter_ns()
            os.pread(number, READ_BYTES, place)
            latencies.append(time.perf_counter_ns() - began)
    return latencies


def random_read(job: Result) -> Result:
    """`reads` fetches at offsets below `end_offset`; their quantiles with the prefix "read_"."""
    template = FetchTemplate(job["topic"], 0, max_bytes=READ_BYTES, partition_max_bytes=READ_BYTES)
    draw = random.Random(RANDOM_SEED)
    latencies = array("q")
    with connect(job["host"], job["port"]) as sock:
        responses = ResponseReader(sock, 2 * READ_BYTES)
        for number in range(1, job["reads"] + 1):
            offset = draw.randrange(job["end_offset"])
            request = template.stamp(number, offset)
            began = time.perf_counter_ns()
            sock.sendall(request)
            frame = responses.wait()
            latencies.append(time.perf_counter_ns() - began)
            _, place, end = template.records(frame, number)
            base, following, _ = batch_span(frame, place) if end - place >= LEAST_BATCH_BYTES else (-1, -1, 0)
            if not base <= offset < following:
                raise UnexpectedResponse(f"offset {offset} was requested, {base} to {following} came")
    return {f"read_{name}": value for name, value in quantiles(latencies).items()}
