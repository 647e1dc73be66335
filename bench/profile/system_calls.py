"""The processor time of the event loop's thread: system calls by name, and all else. Pure but for
`record`.

Owns: perf beside a running broker, and reading its samples. Where py-spy sees no frame of ours, the loop is
in a call of its own: this shows in which. It counts time on a processor alone, so that a flush is what the
kernel works for it, not what is waited for. Kernel stacks only, which slows nothing noticeably; perf is not
among what this project installs, and without it the report is empty.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Final

from bench.figures.tables import text_table

SAMPLES_PER_S: Final = 500
PYTHON: Final = "Python, and what it calls"
LOOP: Final = "uvloop's own code"
OTHER: Final = "other work of the kernel"
READS, WRITES, READY = "reads from sockets", "writes to sockets", "asking what is ready"
CALLS: Final = {
    **dict.fromkeys(("read", "readv", "recvfrom", "recvmsg"), READS),
    **dict.fromkeys(("write", "writev", "sendto", "sendmsg"), WRITES),
    **dict.fromkeys(("pwrite64", "pwritev", "pwritev2"), "writes to the log"),
    "fdatasync": "flushes, without waiting",
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_ctl"), READY),
}
"""By Linux's name of the call. uvloop reads and writes sockets by `read` and `write`, the broker also by
others; the log is written at positions."""
_CALL = re.compile(r"\b(?:__(?:x64|arm64)_sys|__sys|ksys|do)_(\w+)")
"""The kernel's functions of a call; of some the outermost does not show."""
_EXTRA_S = 30.0


def record(pid: int, seconds: float, directory: Path) -> str | None:
    """Samples of a process's main thread as perf's text; None where perf is missing or not permitted."""
    if shutil.which("perf") is None:
        return None
    data = directory / "perf.data"
    command = ["perf", "record", "--event", "cpu-clock", "--freq", str(SAMPLES_PER_S), "--call-graph", "fp"]
    command += ["--tid", str(pid), "--output", str(data), "--", "sleep", str(max(1, round(seconds)))]
    script = ["perf", "script", "--input", str(data), "--fields", "comm,tid,time,event,ip,sym,dso"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=seconds + _EXTRA_S)
        return subprocess.run(script, check=True, capture_output=True, timeout=_EXTRA_S, text=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def count_samples(script: str) -> Counter[str]:
    """Samples by what the thread was doing. Args: script: samples with a line for each frame, apart by blank
    lines. A call that is not listed, an interrupt or a page fault is OTHER."""
    found: Counter[str] = Counter()
    for sample in script.split("\n\n"):
        _, _, frames = sample.strip("\n").partition("\n")
        if frames:
            found[_activity(frames)] += 1
    return found


def _activity(frames: str) -> str:
    calls = [CALLS[name] for name in _CALL.findall(frames) if name in CALLS]
    if calls:
        return calls[-1]
    innermost = frames.partition("\n")[0].strip()
    if innermost.startswith("ffff"):  # a kernel's address
        return OTHER
    return LOOP if "/uvloop/" in innermost else PYTHON


def per_commit(found: Counter[str], cpu_share: float, microseconds: float) -> dict[str, float]:
    """Microseconds on a processor in one group commit, the most first.

    Args: as `stages.per_commit`. ValueError without samples.
    """
    total = found.total()
    if not total:
        raise ValueError("no samples of the event loop's thread")
    return {name: count / total * cpu_share * microseconds for name, count in found.most_common()}


def table(result: dict[str, Any], style: str = "simple") -> str:
    """A column for each split of a profile result; empty where perf saw none of them."""
    splits = [each for each in result["splits"] if each.get("calls_per_commit_us")]
    names = dict.fromkeys(name for each in splits for name in each["calls_per_commit_us"])
    heads = ["on a processor, in one group commit"]
    heads += [f"{each['nodes']} node(s), {each['work']}" for each in splits]
    rows = []
    for name in names:
        found = [each["calls_per_commit_us"].get(name) for each in splits]
        rows.append([name, *("" if each is None else f"{each:,.1f} us" for each in found)])
    return text_table(rows, heads, style)
