"""The cost of a broker process: CPU seconds, resident memory, and the work of its JVM's compiler.

Owns: reading /proc for one process (and its children, should it have any) and for the machine.
Does not start or stop anything.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

_CPUCLOCK_SCHED = 2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_COMPILER_THREADS = ("C1 CompilerThre", "C2 CompilerThre")
SAMPLE_INTERVAL_S = 0.1


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def rss_bytes(pid: int) -> int:
    """Resident bytes of the process and its children; 0 when it is gone."""
    total = 0
    for process in _family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def cpu_seconds(pid: int) -> float:
    """User and system seconds of the process and its children so far; 0.0 when it is gone.

    By the processes' own clocks: /proc has it in hundredths of a second, and a short run takes less.
    """
    total = 0.0
    for process in _family(pid):
        with contextlib.suppress(OSError):
            total += time.clock_gettime(_cpu_clock(process.pid))
    return total


def _cpu_clock(pid: int) -> int:
    """The clock of clock_getcpuclockid(3), which Python has for threads alone."""
    return ~pid << 3 | _CPUCLOCK_SCHED


def thread_cpu_seconds(pid: int) -> float:
    """User and system seconds of the process's first thread so far; 0.0 when it is gone."""
    try:
        fields = _fields(Path(f"/proc/{pid}/task/{pid}/stat").read_text())
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _fields(stat: str) -> list[str]:
    """The fields of a thread's stat file behind its name."""
    return stat[stat.rindex(")") + 2 :].split()


def compiler_seconds(pid: int) -> float:
    """CPU seconds of the JVM's compiler threads so far; 0.0 for a process that has none."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            stat = (task / "stat").read_text()
        except OSError:
            continue
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        if name.startswith(_COMPILER_THREADS):
            fields = _fields(stat)
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def machine_busy_seconds() -> tuple[float, float]:
    """(busy, stolen) CPU seconds of the whole machine so far."""
    times = psutil.cpu_times()
    steal = float(getattr(times, "steal", 0.0))
    return times.user + times.nice + times.system + times.irq + times.softirq + steal, steal


class RssSampler:
    """Samples the resident memory of some processes together, from a thread until stopped."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        self._stop = threading.Event()
        self._samples: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:  # once at least, however short it is
            sample = sum(map(rss_bytes, self._pids))
            if sample:
                self._samples.append(sample)
            if self._stop.wait(SAMPLE_INTERVAL_S):
                return

    @contextlib.contextmanager
    def sample_rss(self) -> Iterator[RssSampler]:
        """Sample while the body runs."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()

    def result(self) -> dict[str, float]:
        """Highest and median resident megabytes, and how many samples they rest on."""
        if not self._samples:
            raise RuntimeError("the broker was gone before its memory could be sampled")
        return {
            "rss_max_mb": max(self._samples) / 1e6,
            "rss_median_mb": statistics.median(self._samples) / 1e6,
            "samples": len(self._samples),
        }


REPEATS = 7
LOOP_S = 0.08


def microseconds(step: Callable[[], object]) -> float:
    """Median over repeats of the mean time of one call."""
    step()
    began = time.perf_counter()
    step()
    count = max(1, int(LOOP_S / max(time.perf_counter() - began, 1e-7)))
    means = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(count):
            step()
        means.append((time.perf_counter() - began) / count)
    return statistics.median(means) * 1e6
