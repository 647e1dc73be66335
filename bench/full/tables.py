"""The grid's tables: one for each workload and number of nodes, points down, targets across.

Owns the wording. Rounds speak for themselves (`rows`): what they do not agree on is marked, and nothing is
called behind another broker that lies within their spread.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from bench.baselines.targets import TARGETS
from bench.figures import kills, origins
from bench.figures.tables import text_table
from bench.figures.templates import fill_text
from bench.full.lookup import LOADS, MARK, Grid, doubt
from bench.full.rows import MESSAGES_MB, Row, is_apart, is_behind, median, values
from bench.machine.pauses import PAUSE_MS

_LATENCIES = (
    ("p50_ms", "ms", "p50"),
    ("p99_ms", "ms", "p99"),
    ("max_ms", "ms", "the longest answer (median of the rounds' longest)"),
)
BATCHES = ((MESSAGES_MB, "MB/s", "megabytes of messages answered a second"), *_LATENCIES)
"""The figures of cells whose requests carry batches: of unlike sizes, so that requests are not comparable."""
SHOWN = {
    "produce": (("requests_per_s", "/s", "requests answered a second"), *_LATENCIES),
    "drain": (("drained_gb_per_s", "GB/s", "read"), ("p99_ms", "ms", "the writer's p99")),
    "fan_out": (("mb_per_s", "MB/s", "read by all groups together"),),
    "idle": (
        ("requests_per_s", "/s", "requests a second of sixteen others"),
        ("kib_each_connection", "KiB", "resident memory that each connection adds"),
    ),
    "start": (
        ("first_ack_s", "s", "from the new process to its first acknowledgement"),
        ("first_start_s", "s", "a first start, in an empty directory"),
    ),
    "groups": (
        ("commits_requests_per_s", "/s", "offset commits a second"),
        ("rebalance_start_s", "s", "until a group of 50 has settled"),
        ("members_kib_each", "KiB", "resident memory that each idle member adds"),
    ),
    "failover": (("first_ack_s", "s", "from the kill to the next acknowledgement: median, worst, kills"),),
}
"""By kind: the figures of a cell, in order, with their units and what they are."""
NOTES = {
    "idle": "Kafka's memory is growth beyond a heap that is resident already.",
    "groups": "Kafka's memory is growth beyond a heap that is resident already. What was promised of offset "
    "commits is judged by another run, that of [one node](benchmarks/one_node.md).",
    "start": "Most of Kafka's first acknowledgement is its `broker.session.timeout.ms`, 9 s.",
    "failover": "Most of Kafka's is its `broker.session.timeout.ms`, 9 s.",
}
"""By kind: what a reader has to know."""
TIMED = ("produce", "drain", "idle")
"""Kinds whose blocks last as long as their workload's duration."""
SUBJECTS = {
    "lockstep": ("kafka", "kafka-flush", "kafka-tuned", "kafka-tuned-flush"),
    "lockstep-os": ("kafka", "kafka-tuned"),
}
"""The pairs that are compared: a Lockstep without flushes only with a Kafka without."""


def cell_figures(row: Row) -> tuple[tuple[str, str, str], ...]:
    """The figures of a row's cell: name, unit, words."""
    settings = row["settings"]
    return (
        BATCHES if settings["kind"] == "produce" and settings.get("batch_bytes") else SHOWN[settings["kind"]]
    )


def leading_figure(row: Row) -> str:
    """The figure whose rounds speak for a cell: the first, and at a rate that all keep to the p50."""
    name = cell_figures(row)[0][0]
    return "p50_ms" if name == "requests_per_s" and row["point"].get("rate") else name


def rows_too_far_apart(rows: list[Row]) -> list[Row]:
    """The rows whose rounds are too far apart."""
    return [row for row in rows if "error" not in row and doubt(row, leading_figure(row))]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(row: Row) -> str:
    if "error" in row:
        return "failed"
    mark = f" {MARK}" if doubt(row, leading_figure(row)) else ""
    if row["settings"]["kind"] == "failover" and row.get("rounds"):
        blocks = [block for block in row["rounds"] if block.get("proven", True)]
        return kills.words([block["figures"]["first_ack_s"] for block in blocks]) + mark
    found = [(median(row, name), unit) for name, unit, _ in cell_figures(row)]
    return ", ".join(f"{_figure(value)} {unit}" for value, unit in found if value is not None) + mark


def by_table(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    """The rows of each workload and number of nodes."""
    grouped: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row["workload"], row["nodes"]), []).append(row)
    return grouped


def _lines(rows: list[Row], targets: list[str]) -> list[list[str]]:
    """A line for each point, a cell for each target."""
    points: dict[tuple[tuple[str, int], ...], dict[str, str]] = {}
    for row in rows:
        point = tuple((axis, int(value)) for axis, value in row["point"].items())
        points.setdefault(point, {})[row["target"]] = _cell(row)
    return [
        [", ".join(f"{axis} {value:,}" for axis, value in point), *(cells.get(each, "") for each in targets)]
        for point, cells in sorted(points.items())
    ]


def tables(result: dict[str, Any]) -> list[str]:
    """One for each workload and number of nodes, with its notes below."""
    cells = [row for row in result["rows"] if row["settings"]["kind"] in SHOWN]
    found = []
    for (workload, nodes), rows in by_table(cells).items():
        targets = [name for name in TARGETS if any(row["target"] == name for row in rows)]
        lines = _lines(rows, targets)
        text = text_table(lines, ["", *targets])
        title = f"### {workload}, {nodes} node{'s' if nodes > 1 else ''}"
        note = _other_machine_note(rows[0]["machine"], result["machine"])
        said = (_visits(rows), _behind(rows), _fetches(rows), _pauses_note(rows))
        parts = (title, _about(rows[0], result["descriptions"]), note, text, *said)
        found.append("\n\n".join(part for part in parts if part))
    return found


def _about(row: Row, descriptions: dict[str, str]) -> str:
    """The description of a measurement and its figures."""
    kind = row["settings"]["kind"]
    about = descriptions.get(row["workload"], "")
    figures = ", ".join(words for _, _, words in cell_figures(row))
    said = (
        f"{about[:1].upper()}{about[1:]}." if about else "",
        f"Timed blocks of {row['settings']['minutes'] * 60:.2g} s." if kind in TIMED else "",
        f"In each cell: {figures}.",
        NOTES.get(kind, ""),
    )
    return " ".join(filter(None, said))


def _pairs(rows: list[Row], figure: str, ours: str, other: str) -> list[tuple[list[float], list[float]]]:
    """Both sides' rounds at each point where both have the figure. Rates that all keep to are no figures."""
    points: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        at_rate = figure == "requests_per_s" and row["point"].get("rate")
        if "error" not in row and not at_rate and (found := values(row, figure)):
            points.setdefault(json.dumps(row["point"]), {})[row["target"]] = found
    return [(each[ours], each[other]) for each in points.values() if ours in each and other in each]


def _behind_of(rows: list[Row], ours: str) -> str:
    """By which figures, and in how many points of a table, a Lockstep is behind which Kafka, beyond the
    rounds' spread; empty where there is nothing to compare."""
    said, compared = [], 0
    for figure, unit, words in cell_figures(rows[0]):
        lost_to = []
        for other in SUBJECTS[ours]:
            pairs = _pairs(rows, figure, ours, other)
            compared += len(pairs)
            lost = sum(is_behind(unit, *pair) for pair in pairs)
            lost_to += [f"`{other}` in {lost} of {len(pairs)}"] if lost else []
        said += [f"- {words}: behind {', '.join(lost_to)}"] if lost_to else []
    if not compared:
        return ""
    head = f"Points where `{ours}` is behind:" if said else f"`{ours}` is behind in no point."
    return "\n".join([head, "", *said] if said else [head])


def _behind(rows: list[Row]) -> str:
    """The losses in a table, for each Lockstep in it."""
    return "\n\n".join(filter(None, (_behind_of(rows, ours) for ours in SUBJECTS)))


def _fetches(rows: list[Row]) -> str:
    """The size of a fetch response, for a fan-out whose rows have it; empty for others."""
    sizes: dict[str, list[float]] = {}
    for row in rows:
        for block in row.get("rounds", ()):
            fetches = block.get("figures", {}).get("fetches")
            if row["settings"]["kind"] == "fan_out" and fetches:
                sizes.setdefault(row["target"], []).append(block["figures"]["bytes"] / fetches / 1000)
    if not sizes:
        return ""
    said = [f"`{name}` {statistics.median(sizes[name]):,.0f} KB" for name in TARGETS if name in sizes]
    return (
        "Readers ask with Kafka's default, fetch.min.bytes=1: each broker answers when it likes. Answered a "
        f"fetch (median over the rounds): {', '.join(said)}. A reader that asks for more at once would spare "
        "Kafka some of this; that was not measured."
    )


def _pauses_note(rows: list[Row]) -> str:
    """In which cells the machine itself stood still, and for how long; empty for none."""
    found = []
    for row in rows:
        longest = max((block.get("longest_pause_ms", 0.0) for block in row.get("rounds", ())), default=0.0)
        if longest >= PAUSE_MS:
            found.append(f"{row['cell'].partition('/')[2]} ({longest:.0f} ms)")
    return f"The whole machine stood still in {', '.join(found)}." if found else ""


def _visits(rows: list[Row]) -> str:
    """The targets of a table that were not measured in turns; empty where all were."""
    starts: dict[str, set[str]] = {}
    for row in rows:
        starts.setdefault(str(row["started"])[:16], set()).add(row["target"])
    if len(starts) == 1:
        return ""
    said = [
        f"{', '.join(f'`{name}`' for name in TARGETS if name in names)} at {each}"
        for each, names in sorted(starts.items())
    ]
    return f"Not all measured in turns: {'; '.join(said)}."


def _other_machine_note(machine: dict[str, Any], newest: dict[str, Any]) -> str:
    """The note on a table of another machine than the newest cells; empty for others."""
    found = [f"{name}: {machine[name]}" for name in origins.differing_facts(machine, newest)]
    return f"Measured elsewhere, {', '.join(found)}." if found else ""


POINT = {"partitions": 16, "producers": 16, "rate": 0}
FIGURES = {
    "cpu_s_per_million_records": "CPU s per million records",
    "rss_max_mb": "resident memory, highest, MB",
    "flushes_per_mb": "flushes per MB",
    "device_bytes_per_byte": "device bytes per byte",
}
"""Of a row's medians, and the heads of their columns."""


def _cost_figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cost_rows(result: dict[str, Any]) -> list[list[str]]:
    """A line for each number of nodes, load and broker that was measured at `POINT` with messages of 1 KB."""
    grid = Grid(result)
    found = []
    for nodes in (1, 3):
        for load, words in LOADS.items():
            for target in TARGETS:
                row = grid.row(f"{load}-1kb", nodes, target, **POINT)
                if row is None or "cpu_s_per_million_records" not in row["medians"]:
                    continue
                mark = " ~" if is_apart(row, "requests_per_s") else ""
                figures = [_cost_figure(row["medians"].get(name)) for name in FIGURES]
                found.append([str(nodes), words, f"`{target}`{mark}", *figures])
    return found


def cost_section(result: dict[str, Any]) -> str:
    """The table, and how it is to be read; empty without rows."""
    found = cost_rows(result)
    if not found:
        return ""
    heads = ["nodes", "load", "broker", *FIGURES.values()]
    table = text_table(found, heads)
    return fill_text("cost", table=table).strip()
