"""What the data log alone costs: `python -m tests.storage.log.log_costs [--directory DIR]`.

Append and flush of one frame, p50 and p99; bytes on the device per byte of payload; the time to open a log of
`--open-mib` MiB of 1 KB single-batch frames, which is recovery's worst case. One process; nothing is kept.
Single steps, reads of the log and whole turns of a group among them, and their history by commit are those of
`python -m bench micro`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Checkpoint
from tests.storage.log.frames import FrameMaker


def microseconds(work: Callable[[], object], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def report(what: str, times: list[float]) -> None:
    times = sorted(times)
    p99 = times[int(len(times) * 0.99)]
    print(f"{what:46} p50 {statistics.median(times):9.1f} us  p99 {p99:9.1f} us", flush=True)


def appends(directory: Path, body_bytes: int, batches: int) -> None:
    make = FrameMaker()
    log = DataLog.open(directory / f"a{body_bytes}-{batches}", 1, LogOptions())
    log.prepare_now()
    log.start_preparing()
    body = os.urandom(body_bytes - 21)
    frames = [make.data(*[(1, 1, body)] * batches) for _ in range(2000)]
    queue = iter(frames)
    report(
        f"append, {batches} batch(es) of {body_bytes} B",
        microseconds(lambda: log.append([next(queue)]), 1000),
    )

    def durable() -> None:
        log.append([next(queue)])
        log.flush()

    report(f"append + flush, {batches} batch(es) of {body_bytes} B", microseconds(durable, 1000))
    log.close()


def opening(directory: Path, mib: int) -> None:
    make = FrameMaker()
    path = directory / "o"
    log = DataLog.open(path, 1, LogOptions(flush=False))
    log.start_preparing()
    body = os.urandom(1024 - 21)
    written = 0
    while written < mib << 20:
        log.append([make.data((1 + written % 7, 1, body))])
        written += 1024
        if log.sealed_since_checkpoint:
            log.write_checkpoint(
                Checkpoint(log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, {})
            )
    log.close()
    for what, checkpoints in (("with its checkpoints", True), ("without any checkpoint", False)):
        if not checkpoints:
            for each in path.glob("checkpoint-*"):
                each.unlink()
            for each in path.glob("*.index"):
                each.unlink()
        start = time.perf_counter()
        log = DataLog.open(path, 1, LogOptions())
        opened = time.perf_counter()
        replayed = sum(1 for _ in log.replay())
        done = time.perf_counter()
        print(
            f"open {mib} MiB of 1 KB frames {what}: {opened - start:.2f} s "
            f"({log.report.frames_scanned} scanned), replay of {replayed} frames {done - opened:.2f} s",
            flush=True,
        )
        log.close()


def written_to_device(directory: Path) -> int:
    """Bytes written so far, by anybody, to the block device that holds the directory; 0 where unknown.

    (The kernel's count per process is of no use: it charges whole large folios for a few dirty bytes.)
    """
    number = directory.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")
    return int(stat.read_text().split()[6]) * 512 if stat.exists() else 0


def device_bytes(directory: Path) -> None:
    """Bytes written per byte of payload: while segments are filled for the first time, and once recycled."""
    make = FrameMaker()
    log = DataLog.open(directory / "d", 1, LogOptions(segment_bytes=32 << 20))
    log.start_preparing()
    body = os.urandom((16 << 10) - 21)
    for phase, mib in (("first fill", 192), ("settling", 128), ("steady state", 256)):
        before, by_purpose, payload = written_to_device(directory), log.written_bytes(), 0
        while payload < mib << 20:
            log.append([make.data(*[(1, 1, body)] * 16)])
            log.flush()
            payload += 16 * (16 << 10)
            if log.sealed_since_checkpoint:
                log.write_checkpoint(
                    Checkpoint(
                        log.last_index, 1, log.next_lsn, log.chain, log.last_time_ms, {"a": bytes(64 << 10)}
                    )
                )
                sealed = log.segments()
                if phase != "first fill" and len(sealed) > 3:
                    start = next(iter(sealed[-4].partitions())).last_offset + 1
                    log.free_deleted_segments({1: start}.__getitem__)
        after = {name: count - by_purpose[name] for name, count in log.written_bytes().items()}
        itemised = ", ".join(f"{name} {count / payload:.3f}" for name, count in after.items())
        device = (written_to_device(directory) - before) / payload
        print(f"device bytes per payload byte, {phase}: {device:.2f} ({itemised})", flush=True)
    log.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary directory)")
    parser.add_argument("--open-mib", type=int, default=256)
    parser.add_argument("--only", choices=("append", "device", "open"))
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lockstep-log-costs-", dir=arguments.directory))
    try:
        if arguments.only in (None, "append"):
            for body_bytes, batches in ((1024, 1), (16 << 10, 1), (1024, 16)):
                appends(directory, body_bytes, batches)
        if arguments.only in (None, "device"):
            device_bytes(directory)
        if arguments.only in (None, "open"):
            opening(directory, arguments.open_mib)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
