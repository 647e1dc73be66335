"""Raw latencies beside the results that were made of them: every sample, as it was measured.

Owns: the format (little-endian int64 nanoseconds in the order of the responses, gzip), and the fields of a
row or a block about its file: its name, how many samples, their SHA-256 before compression. The files stay on
the machine that measured: git ignores directories of the name `raw`. Costs no timed loop anything: a job
leaves its samples in a scratch file once its loop is over, and they are compressed after the block (the
grid), or after the last session (`RawSamples`).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench import kept
from bench.exit_status import log_progress

DIRECTORY: Final = "raw"
"""Of all raw files, beside the results."""
SUFFIX: Final = ".i64.gz"
SAMPLE_BYTES: Final = 8

Noted = dict[str, Any]


def describe_file(name: str, samples: bytes) -> Noted:
    """The description of a file of this name. Args: samples: not compressed."""
    digest = hashlib.sha256(samples).hexdigest()
    return {"samples": len(samples) // SAMPLE_BYTES, "sha256": digest, "file": name}


def write(path: Path, samples: bytes) -> Noted:
    """The file, whole or not at all, and the fields about it. OSError."""
    kept.write(path, gzip.compress(samples, 9, mtime=0))
    return describe_file(path.name, samples)


def take_block(work: Callable[[Path], dict[str, Any]], keep: Callable[[bytes], Noted]) -> dict[str, Any]:
    """The block that `work` measures, with a note `raw` where its job left samples in the file it is given.

    Args: keep: takes the samples, returns the block's fields; not called where `work` raises.
    """
    with tempfile.TemporaryDirectory(prefix="bench-raw-") as scratch:
        path = Path(scratch) / "latencies"
        block = work(path)
        if path.exists():
            block["raw"] = keep(path.read_bytes())
    return block


class RawSamples:
    """A run's samples, in memory until its result has a name: `raw/RESULT/BLOCK-SESSION.i64.gz` beside it."""

    def __init__(self) -> None:
        self._samples: dict[str, bytes] = {}

    def add(self, session: int, block: str, samples: bytes) -> Noted:
        """Hold what a block of a session (numbered from 1) measured. ValueError for one that is there."""
        name = f"{block}-{session}{SUFFIX}"
        if name in self._samples:
            raise ValueError(f"{name} is held already")
        self._samples[name] = samples
        return describe_file(name, samples)

    def write(self, result: Path) -> None:
        """The files of the result in this file, and where they are; nothing where there are none. OSError."""
        directory = result.parent / DIRECTORY / result.stem
        for name, samples in self._samples.items():
            write(directory / name, samples)
        if self._samples:
            log_progress(f"raw nanoseconds: {os.path.relpath(directory)}")
