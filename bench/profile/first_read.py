"""`python -m bench.profile.first_read`: what verifying batches costs a catch-up read (decision 45).

A backlog in one partition is fetched from its beginning to its end, again and again, by a client in a process
of its own; nothing that was read before counts as verified. Every other reading the check of a batch returns
at once. The processor time of the checks is counted as well, which is steadier than a difference. With
`--evict` the segments leave the page cache before each reading; with `--client` the reader is librdkafka's
consumer, which also copies and hands over every record. Prints medians, and of ratios and shares the medians
with their quartiles.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import uvloop

from lockstep.storage.log import batch_reader, batch_verification
from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.log.verified_batches import VerifiedRangesCache
from lockstep.testing import broker_in_thread

TOPIC: Final = "backlog"
RECORD_BYTES: Final = 1000
Reading = tuple[float, float, float]
"""The seconds that the client needed, the broker's processor time, and how much of that the checks took."""
Check = Callable[[BatchIndex, int, int, memoryview], int]
CLIENT: Final = """
import sys, time
from confluent_kafka import Consumer, TopicPartition
port, count = int(sys.argv[1]), int(sys.argv[2])
consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "enable.auto.commit": False})
consumer.assign([TopicPartition("backlog", 0, 0)])  # it verifies checksums only with check.crcs
while not (first := consumer.consume(1, 10)):
    pass
start, found = time.perf_counter(), len(first)
while found < count:
    found += len(consumer.consume(10_000, 1))
print('{"seconds": %f}' % (time.perf_counter() - start))
"""


def run(*command: str) -> dict[str, Any]:
    """Runs a client in a process of its own; returns the JSON that it prints."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_job(port: int, **job: Any) -> dict[str, Any]:
    """One job of `bench.load`."""
    return run("-m", "bench.load", json.dumps({"host": "127.0.0.1", "port": port, "topic": TOPIC, **job}))


def evict(directory: Path) -> None:
    """Have the segments leave the page cache."""
    for path in directory.rglob("*.segment"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def first_cut_off_row(index: BatchIndex, first: int, last: int, view: memoryview) -> int:
    """The check without checksums: what is not in the page cache is not there."""
    after = index.positions[first] + len(view)
    while last > first and index.positions[last - 1] + index.lengths[last - 1] > after:
        last -= 1
    return last


def measure(port: int, verifies: bool, records: int, with_client: bool) -> Reading:
    """One reading."""
    real: Check = batch_verification.first_bad_row if verifies else first_cut_off_row
    checking = 0.0

    def check(index: BatchIndex, first: int, last: int, view: memoryview) -> int:
        nonlocal checking
        start = time.thread_time()
        found = real(index, first, last, view)
        checking += time.thread_time() - start
        return found

    with (
        patch.object(batch_reader, "first_bad_row", check),
        patch.object(VerifiedRangesCache, "has", lambda *_: False),
    ):
        before = time.process_time()
        if with_client:
            seconds = run("-c", CLIENT, str(port), str(records))["seconds"]
        else:
            seconds = run_job(port, job="read_backlog")["seconds"]
        return float(seconds), time.process_time() - before, checking


def report(found: dict[bool, list[Reading]], size: float) -> None:
    """Prints the medians."""
    for verifies, rows in found.items():
        seconds, cpu, _ = (statistics.median(column) for column in zip(*rows, strict=True))
        words = "verified" if verifies else "not verified"
        print(f"{words:>12}: {size / seconds / 1e9:.2f} GB/s, {cpu:.3f} s of the broker's processor time")
    for at, words in enumerate(("seconds of a reading", "the broker's processor time")):
        ratios = [whole[at] / bare[at] for whole, bare in zip(found[True], found[False], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{words}, verified to not verified: {middle:.3f} ({low:.3f} to {high:.3f})")
        shares = [each[2] / each[at] for each in found[True]]
        low, middle, high = statistics.quantiles(shares, n=4)
        print(f"share of the checks in {words}: {100 * middle:.1f} % ({100 * low:.1f} to {100 * high:.1f})")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile.first_read", description=__doc__)
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--records", type=int, default=16, help="of 1,000 bytes, in a batch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--evict", action="store_true")
    parser.add_argument("--client", action="store_true")
    given = parser.parse_args(arguments)
    found: dict[bool, list[Reading]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent)
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # as `lockstep serve` has it
        with broker_in_thread(data_dir=directory, log_flush="os", lockstep_segment_bytes=64 << 20) as broker:
            create = ("topics", "create", TOPIC, "--partitions", "1", "--bootstrap-server")
            subprocess.run(
                [sys.executable, "-m", "lockstep", *create, broker.bootstrap_servers],
                check=True, capture_output=True,
            )  # fmt: skip
            filled = run_job(
                broker.port,
                job="fill",
                records=given.records,
                record_bytes=RECORD_BYTES,
                window=5,
                total_bytes=given.mb << 20,
            )
            for number in range(given.rounds):
                for verifies in (True, False) if number % 2 else (False, True):
                    if given.evict:
                        evict(directory)
                    found[verifies].append(
                        measure(broker.port, verifies, filled["total_records"], given.client)
                    )
    report(found, filled["bytes"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
