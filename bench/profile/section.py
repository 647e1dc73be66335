"""The section of docs/benchmarks.md about where the time goes. Measures nothing."""

from __future__ import annotations

from typing import Any

from bench.figures.tables import facts, with_failures
from bench.profile import stages, system_calls


def section(result: dict[str, Any]) -> str:
    """The section of docs/benchmarks.md about it."""
    parts = [
        "## Where the time of a group commit goes",
        "The event loop of the node that leads, sampled by py-spy while sixteen producers (*latency16*; one: "
        "*latency1*, where it was measured) write one record a request. With three nodes on this machine's "
        "cores, waiting includes that the others have the processor; so does the flush, which waits for the "
        "file system and the followers' flushes as well as for the device.",
        facts(result),
        stages.table(result, "github"),
    ]
    calls = system_calls.table(result, "github")
    if calls:
        parts += [
            "What the same thread did on a processor meanwhile, by the kernel's samples (perf); waiting for "
            "a flush or for work takes none.",
            calls,
        ]
    return with_failures(parts, result)
