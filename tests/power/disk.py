"""`PowerDisk`: a mounted volume in a process of its own, with a power switch.

    with PowerDisk() as disk:
        broker writes below disk.path ...
        disk.cut(after=7)         # the disk stops after seven more changes and flushes
        os.kill(broker, SIGKILL)
        disk.lose(seed=1)         # what was not flushed is gone, in part or whole
        disk.power_on()

Owns: the process and the mount point; both are gone afterwards, also when this process dies (the other one
sees the end of its input). Does not: end those who use the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.campaigns.disk_full import NotPossible
from tests.power.volume import Loss

ROOT = Path(__file__).resolve().parent.parent.parent
DEVICE = Path("/dev/fuse")


def why_not() -> str | None:
    """What this machine or user lacks, in words."""
    if not DEVICE.exists():
        return f"there is no {DEVICE}, so no file system of our own can be mounted"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "mounting a file system of our own needs root, or fusermount3 (make system-deps)"
    os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")  # mfusepy would take libfuse2 where both are
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError, AttributeError) as error:
        return f"mfusepy and libfuse3 are needed (make system-deps): {error}"
    return None


class PowerDisk:
    """See the module. NotPossible when it cannot be mounted."""

    def __init__(self, flush_ms: float = 0.0) -> None:
        reason = why_not()
        if reason is not None:
            raise NotPossible(reason)
        self._base = Path(tempfile.mkdtemp(prefix="lockstep-power-"))
        self.path = self._base / "disk"
        self.path.mkdir()
        self._log = self._base / "mount.log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.power.mount", str(self.path), "--flush-ms", str(flush_ms)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
                text=True,
            )
        if not self._answer().get("ready"):
            text = self._log.read_text(errors="replace")[-500:]
            self.close()
            raise NotPossible(f"mounting failed: {text.strip()}")

    def cut(self, after: int = 0, names: bool = False) -> None:
        """The disk stops after so many more changes and flushes; `names`: at a later flush of a directory."""
        self._ask(do="cut", after=after, names=names)

    def wait_until_cut(self, timeout_s: float) -> bool:
        """Whether it has stopped by then."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.state()["state"] == "cut":
                return True
            time.sleep(0.002)
        return False

    def lose(self, seed: int) -> Loss:
        """The power goes; whoever uses the disk must be dying already. Everything fails until `power_on`."""
        return Loss(**self._ask(do="lose", seed=seed))

    def power_on(self) -> None:
        """From now on it serves what was kept."""
        self._ask(do="on")

    def lie(self) -> None:
        """From now on flushes are acknowledged and nothing is kept by them."""
        self._ask(do="lie")

    def state(self) -> dict[str, Any]:
        """`state` ("on", "cut", "off"), `operations`, `flushes`."""
        return self._ask(do="state")

    def close(self) -> None:
        """Unmounts and removes it. May be called twice."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        if not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        shutil.rmtree(self._base, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if not self._alive or "error" in answer:
            raise RuntimeError(f"the disk: {answer or self._log.read_text(errors='replace')[-500:]}")
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._alive = bool(line)
        answer: dict[str, Any] = json.loads(line) if line else {}
        return answer
