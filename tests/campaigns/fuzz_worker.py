"""The fuzzer's child process: feeds inputs to the targets and says on stdout, in lines of JSON, how it goes.

Owns: running one input so that nothing it does is lost: it lies in a shared file while it runs (a process
that dies leaves it there), an exception that the target does not declare becomes a finding in a file, and so
does an input that takes seconds. Two engines: `grammar` (Hypothesis, `fuzz_grammar`) and `coverage`
(atheris, libFuzzer's mutations steered by the lines of ours that an input reaches).
Invariants: nothing of the product is imported before the engine is chosen, which may instrument it.
"""

from __future__ import annotations

import gc
import json
import logging
import mmap
import os
import sys
import time
import traceback
import zlib
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

CURRENT_BYTES: Final = 1 << 20
SLOW_SECONDS: Final = 2.0
"""Of processor time, for one input: longer than anything these small inputs may take."""
FILES_PER_KIND: Final = 3
KEPT_BEFORE: Final = 8
"""Inputs before a finding that are kept with it: a handler's work may go on under the next ones."""
MAX_COVERAGE_INPUT: Final = 2048
LONG_RUN_INPUTS: Final = 100_000
"""From here on every codec is made before memory is looked at, or its making would look like growth."""
REPORT_EVERY: Final = 2_500
COVERAGE_TARGETS: Final = (
    *("request",) * 4,
    *("handlers",) * 5,
    *("response",) * 3,
    *("records",) * 2,
    "compression",
    "header",
    "stream",
)
"""Which target an input of the coverage engine is for: its first byte, taken round."""
PLAINTEXT: Final = "plaintext"
"""The listener with which all targets are fed; with another one only the handlers behind it."""


def rss_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", "rb") as facts:
        return int(facts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Feeder:
    """Runs inputs and counts. `directory` is where the current input and the findings lie."""

    def __init__(self, directory: Path, targets: dict[str, Callable[[bytes], bool]]) -> None:
        self._targets = targets
        self._findings = directory / "findings"
        self._findings.mkdir(parents=True, exist_ok=True)
        current = directory / "current"
        current.write_bytes(bytes(CURRENT_BYTES))
        with current.open("r+b") as file:
            self._current = mmap.mmap(file.fileno(), CURRENT_BYTES)
        self._before: deque[tuple[str, bytes]] = deque(maxlen=KEPT_BEFORE)
        self.inputs: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.slowest_s = 0.0

    def feed(self, target: str, data: bytes) -> None:
        """Run one input. Raises nothing that a target raises."""
        named = target.encode() + b"\0" + data[: CURRENT_BYTES - 64]
        self._current[: 4 + len(named)] = len(named).to_bytes(4, "big") + named
        self.inputs[target] += 1
        began = time.process_time()
        try:
            if self._targets[target](data):
                self.accepted[target] += 1
        except Exception as failure:
            self._found(target, data, failure)
        spent = time.process_time() - began
        if spent > self.slowest_s:
            self.slowest_s = spent
            if spent > SLOW_SECONDS:
                self._found(target, data, TimeoutError(f"{spent:.1f} s of processor time"))
        self._before.append((target, data))

    def _found(self, target: str, data: bytes, failure: Exception) -> None:
        places = [
            f"{Path(each.filename).name}:{each.lineno}"
            for each in traceback.extract_tb(failure.__traceback__)
        ]
        kind = f"{target}: {type(failure).__name__} at {' '.join(places[-2:])}"
        self.kinds[kind] += 1
        if self.kinds[kind] > FILES_PER_KIND:
            return
        before = [data for name, data in self._before if name == target == "handlers"]
        write_finding(
            self._findings / f"{target}-{zlib.crc32(kind.encode() + data):08x}.json",
            target,
            data,
            "".join(traceback.format_exception(failure)),
            before,
        )

    def report(self, **more: Any) -> None:
        """One line for the parent: everything since this process began."""
        line = {
            "inputs": self.inputs,
            "accepted": self.accepted,
            "kinds": self.kinds,
            "slowest_ms": round(self.slowest_s * 1000, 1),
            "rss": rss_bytes(),
            **more,
        }
        os.write(1, (json.dumps(line) + "\n").encode())


def write_finding(path: Path, target: str, data: bytes, error: str, before: list[bytes]) -> None:
    """The input, what it did, and the command that does it again."""
    finding = {
        "target": target,
        "repeat": f"python -m tests.campaigns.fuzz --repeat {path.name}",
        "error": error,
        "input": data.hex(),
        "before": [each.hex() for each in before],
    }
    path.write_text(json.dumps(finding, indent=1) + "\n")


def current_input(directory: Path) -> tuple[str, bytes]:
    """What a process that died was doing."""
    raw = (directory / "current").read_bytes()
    named = raw[4 : 4 + int.from_bytes(raw[:4], "big")]
    target, _, data = named.partition(b"\0")
    return target.decode() or "none", data


def grammar(directory: Path, seed: int, first_chunk: int, inputs: int, seconds: float, listener: str) -> None:
    """Chunks from `first_chunk` on until there are `inputs`, or no more time."""
    from lockstep.broker.process.heap import keep_large_blocks_apart, trim_heap
    from tests.campaigns import fuzz_grammar, fuzz_targets
    from tests.campaigns.fuzz_broker import Handlers

    logging.getLogger("hypothesis").setLevel(logging.ERROR)
    keep_large_blocks_apart()
    handlers = Handlers(listener)
    feeder = Feeder(directory, {**fuzz_targets.CODECS, "handlers": handlers.run})
    schedule = fuzz_grammar.SCHEDULE if listener == PLAINTEXT else ("handlers",)
    if inputs >= LONG_RUN_INPUTS:
        fuzz_targets.compile_all()
    deadline = time.monotonic() + seconds
    fed = 0
    chunk = first_chunk
    while fed < inputs and time.monotonic() < deadline:
        fed += fuzz_grammar.run_chunk(seed, chunk, feeder.feed, schedule)
        chunk += 1
        gc.collect()
        trim_heap()
        feeder.report(next_chunk=chunk, frames=handlers.frames, answers=handlers.answers)
    handlers.close()
    feeder.report(next_chunk=chunk, frames=handlers.frames, answers=handlers.answers)


def coverage(
    directory: Path, seed: int, first_chunk: int, inputs: int, seconds: float, listener: str
) -> None:
    """libFuzzer on a corpus that stays from run to run. Does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["lockstep.protocol", "lockstep.broker"]):
        from lockstep.protocol import source_text
        from tests.campaigns import fuzz_targets
        from tests.campaigns.fuzz_broker import Handlers
    plain_finish = source_text.SourceText.finish

    def finish(text: Any, function_name: str) -> Any:
        return atheris.instrument_func(plain_finish(text, function_name))

    source_text.SourceText.finish = finish  # type: ignore[assignment,method-assign]
    corpus = directory / "corpus"
    if not corpus.exists():
        _begin_corpus(corpus, seed)
    handlers = Handlers(listener)
    feeder = Feeder(directory, {**fuzz_targets.CODECS, "handlers": handlers.run})
    targets = COVERAGE_TARGETS if listener == PLAINTEXT else ("handlers",)
    total = 0

    def one(data: bytes) -> None:
        nonlocal total
        if not data:
            return
        feeder.feed(targets[data[0] % len(targets)], data[1:])
        total += 1
        if not total % REPORT_EVERY or total == inputs:
            feeder.report(next_chunk=first_chunk + 1, frames=handlers.frames, answers=handlers.answers)

    options = [
        f"-seed={(seed + first_chunk) % 2**31}",
        f"-runs={inputs + 1}",
        f"-max_total_time={max(1, int(min(seconds, 2**31 - 1)))}",
        f"-max_len={MAX_COVERAGE_INPUT}",
        "-rss_limit_mb=0",
        "-timeout=120",
        "-verbosity=0",
        f"-artifact_prefix={directory}/",
    ]
    atheris.Setup(["fuzz", str(corpus), *options], one)
    atheris.Fuzz()


def _begin_corpus(corpus: Path, seed: int) -> None:
    """Every API and version of each target, and drawn inputs, one file each; made in a process of its own."""
    import subprocess

    subprocess.run([sys.executable, "-m", __spec__.name, "samples", str(corpus), str(seed)], check=True)


def _write_samples(corpus: Path, seed: int) -> None:
    from tests.campaigns import fuzz_grammar

    corpus.mkdir(parents=True)
    for number, (target, data) in enumerate(fuzz_grammar.samples(seed)):
        if len(data) < MAX_COVERAGE_INPUT:
            first = COVERAGE_TARGETS.index(target)
            (corpus / f"sample-{number:05}").write_bytes(bytes([first]) + data)


def main(words: list[str]) -> int:
    """`samples DIRECTORY SEED`, or `ENGINE DIRECTORY SEED FIRST-CHUNK INPUTS SECONDS LISTENER`."""
    engine, directory, seed = words[0], Path(words[1]), int(words[2])
    if engine == "samples":
        _write_samples(directory, seed)
        return 0
    run = {"grammar": grammar, "coverage": coverage}[engine]
    run(directory, seed, int(words[3]), int(words[4]), float(words[5]), words[6])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
