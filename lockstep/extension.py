"""The optional C extension of the Produce fast path: whether it is there, fits its source, and is enabled.

Invariants: never an extension that was built of another source than the one beside it; `LOCKSTEP_PURE=1`
turns it off; a broker without it is complete (decision 59). Does not: build it
(`requirements/build_extension.py`), or know what it does (`broker/produce/compiled_fast_path.py`).
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

VARIABLE: Final = "LOCKSTEP_PURE"
MODULE: Final = "lockstep.broker.produce._fast_path"
SOURCE: Final = Path(__file__).with_name("broker") / "produce" / "fast_path.c"
COMPILED: Final = "compiled Produce path"
PURE: Final = "pure Python"


def source_digest(source: Path = SOURCE) -> str:
    """The digest of the source that the extension is built of."""
    import hashlib  # `lockstep --help` must be instant

    return hashlib.sha256(source.read_bytes()).hexdigest()


@cache
def load() -> tuple[ModuleType | None, str]:
    """The extension, or None; and what runs, in words: with the reason where it is Python alone."""
    if os.environ.get(VARIABLE, "") not in ("", "0"):
        return None, f"{PURE} ({VARIABLE} is set)"
    try:
        module = importlib.import_module(MODULE)
    except ImportError:
        return None, f"{PURE} (the extension is not built)"
    if source_digest() != module.SOURCE_DIGEST:
        return None, f"{PURE} (the extension is built of another source: run `make extension`)"
    return module, COMPILED
