"""One closed-loop producer of single-record batches that ask for locks (the job "locked_writes").

Every record has the same headers, a high-water mark and a write lock drawn from many: only a topic with
`lockstep.locks=true` reads them.
"""

from __future__ import annotations

import random
import time
from array import array
from typing import Any, Final

from bench.load.closed_loop import Producer
from bench.load.connection import connect
from bench.load.latency import quantiles
from bench.load.wire import ProduceTemplate
from lockstep.protocol.records.record import BatchBuilder

LOCKS: Final = 100_000
RANDOM_SEED: Final = 7


def _batch(hwm: int, lock: bytes, value: bytes) -> bytes:
    """One record that may be appended by whoever has read up to `hwm`."""
    builder = BatchBuilder()
    mark = b"%018d" % hwm if hwm >= 0 else b"-1"
    headers: list[tuple[str, bytes | None]] = [("lockstep-hwm", mark), ("lockstep-write-lock", lock)]
    builder.append(value, headers=headers, timestamp_ms=time.time_ns() // 1_000_000)
    return builder.build()


def locked_writes(job: dict[str, Any]) -> dict[str, Any]:
    """Write to a fresh topic for `seconds` after `warmup_s`, one after the other. WrongAnswer."""
    draw, value = random.Random(RANDOM_SEED), b"v" * job["record_bytes"]
    latencies, written = array("q"), 0
    with connect(job["host"], job["port"]) as sock:
        opens = time.monotonic() + job["warmup_s"]
        while (now := time.monotonic()) < opens + job["seconds"]:
            batch = _batch(written - 1, b"account/%d" % draw.randrange(LOCKS), value)
            producer = Producer(sock, [ProduceTemplate(job["topic"], {0: batch}, 1)], 0)
            producer.ask()
            written += 1
            if now >= opens:
                latencies.append(time.perf_counter_ns() - producer.sent_ns)
    return {"total_records": written, "total_requests": written, **quantiles(latencies)}
