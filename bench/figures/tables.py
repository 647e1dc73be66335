"""The common tables of all kinds of results: medians and ratios, the blocks that wrote, the facts.

Measures nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate

from bench.machine.pauses import PAUSE_MS


def text_table(rows: Sequence[Sequence[object]], heads: Sequence[str], style: str = "github") -> str:
    """The rows as text, numbers as they are; empty without rows."""
    return tabulate(rows, headers=heads, tablefmt=style, disable_numparse=True) if rows else ""


def number(value: float | None) -> str:
    """Three digits that count; empty for none."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _has_intervals(result: dict[str, Any]) -> bool:
    return any("noise" in row for row in result["comparison"])


def interval(row: dict[str, Any]) -> list[str]:
    """The ends of the interval, and how far the same broker was from itself."""
    low, high, noise = (row.get(name) for name in ("low", "high", "noise"))
    return ["" if low is None else f"{low:.2f} to {high:.2f}", "" if noise is None else f"{noise:.2f}"]


def verdict(row: dict[str, Any]) -> str:
    """ "yes" if the goal is met; a question mark where the interval holds its bound."""
    met = {True: "met", False: "MISSED", None: ""}[row.get("met")]
    return f"{met}?" if met and row.get("low") is not None and not row["sure"] else met


def _rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    wide = _has_intervals(result)
    for row in result["comparison"]:
        if row["value"] is None:
            blank = ["", ""] if wide else []
            rows.append([row["title"], "", "", "no figures", *blank, row["goal"], "MISSED"])
            continue
        title = row["title"]
        if row.get("baseline_growth"):
            title += f" ({result['baseline']}'s own: {row['baseline_growth']:.2f})"
        of_own = ", the bound" if row.get("bound") else ", our own" if "baseline_growth" in row else ""
        rows.append(
            [
                f"{title}, {row['unit']}",
                number(row["subject"]),
                number(row["baseline"]) + of_own,
                f"{row['value']:.2f}",
                *(interval(row) if wide else []),
                row.get("goal", ""),
                verdict(row),
            ]
        )
    return rows


def _headers(result: dict[str, Any]) -> list[str]:
    sides = [result["subject"], result["baseline"]]
    if sides[0] == sides[1]:
        sides = [f"{sides[0]} B", f"{sides[1]} A"]
    wide = ["95 %", "A/A"] if _has_intervals(result) else []
    return ["", *sides, "ratio", *wide, "goal", ""]


def table(result: dict[str, Any], style: str = "simple") -> str:
    """Medians and ratios of one run."""
    return tabulate(
        _rows(result),
        headers=_headers(result),
        tablefmt=style,
        colalign=("left", "right", "right", "right", *["left"] * (len(_headers(result)) - 4)),
        disable_numparse=True,
    )


def written_blocks(result: dict[str, Any]) -> list[tuple[tuple[str, str, str], list[dict[str, Any]]]]:
    """The blocks that wrote, all sessions' together, by (name, policy, side), in order."""
    seen: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for session in result["sessions"]:
        for block in session["blocks"]:
            if "device" in block:
                seen.setdefault((block["name"], block["policy"], session["side"]), []).append(block)
    return sorted(seen.items())


def written_table(result: dict[str, Any], style: str = "simple") -> str:
    """Flushes per acknowledged write of every kind of block (the proof behind the word durable), CPU, what
    reached the device and how long the longest answer took.

    Where the client used all of one CPU it, and not the broker, may be what was measured.
    """
    rows = []
    with_clients = all("client_cpu_share" in each for _, blocks in written_blocks(result) for each in blocks)
    for (name, policy, side), blocks in written_blocks(result):
        writes = sum(block["writes"] for block in blocks)
        flushes = sum(block["device"]["flushes"] for block in blocks)
        spent_ms = sum(block["device"]["flush_ms"] for block in blocks)
        cpu = sum(block["broker_cpu_s"] for block in blocks) / writes * 1e6
        mean = f"{spent_ms / flushes:.2f}" if flushes else ""
        device_kb = sum(block["device"]["write_bytes"] for block in blocks) / writes / 1000
        longest = max((block["figures"].get("max_ms", 0.0) for block in blocks), default=0.0)
        line = [name, policy, result[side], f"{writes:,}", f"{flushes / writes:.3f}", mean, number(device_kb)]
        line += [f"{cpu:.0f}", number(longest) if longest else ""]
        if with_clients:
            line.append(f"{statistics.median(block['client_cpu_share'] for block in blocks):.0%}")
        rows.append(line)
    heads = ["block", "policy", "broker", "writes", "flushes/write", "ms/flush", "device KB/write"]
    heads += ["broker CPU us/write", "longest answer, ms"]
    heads += ["client, of a CPU"] if with_clients else []
    return text_table(rows, heads, style)


def reservations(result: dict[str, Any]) -> str:
    """The reservations about a run's figures, a line each: other work on the machine, warm-ups that ended
    before the compiler was quiet, blocks that were tried again, and sessions that ended early."""
    sessions = result["sessions"]
    lines = []
    shares: dict[str, list[float]] = {}
    stolen = [0.0]
    for session in sessions:
        for block in session["blocks"]:
            if "foreign_cpu_share" in block:
                shares.setdefault(result[session["side"]], []).append(block["foreign_cpu_share"])
                stolen.append(block["stolen_cpu_share"])
    if shares:
        said = [
            f"{statistics.median(each):.0%} in the median block of {name}'s and {max(each):.0%} in the worst"
            for name, each in sorted(shares.items())
        ]
        lines.append(
            "- beside broker and client, other work (the kernel's included) used this much of a CPU: "
            f"{', '.join(said)}; the hypervisor took {max(stolen):.0%} at most"
        )
    paused = [
        block["longest_pause_ms"]
        for session in sessions
        for block in session["blocks"]
        if block.get("longest_pause_ms", 0.0) >= PAUSE_MS
    ]
    if paused:
        lines.append(
            f"- the whole machine stood still for {PAUSE_MS:.0f} ms or more in {len(paused)} blocks, for "
            f"{max(paused):.0f} ms at most: the longest answers there are its own"
        )
    warmed = [session["warmup"] for session in sessions if session.get("warmup")]
    busy = [each["compiler_share_at_end"] for each in warmed if not each["settled"]]
    if busy:
        lines.append(
            f"- {len(busy)} of {len(warmed)} sessions were measured while compiler threads still used up to "
            f"{max(busy):.0%} of a CPU: their warm-up had come to its end"
        )
    tried = [note.splitlines()[0] for session in sessions for note in session.get("again", ())]
    if tried:
        lines.append(f"- tried once more: {'; '.join(tried)}")
    return "\n".join(lines)


def machine_lines(result: dict[str, Any]) -> list[str]:
    """Machine, disk and versions of a run, a line each."""
    machine = result["machine"]
    disk = machine["disk"]
    return [
        f"- {machine['processor']}, {machine['cpus']} CPUs, {machine['memory_gb']} GB, "
        f"kernel {machine['kernel']}",
        f"- {machine['file_system']} on {disk['device']}: write cache {disk.get('write_cache', 'unknown')}, "
        f"scheduler {disk.get('scheduler', 'unknown')}",
        f"- Python {machine['python']}, {machine['java']}, Apache Kafka {machine['kafka']}",
    ]


def code_line(result: dict[str, Any]) -> str:
    """The commit of the result, or the number of rows by commit."""
    commits = result.get("commits", {})
    if len(commits) > 1:
        counted = ", ".join(f"{name} ({count})" for name, count in commits.items())
        return f"- rows of {len(commits)} commits, newest first: {counted}; the last row {result['started']}"
    dirty = " (with uncommitted changes)" if result["code"]["dirty"] else ""
    dirty += ", compiled modules (`make native`)" if result["code"].get("native") else ""
    dirty += f", {path}" if (path := result["code"].get("produce_path")) else ""
    return f"- commit {result['code']['commit'][:12]}{dirty}, {result['started']}"


def facts(result: dict[str, Any]) -> str:
    """Machine, code and command of a run."""
    lines = [*machine_lines(result), code_line(result), f"- `{result['command']}`"]
    for key, what in (("touched", "touched before, and free again"), ("kept", "kept in the page cache")):
        found = result.get(f"memory_{key}", {})
        if found.get("gb"):
            lines.append(
                f"- {found['gb']} GB of free memory was {what}: {found['ms_per_mb_highest']} ms a megabyte "
                f"in the dearest piece, {found['ms_per_mb_lowest']} in the cheapest"
            )
    return "\n".join(lines)


def join_parts(parts: Iterable[str]) -> str:
    """A section of these parts, the empty ones left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def failure_note(result: dict[str, Any]) -> str:
    """A note of what failed; empty where nothing did."""
    said = "; ".join(text.splitlines()[0] for text in result["failures"])
    return f"Failed: {said}" if said else ""
