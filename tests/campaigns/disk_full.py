"""`python -m tests.campaigns.disk_full`: the disk fills up under a producing client, and is freed again.

On a small file system of its own (a loop-mounted ext4, or a tmpfs; both need root). What must hold: produce
is refused with KAFKA_STORAGE_ERROR and nothing else, the process stays up and goes on serving reads and
metadata, a kill -9 on the full disk loses nothing, and once space is free the same process accepts
records again.
Adds to docs/evidence/disk_full.json; ends with 1 when anything of this fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compat_tests.targets import LockstepTarget, Target
from tests.campaigns import evidence
from tests.campaigns.history import Verdict, WriterHistory, check, make_value
from tests.campaigns.partition_client import FAILED, PartitionClient, api_ranges, first_ack, read_partition

PRODUCE = 0
KAFKA_STORAGE_ERROR = 56
TOPIC = "disk-full"
DISK_BYTES = 96 << 20
LEFT_BYTES = 40 << 20
"""Free when the broker starts; the rest is ballast that is removed to free space."""
SETTINGS = {"lockstep.segment.bytes": str(4 << 20), "lockstep.spare.segments": "1"}
RECOVERY_DEADLINE_S = 10.0
REFUSALS = 20


class NotPossible(RuntimeError):
    """This machine or user cannot mount a file system; the text says why."""


@contextlib.contextmanager
def small_file_system(kind: str, size_bytes: int) -> Iterator[Path]:
    """A fresh, mounted file system of its own, gone afterwards. `kind` is "ext4" or "tmpfs". NotPossible."""
    if os.geteuid() != 0:
        raise NotPossible("mounting a small file system needs root")
    base = Path(tempfile.mkdtemp(prefix="lockstep-disk-full-"))
    mount_point = base / "mount"
    mount_point.mkdir()
    try:
        if kind == "tmpfs":
            _command("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mount_point))
        else:
            image = base / "disk.img"
            with open(image, "wb") as file:
                file.truncate(size_bytes)
            _command("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
            _command("mount", "-o", "loop", str(image), str(mount_point))
        try:
            yield mount_point
        finally:
            _command("umount", str(mount_point))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _command(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotPossible(f"{words[0]}: {error}") from error
    if done.returncode:
        raise NotPossible(f"{' '.join(words[:3])}: {done.stderr.strip()}")


class DiskFull:
    """One run; `problems` is empty when everything held."""

    def __init__(self, target: Target, mount_point: Path, seed: int) -> None:
        self._target = target
        self._ballast = mount_point / "ballast"
        self._rng = random.Random(seed)
        self._history = WriterHistory("disk", "wire", idempotent=True)
        self._mount_point = mount_point
        self.problems: list[str] = []
        self.figures: dict[str, Any] = {}

    def run(self) -> None:
        """Fill, read, kill, read, free, produce."""
        ballast_bytes = self._free_bytes() - LEFT_BYTES
        with open(self._ballast, "wb") as file:
            file.write(bytes(ballast_bytes))
            os.fsync(file.fileno())
        self._target.start()
        first_ack(self._target.port, TOPIC, 30, self._next_value(acked_at=0))
        process_id = self._target.pid
        self._produce_until_refused()
        self.figures["free_bytes_when_refused"] = self._free_bytes()
        self._refused_again_and_again()
        self._read_all("on the full disk")
        self._restart_on_the_full_disk()
        process_id = self._target.pid
        self._ballast.unlink()
        self._produce_again()
        self._read_all("after space was freed")
        if self._target.pid != process_id or not self._target.running:
            self.problems.append("the process did not survive the full disk")
        code = self._target.stop()
        if code:
            self.problems.append(f"stopping ended with {code}")

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._mount_point).free

    def _next_value(self, acked_at: int | None = None) -> bytes:
        sequence = self._history.sent
        self._history.sent += 1
        if acked_at is not None:
            self._history.acked[sequence] = (0, acked_at)
        return make_value("disk", sequence, self._rng.randbytes(50_000).replace(b"|", b"/"))

    def _produce(self, client: PartitionClient) -> int:
        """One record; its error code, and the acknowledgement remembered."""
        sequence = self._history.sent
        error, offset = client.produce(self._next_value())
        if error == 0:
            self._history.acked[sequence] = (0, offset)
        return error

    def _produce_until_refused(self) -> None:
        client = PartitionClient(self._target.port, TOPIC)
        limit = 2 * LEFT_BYTES // 50_000
        for number in range(limit):
            error = self._produce(client)
            if error:
                self.figures["records_before_full"] = number
                if error != KAFKA_STORAGE_ERROR:
                    self.problems.append(f"refused with error {error}, not {KAFKA_STORAGE_ERROR}")
                break
        else:
            self.problems.append(f"{limit} records were accepted into {LEFT_BYTES} bytes")
        client.raw.close()

    def _refused_again_and_again(self) -> None:
        """Every further attempt gets the same answer at once; small records may still find room."""
        client = PartitionClient(self._target.port, TOPIC)
        slowest = 0.0
        for _ in range(REFUSALS):
            began = time.monotonic()
            error = self._produce(client)
            slowest = max(slowest, time.monotonic() - began)
            if error not in (0, KAFKA_STORAGE_ERROR):
                self.problems.append(f"on the full disk: error {error}")
        self.figures["slowest_refusal_ms"] = round(slowest * 1000, 1)
        if PRODUCE not in api_ranges(client.raw):
            self.problems.append("ApiVersions changed on the full disk")
        client.raw.close()

    def _restart_on_the_full_disk(self) -> None:
        self._target.kill9()
        self.figures["restart_on_full_disk_s"] = round(self._target.start(), 3)
        self._read_all("after kill -9 on the full disk")
        client = PartitionClient(self._target.port, TOPIC)
        for _ in range(LEFT_BYTES // 50_000):
            error = self._produce(client)
            if error == KAFKA_STORAGE_ERROR:
                break
            if error:
                self.problems.append(f"after a restart on the full disk: error {error}")
                break
        client.raw.close()

    def _produce_again(self) -> None:
        client = PartitionClient(self._target.port, TOPIC)
        began = time.monotonic()
        while (error := self._produce(client)) and time.monotonic() - began < RECOVERY_DEADLINE_S:
            time.sleep(0.02)
        self.figures["freed_to_first_ack_ms"] = round((time.monotonic() - began) * 1000, 1)
        if error:
            self.problems.append(f"{RECOVERY_DEADLINE_S} s after space was freed: error {error}")
        for _ in range(100):
            error = self._produce(client)
            if error:
                self.problems.append(f"after recovery: error {error}")
                break
        client.raw.close()

    def _read_all(self, when: str) -> None:
        try:
            verdict: Verdict = check([self._history], {0: read_partition(self._target.port, TOPIC)})
        except (*FAILED, RuntimeError) as error:
            self.problems.append(f"{when}: cannot read: {error!r}")
            return
        self.problems += [f"{when}: {problem}" for problem in verdict.problems]
        if verdict.unacked_present:
            self.problems.append(f"{when}: {verdict.unacked_present} refused records are there")
        self.figures[f"records_read {when}"] = verdict.read


def run(kind: str, seed: int) -> dict[str, Any]:
    """One run on a file system of this kind; its figures, with `problems`. NotPossible."""
    with small_file_system(kind, DISK_BYTES) as mount_point, tempfile.TemporaryDirectory() as beside:
        target = LockstepTarget(SETTINGS, directory=Path(beside))
        target.data_dir = mount_point / "data"
        campaign = DiskFull(target, mount_point, seed)
        try:
            campaign.run()
        finally:
            target.close()
        return {"file_system": kind, "seed": seed, **campaign.figures, "problems": campaign.problems}


def main(words: Sequence[str] | None = None) -> int:
    """Both kinds of file system; 1 when something did not hold, 2 when nothing could be mounted."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.disk_full", description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=["ext4", "tmpfs"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    sound, ran = True, 0
    for kind in arguments.kinds:
        try:
            figures = run(kind, arguments.seed)
        except NotPossible as reason:
            print(f"{kind}: not possible here: {reason}")
            continue
        ran += 1
        print(figures)
        sound = sound and not figures["problems"]
        if not arguments.no_evidence:
            evidence.add_run("disk_full", figures)
    return 2 if not ran else 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
