"""The job "random_read": single fetches of one partition at random offsets, one after another.

Owns: the offsets (the same seed gives the same ones) and evicting a directory's files from the page cache, so
that the disk is read. Invariant: each answer holds the batch with the offset asked for.
"""

from __future__ import annotations

import os
import random
import time
from array import array
from pathlib import Path
from typing import Any

from bench.wire import FetchTemplate, WrongAnswer, batch_span

READ_BYTES = 64 * 1024
"""A few batches: what a reader of one record costs."""
SEED = 7

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


def random_read(job: Result, connect: Any, receive_frame: Any, quantiles: Any) -> Result:
    """`reads` fetches at offsets below `end_offset`; their quantiles with the prefix "read_"."""
    template = FetchTemplate(job["topic"], 0, max_bytes=READ_BYTES, partition_max_bytes=READ_BYTES)
    draw = random.Random(SEED)
    latencies = array("q")
    buffer = bytearray(2 * READ_BYTES)
    with connect(job["host"], job["port"]) as sock:
        for number in range(1, job["reads"] + 1):
            offset = draw.randrange(job["end_offset"])
            request = template.stamp(number, offset)
            began = time.perf_counter_ns()
            sock.sendall(request)
            length = receive_frame(sock, buffer)
            latencies.append(time.perf_counter_ns() - began)
            with memoryview(buffer) as whole, whole[:length] as frame:
                _, place, end = template.records(frame, number)
                base, following, _ = batch_span(frame, place) if end - place >= 61 else (-1, -1, 0)
            if not base <= offset < following:
                raise WrongAnswer(f"offset {offset} was asked for, {base} to {following} came")
    return {f"read_{name}": value for name, value in quantiles(latencies).items()}
