"""`python -m tests.campaigns.fuzz_fast_path --inputs 10000000`: the C extension against the path in Python.

Builds the extension with the address and undefined-behaviour sanitizers, where gcc has them, and gives it and
the Python path the same bytes: requests that are plain, nearly plain and not plain, whole and in pieces,
several in one read. What must hold: no sanitizer report, no end of the process, and the same state and the
same replies on both sides before and after each commit. Runs in chunks of a seed each, in a process each;
prints its seed; `--resume` goes on where an interrupted run of the same source stopped. Adds to
docs/evidence/fuzz_fast_path.json and ends with 1 when there is any finding. No coverage steers it: gcc alone
is asked for, and the share of the requests that the extension takes is counted instead.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import random
import runpy
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lockstep import extension
from tests.campaigns import evidence

if TYPE_CHECKING:
    from tests.campaigns.fast_path_pair import FastPathPair

DIRECTORY: Final = evidence.ROOT / ".cache" / "fuzz_fast_path"
CHUNK_INPUTS: Final = 50_000
INPUTS_OF_A_COMMIT: Final = 8
SANITIZERS: Final = (
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
CHUNK_SECONDS: Final = 1800


# --- inputs -------------------------------------------------------------------------------------------------


class Inputs:
    """Requests of a seed. Each is a request that may be plain, or such a one with a change.

    Args: sequences: the last sequence by partition index and producer, so that most batches continue.
    """

    def __init__(self, seed: int, sequences: Callable[[int, int], int]) -> None:
        from tests.broker.appends import NOW_MS, batch

        self.random = random.Random(seed)
        self._last_sequence = sequences
        self._next: dict[tuple[int, int], int] = {}
        self._version = 9
        values = [b"", b"a", b"bb" * 20, b"c" * 900, b"d" * 5000]
        self._batches = [bytes(batch(*[value] * count)) for value in values for count in (1, 2)]
        self._batches += [bytes(batch(b"x", timestamp_ms=NOW_MS + delta)) for delta in (-5, 1, 3_600_000)]

    def several(self) -> bytes:
        """The requests up to a commit, one after the other."""
        self._next.clear()
        if self.random.random() < 0.1:
            self._version = self.random.choice((3, 5, 8, 9, 9, 10, 12, 13))
        return b"".join(self._one() for _ in range(INPUTS_OF_A_COMMIT))

    def _one(self) -> bytes:
        """One request with its length."""
        rng = self.random
        version = rng.choice((3, 9, 13)) if rng.random() < 0.03 else self._version
        indexes = rng.sample(range(3), rng.choice((1, 1, 1, 1, 2, 3)))
        if rng.random() < 0.03:
            indexes[0] = rng.choice((0, 3, -1))
        body = self._head(version) + b"".join(
            self._partition(version, index, self._batch(index)) for index in indexes
        )
        count = len(indexes)
        at = len(self._head(version))
        body = body[:at] + (bytes([count + 1]) if version >= 9 else struct.pack(">i", count)) + body[at:]
        body += b"\0\0" if version >= 9 else b""
        return self._changed(body)

    def _head(self, version: int) -> bytes:
        client = b"\0\x02me"
        start = struct.pack(">hhi", 0, version, self.random.randrange(1 << 31)) + client
        if version < 9:
            return start + struct.pack(">hhii", -1, -1, 1000, 1) + b"\0\x05plain"
        start += b"\0\0" + struct.pack(">hi", -1, 1000) + b"\x02"
        return start + (bytes([1] * 16) if version == 13 else b"\x06plain")

    def _partition(self, version: int, index: int, batch: bytes) -> bytes:
        if version < 9:
            return struct.pack(">ii", index, len(batch)) + batch
        size, length = len(batch) + 1, b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        return struct.pack(">i", index) + length + bytes([size]) + batch + b"\0"

    def _batch(self, index: int) -> bytes:
        from lockstep.protocol.records.batch import crc_of
        from tests.broker.appends import NOW_MS

        rng = self.random
        made = bytearray(rng.choice(self._batches))
        if rng.random() < 0.5:
            producer = rng.choice((1, 2))
            sequence = self._next.get((index, producer))
            if sequence is None:
                sequence = self._last_sequence(index, producer) + 1 & 0x7FFFFFFF
            (count,) = struct.unpack_from(">i", made, 57)
            self._next[index, producer] = (sequence + count) & 0x7FFFFFFF
            if rng.random() < 0.05:
                sequence = rng.choice((0, sequence + 1 & 0x7FFFFFFF, -1, (1 << 31) - 1))
            struct.pack_into(">qhi", made, 43, producer, int(rng.random() < 0.02), sequence)
        if rng.random() < 0.01:  # the future
            struct.pack_into(">q", made, 35, rng.choice((NOW_MS + 3_600_001, 1 << 62, (1 << 63) - 1)))
        if rng.random() < 0.07:  # any header
            at = rng.choice((0, 8, 12, 16, 17, 21, 22, 23, 27, 35, 43, 51, 53, 57, rng.randrange(len(made))))
            made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.98:
            struct.pack_into(">I", made, 17, crc_of(made, 0, len(made)))
        return bytes(made)

    def _changed(self, body: bytes) -> bytes:
        rng = self.random
        kind = rng.random()
        if kind < 0.03:
            body = body[: rng.randrange(len(body))]
        elif kind < 0.05:
            body += bytes(rng.randrange(1, 4))
        elif kind < 0.15:
            changed = bytearray(body)
            for _ in range(rng.choice((1, 1, 2, 5))):
                near = rng.randrange(min(len(body), 64)) if rng.random() < 0.7 else rng.randrange(len(body))
                changed[near] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            body = bytes(changed)
        length = len(body)
        if rng.random() < 0.003:
            length = rng.choice((-1, 0, length + 1, 1 << 30))
        return struct.pack(">i", length) + body


def run_chunk(seed: int, inputs: int, pair: FastPathPair) -> int:
    """Feed so many inputs, cut into reads of any size; how many requests were taken. Raises PathsDiffer."""
    for each in pair.sides:
        each.know_producers((1 << 31) - 20)
    python = pair.sides[0]

    def last_sequence(index: int, producer: int) -> int:
        known = python.producers.find(index + 1, producer)
        return -1 if known is None else known.last_sequence

    made = Inputs(seed, last_sequence)
    rng = made.random
    for _ in range(inputs // INPUTS_OF_A_COMMIT + 1):
        data = made.several()
        while data:
            size = rng.choice((len(data), len(data), rng.randrange(1, len(data) + 1), min(len(data), 1200)))
            pair.receive(data[:size])
            data = data[size:]
        if rng.random() < 0.02:
            for each in pair.sides:
                each.cluster.changes += 1
        pair.commit()
    return pair.taken


# --- the extension under sanitizers -------------------------------------------------------------------------


def sanitizer_libraries() -> list[str]:
    """What is loaded before Python; empty without gcc's sanitizers."""
    found = []
    for name in ("libasan.so", "libubsan.so"):
        try:
            asked = subprocess.run(
                ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return []
        found.append(asked.stdout.strip())
    return found if all(os.path.isabs(each) for each in found) else []


def build(directory: Path) -> tuple[Path, dict[str, str]]:
    """The extension, with sanitizers where there are any, and the environment in which it runs."""
    builder = runpy.run_path(str(evidence.ROOT / "requirements" / "build_extension.py"))
    libraries = sanitizer_libraries()
    built: Path = builder["build"](directory, options=SANITIZERS if libraries else ())
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}
    if libraries:
        environment["LD_PRELOAD"] = " ".join(libraries)
        environment["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1"
        environment["UBSAN_OPTIONS"] = "print_stacktrace=1:halt_on_error=1"
    return built, environment


def use(built: Path) -> None:
    """Make this process use that extension."""
    spec = importlib.util.spec_from_file_location(extension.MODULE, built)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[extension.MODULE] = module
    assert extension.load()[0] is module, extension.load()[1]


def chunk_process(built: Path, seed: int, inputs: int) -> int:
    """What a process for one chunk does."""
    use(built)
    from tests.campaigns.fast_path_pair import FastPathPair

    pair = FastPathPair()
    print(json.dumps({"taken": run_chunk(seed, inputs, pair)}), flush=True)
    return 0


# --- the campaign -------------------------------------------------------------------------------------------


class Run:
    """A whole run, which can be interrupted."""

    def __init__(self, directory: Path, seed: int, inputs: int) -> None:
        self.directory, self.seed, self.wanted = directory, seed, inputs
        self.done = self.taken = self.next_chunk = 0
        self.seconds = 0.0
        self.has_sanitizers = bool(sanitizer_libraries())
        self.problems: list[str] = []

    def go(self, tell: Callable[[str], None]) -> None:
        """Feed what is left."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="lockstep-fuzz-") as temporary:
            built, environment = build(Path(temporary))
            while self.done < self.wanted and not self.problems:
                began = time.monotonic()
                self.chunk(built, environment, min(CHUNK_INPUTS, self.wanted - self.done))
                self.seconds += time.monotonic() - began
                self.save()
                tell(f"{self.done:,} of {self.wanted:,} inputs, {self.done / self.seconds:,.0f}/s")

    def chunk(self, built: Path, environment: dict[str, str], inputs: int) -> None:
        """One process; what it found is a problem."""
        seed = self.seed + self.next_chunk
        command = [sys.executable, "-m", "tests.campaigns.fuzz_fast_path", "--child", str(built)]
        command += ["--seed", str(seed), "--inputs", str(inputs)]
        where: dict[str, Any] = {"cwd": evidence.ROOT, "env": environment, "timeout": CHUNK_SECONDS}
        done = subprocess.run(command, **where, capture_output=True, text=True, check=False)
        self.next_chunk += 1
        if done.returncode:
            self.problems.append(f"seed {seed}: ended with {done.returncode}: {done.stderr[-3000:]}")
            return
        self.done += inputs
        self.taken += json.loads(done.stdout)["taken"]

    def save(self) -> None:
        """Keep what `--resume` needs."""
        kept = ("seed", "done", "taken", "next_chunk", "seconds")
        state = {"source": source_digest(), **{name: getattr(self, name) for name in kept}}
        temporary = self.directory / "state.tmp"
        temporary.write_text(json.dumps(state))
        os.replace(temporary, self.directory / "state.json")

    def resume(self) -> bool:
        """Take over what an interrupted run of the same source left; False where there is none."""
        path = self.directory / "state.json"
        if not path.exists():
            return False
        state = json.loads(path.read_text())
        if state.pop("source") != source_digest():
            return False
        for name, value in state.items():
            setattr(self, name, value)
        return True

    def figures(self) -> dict[str, Any]:
        """For the evidence."""
        return {
            "seed": self.seed,
            "inputs": self.done,
            "taken": self.taken,
            "sanitizers": self.has_sanitizers,
            "extension": extension.source_digest()[:12],
            "seconds": round(self.seconds, 1),
            "inputs_per_s": round(self.done / self.seconds) if self.seconds else 0,
            "problems": self.problems,
        }


def source_digest() -> str:
    """Of the extension and the product's Python."""
    both = extension.source_digest() + evidence.source_digest()
    return hashlib.sha256(both.encode()).hexdigest()[:12]


def main(words: Sequence[str] | None = None) -> int:
    """The campaign as a command; 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz_fast_path", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--no-evidence", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.child is not None:
        return chunk_process(arguments.child, arguments.seed, arguments.inputs)
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    run = Run(DIRECTORY, seed, arguments.inputs)
    if arguments.resume:
        run.resume()
    print(f"fuzz of the extension: seed {run.seed}, {run.done:,} of {run.wanted:,} inputs done", flush=True)
    run.go(lambda text: print(f"  {text}", flush=True))
    print(json.dumps(run.figures(), indent=1), flush=True)
    if not arguments.no_evidence:
        evidence.add_run("fuzz_fast_path", run.figures())
    if run.done >= run.wanted:
        (DIRECTORY / "state.json").unlink(missing_ok=True)
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
