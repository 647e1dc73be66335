"""The time of a group commit by stage: samples of the broker's threads, split into stages. Pure.

Owns: which function belongs to which stage. A sample counts for the innermost frame that any rule names, so
that what a stage calls counts for it. The event loop's thread is split whole; flushes on a thread of their
own, which a slow disk gets, are a stage beside it. Where no frame of ours is on the stack the loop itself
runs, or waits: the thread's CPU time shows how much of that was work. Input: py-spy's folded stacks,
made with `--threads --idle`; native frames would name more and slow the broker to a third.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from bench.figures.tables import text_table

PARSE, VALIDATE, APPEND, FLUSH_WAIT = "parse", "validate", "append", "flush wait"
REPLICATE, REPLY, WAITING, REST = "replicate", "reply", "waiting for work", "rest of the loop"
FLUSH_THREAD: Final = "flush wait, on its thread"
STAGES: Final = (PARSE, VALIDATE, APPEND, FLUSH_WAIT, REPLICATE, REPLY, REST, WAITING)
MEANING: Final = {
    PARSE: "frames, headers, decoding",
    VALIDATE: "batch headers, checksums, limits, sequences, locks",
    APPEND: "the open frame, writes to the log, index, tail cache",
    FLUSH_WAIT: "fdatasync on the loop",
    REPLICATE: "the Raft core, messages to peers and back, applying",
    REPLY: "waiters, encoding, writes to sockets",
    REST: "the event loop between our functions: calling them, buffers, reads from sockets",
    WAITING: "nothing to do",
    FLUSH_THREAD: "fdatasync on a thread, as the disk was slow; the loop goes on",
}

_FRAME = re.compile(r"^(?P<function>.*) \((?P<path>.*?)(:\d+)?\)$")
_COUNTED = re.compile(r"(?P<stack>.*) (?P<count>[0-9]+)", re.DOTALL)
_THREAD = re.compile(r"^thread \(\d+\):(?: (?P<name>.*))?$")
_RULES: Final = (
    # (pattern over "function path", stage); the first that fits a frame decides
    (r".*\.fdatasync |LogWriter\.flush |Flusher\._flush ", FLUSH_WAIT),
    (r"Connection\.(write_out|on_response|_queue_output) |Connections\.(_send|send_now|send_later) ", REPLY),
    (r".*[ /]broker/network/response_encoder\.py", REPLY),
    (
        r".*\.(_on_committed|_await_commits) .*broker/produce/|.*[ /]storage/waiters\.py|"
        r"notify .*storage/log_group\.py|on_progress ",
        REPLY,
    ),
    (r"encode.*[ /]protocol/", REPLY),
    (
        r".*[ /]storage/((raft|peers)/|(append_codec|snapshot_transfer|applier|state_machines)\.py)",
        REPLICATE,
    ),
    (r"Replica\.(receive|_post|_report_flushed) ", REPLICATE),
    (r".*[ /]storage/", APPEND),
    (
        r".*[ /]broker/(produce|locks|fetch)/|.*[ /]broker/requests/errors\.py|.*[ /]protocol/records/",
        VALIDATE,
    ),
    (r".*[ /]broker/[^/]+/api/|.*[ /]broker/metadata/leader_epoch_check\.py", VALIDATE),
    (r".*[ /]protocol/|.*[ /]broker/requests/router\.py|.*[ /]broker/network/", PARSE),
)
_COMPILED: Final = tuple((re.compile(pattern), stage) for pattern, stage in _RULES)


def stage_of(frames: list[str]) -> str:
    """The stage of one stack, outermost frame first."""
    for frame in reversed(frames):
        found = _FRAME.match(frame)
        if found is None:
            continue
        words = f"{found['function']} {found['path']}"
        for pattern, stage in _COMPILED:
            if pattern.match(words):
                return stage
    return REST


def stacks(folded: str) -> Iterator[tuple[str, int]]:
    """Each folded stack, with its samples.

    A frame's name may hold newlines: a stack ends with the line that ends with a count. One that is cut short
    by the end of the file has none, and is left out.
    """
    pieces = ""
    for line in folded.split("\n"):
        found = _COUNTED.fullmatch(line)
        if found is None:
            pieces += line
        else:
            yield pieces + found["stack"], int(found["count"])
            pieces = ""


def split(folded: str) -> Counter[str]:
    """Samples by stage. ValueError where the stacks do not name their threads."""
    counted: Counter[str] = Counter()
    for stack, count in stacks(folded):
        thread, *frames = stack.split(";")
        named = _THREAD.match(thread)
        if named is None:
            raise ValueError(f"a stack without its thread's name: {thread!r}; py-spy needs --threads")
        name = named["name"] or ""  # a thread that just begins or ends has none
        if name == "MainThread":
            counted[stage_of(frames)] += count
        elif "-flush" in name and any(frame.startswith("Flusher._flush ") for frame in frames):
            counted[FLUSH_THREAD] += count
    return counted


def per_commit(counted: Counter[str], cpu_share: float, microseconds: float) -> dict[str, float]:
    """Microseconds of each stage in one group commit.

    Args:
        cpu_share: of the clock, that the event loop's thread was given a processor.
        microseconds: of the clock, for one commit.
    """
    total = sum(count for stage, count in counted.items() if stage != FLUSH_THREAD)
    if not total:
        raise ValueError("no samples of the event loop")
    shares = {stage: counted[stage] / total for stage in (*STAGES, FLUSH_THREAD)}
    working = sum(shares[stage] for stage in STAGES if stage not in (FLUSH_WAIT, REST))
    loop = shares[REST]
    shares[REST] = min(loop, max(0.0, cpu_share - working))
    shares[WAITING] = loop - shares[REST]
    return {stage: share * microseconds for stage, share in shares.items() if share}


def table(result: dict[str, Any], style: str = "simple") -> str:
    """A column for each split of a profile result: microseconds of a group commit, and shares of the loop."""
    splits = result["splits"]
    heads = ["stage", *(f"{each['nodes']} node(s), {each['work']}" for each in splits), ""]
    rows = []
    for stage in (*STAGES, FLUSH_THREAD):
        if not any(stage in each["per_commit_us"] for each in splits):
            continue
        cells = []
        for each in splits:
            taken, whole = each["per_commit_us"].get(stage), each["commit_us"]
            cells.append("" if taken is None else f"{taken:,.1f} us ({taken / whole:.0%})")
        rows.append([stage, *cells, MEANING[stage]])
    rows.append(["one group commit", *(f"{each['commit_us']:,.1f} us" for each in splits), "by the clock"])
    rows.append(["writes in it", *(f"{each['writes_per_commit']:.1f}" for each in splits), ""])
    rates = [[each.get(name) for each in splits] for name in ("requests_per_s", "requests_per_s_alone")]
    for rate, meaning in zip(rates, ("while it was sampled", "without a sampler"), strict=True):
        shown = ["" if each is None else f"{each:,.0f}" for each in rate]
        rows += [["requests/s", *shown, meaning]] if any(shown) else []
    return text_table(rows, heads, style)
