"""The sections of the pages, but the grid's (`bench.full.section`): what their texts (`bench/texts`) need."""

from __future__ import annotations

import statistics
from typing import Any

from tabulate import tabulate

from bench.figures import contention as contended
from bench.figures import kills
from bench.figures.ratios import medians
from bench.figures.tables import number, text_table, written_blocks
from bench.figures.templates import fill_text
from bench.growth import steps
from bench.growth.axes import FLAT, RATE
from bench.growth.steps import EXPLAINED
from bench.kinds import feed as feeds
from bench.kinds.headline import GOALS, RATIOS
from bench.logstore import tables as logstores
from bench.micro import history
from bench.player import tables as players
from bench.player.points import FULL
from bench.profile import stages, system_calls
from bench.settings import FLUSH, OS, RECORD_BYTES
from bench.spark import figures as sparks

Result = dict[str, Any]
MEMORY = "memory.max"
WHY = "[decision 30](decisions/0030-tried-for-speed.md)"


def _blocks(result: Result) -> list[Result]:
    return [block for session in result["sessions"] for block in session["blocks"]]


# --- the headline ------------------------------------------------------------------------------------------


def _length(nodes: str, sizes: Result) -> str:
    """The length of the blocks of throughput. Args: nodes: their number."""
    measured = sorted({f"{each:,}" for each in sizes["produce_records"].values()})
    where = "one node" if nodes == "1" else f"{nodes} nodes"
    words = f"on {where} {' or '.join(measured)} records of 1 KB are measured"
    if sizes.get("client_warmup_records"):
        words += f" after a warm-up of {sizes['client_warmup_records']:,}"
    if nodes == "1" and "small_warmup_records" in sizes:
        words += f", {sizes['small_records']:,} of 100 bytes after one of {sizes['small_warmup_records']:,}"
    return words


def _raw(result: Result) -> str:
    """The place of the single latencies, as a sentence; empty where none was kept."""
    samples = sum(block["raw"]["samples"] for block in _blocks(result) if "raw" in block)
    said = (
        f" Each of the {samples:,} latencies is kept in nanoseconds, in a file a block, on the machine that "
        "measured; the result has the files' names and SHA-256."
    )
    return said if samples else ""


def _fetches(result: Result) -> str:
    """The size of a fetch response of the fan-out, in brackets; empty where it was not kept."""
    sizes: dict[str, list[float]] = {}
    for session in result["sessions"]:
        for block in session["blocks"]:
            if block["name"] == "fan_out" and block["figures"].get("fetches"):
                kilobytes = block["figures"]["bytes"] / block["figures"]["fetches"] / 1000
                sizes.setdefault(result[session["side"]], []).append(kilobytes)
    said = ", ".join(f"{name} {statistics.median(each):,.0f} KB" for name, each in sorted(sizes.items()))
    words = "readers use Kafka's default, fetch.min.bytes=1; median size of a response"
    return f" ({words}: {said})" if said else ""


def _first_starts(result: Result) -> str:
    """The duration of the baseline's first starts, as a sentence; empty where none was kept."""
    sessions = [each for each in result["sessions"] if each["side"] == "baseline" and each.get("nodes") == 1]
    took = [session["start_s"] for session in sessions if "start_s" in session]
    return f" First starts of Kafka's sessions took {min(took):.1f} to {max(took):.1f} s." if took else ""


def _pair_count(result: Result) -> str:
    """The number of pairs of the ratios."""
    rounds = sorted({each["rounds"] for each in result["sizes"].values()})
    pairs = sorted({len(row["pairs"]) for row in result["comparison"] if "pairs" in row})
    counted = f"{' and '.join(map(str, pairs))} of them"
    if pairs and pairs[0] < rounds[0]:
        counted += f", because a session failed; {' and '.join(map(str, rounds))} were planned"
    return counted


def met(result: Result) -> str:
    """The number of goals met, and those without figures."""
    judged = [row for row in result["comparison"] if "goal" in row]
    named = {row["ratio"] for row in judged}
    absent = [RATIOS[goal.ratio].title for goal in GOALS if goal.ratio not in named]
    said = f"{sum(row['met'] for row in judged)} of {len(GOALS)} goals met; the reasons of the missed: {WHY}."
    return said + (f" No figures, and so not met: {'; '.join(absent)}." if absent else "")


def headline(result: Result) -> str:
    """The figures the project is judged by."""
    return fill_text("headline", result, pairs=_pair_count(result))


def headline_details(result: Result) -> str:
    """The method of the headline, and the cost of its blocks."""
    return fill_text(
        "headline_details",
        result,
        blocks="; ".join(_length(name, each) for name, each in result["sizes"].items()),
        properties=", ".join(
            f"{name}={value}" for name, value in result.get("producer_properties", {}).items()
        ),
        raw=_raw(result),
        fetches=_fetches(result),
        first_starts=_first_starts(result),
    )


# --- one node and three ------------------------------------------------------------------------------------


def one_node(result: Result) -> str:
    """One broker against one broker."""
    said = memory(result)
    return fill_text("one_node", result, memory=f" {said}" if said else "")


def memory(result: Result) -> str:
    """Lowest and highest of the sessions' memory; empty without."""
    rows = [row for row in result["comparison"] if row.get("ratio") == MEMORY and row["value"] is not None]
    ends = [
        f"{result[side]} {number(min(row[f'{side}_values']))} to {number(max(row[f'{side}_values']))} MB"
        for row in rows
        for side in ("subject", "baseline")
    ]
    return f"Memory is the highest of each session that serves every row: {', '.join(ends)}." if ends else ""


def nodes3(result: Result) -> str:
    """Three nodes against three nodes."""
    heads = ["block", "policy", "brokers", "writes", "flushes/write", "commits", "flushes/replica and commit"]
    heads += ["device bytes/client byte", "brokers' CPU us/write"]
    blocks = text_table(_written_rows(result), heads)
    return fill_text("nodes3", result, kills=_kills(result), blocks=blocks, disk=_lost_to_the_disk(result))


def _kills(result: Result) -> str:
    """Each side's kills of a leader: median, worst, how many; empty where none was measured."""
    lines = [
        [row["title"], kills.words(row["subject_values"]), kills.words(row["baseline_values"])]
        for row in result["comparison"]
        if str(row.get("ratio", "")).startswith("loss.") and row["value"] is not None
    ]
    return text_table(lines, ["", result["subject"], result["baseline"]])


def _lost_to_the_disk(result: Result) -> str:
    """The part of flushes in one producer's loss; empty where not all was measured."""
    p50 = {
        (policy, result[side]): statistics.median(block["figures"]["p50_ms"] for block in blocks)
        for (name, policy, side), blocks in written_blocks(result)
        if name == "latency1_1"
    }
    if not p50.keys() >= {(FLUSH, "lockstep"), (OS, "lockstep"), (OS, "kafka")}:
        return ""
    flushed, plain, shipped = p50[FLUSH, "lockstep"], p50[OS, "lockstep"], p50[OS, "kafka"]
    cause = "what it loses is the disk's" if plain <= shipped else "what it loses is not the disk's alone"
    return fill_text(
        "disk", cause=cause, plain=plain, flushed=flushed, more=flushed - plain, shipped=shipped
    ).strip()


def _written_rows(result: Result) -> list[list[str]]:
    rows = []
    for (name, policy, side), blocks in written_blocks(result):
        writes = sum(block["writes"] for block in blocks)
        flushes = sum(block["device"]["flushes"] for block in blocks)
        client = RECORD_BYTES * sum(block["figures"]["total_records"] for block in blocks)
        device = sum(block["device"]["write_bytes"] for block in blocks)
        commits = sum(block.get("group_commits", 0) for block in blocks)
        each = [block["flushes_per_replica_and_commit"] for block in blocks if "group_commits" in block]
        cpu = sum(block["broker_cpu_s"] for block in blocks) / writes * 1e6
        row = [name, policy, result[side], f"{writes:,}", f"{flushes / writes:.3f}"]
        row += [f"{commits:,}" if commits else ""]
        row += [f"{sum(each) / len(each):.2f}" if each and policy == FLUSH else ""]
        rows.append([*row, f"{device / client:.2f}", f"{cpu:.0f}"])
    return rows


def transactions(result: Result) -> str:
    """Three nodes against three nodes, one transaction after another."""
    rows = [
        [name, result[side], f"{found['p50_ms']:.2f}", f"{found['commit_p50_ms']:.2f}"]
        for (name, _, side), blocks in written_blocks(result)
        for found in [medians(block["figures"] for block in blocks)]
    ]
    heads = ["block", "brokers", "begin to committed, p50 ms", "commit alone, p50 ms"]
    return fill_text("transactions", result, blocks=text_table(rows, heads))


def atomic(result: Result) -> str:
    """One Produce request that is taken as a whole, against a transaction over the same partitions."""
    rows = []
    for (name, _, side), blocks in written_blocks(result):
        writes = sum(block["writes"] for block in blocks)
        commits = sum(block.get("group_commits", 0) for block in blocks)
        flushes = sum(block["device"]["flushes"] for block in blocks)
        cpu = sum(block["broker_cpu_s"] for block in blocks) / writes * 1e6
        found = medians(block["figures"] for block in blocks)
        latencies = [f"{found[each]:.2f}" for each in ("p50_ms", "p99_ms")]
        entries = f"{commits / writes:.2f}" if commits else ""
        rows.append([name, result[side], *latencies, f"{flushes / writes:.1f}", entries, f"{cpu:.0f}"])
    heads = [
        "block",
        "brokers",
        "p50 ms",
        "p99 ms",
        "flushes each",
        "log entries each",
        "brokers' CPU us each",
    ]
    return fill_text("atomic", result, blocks=text_table(rows, heads))


# --- Lockstep alone ----------------------------------------------------------------------------------------


def contention(result: Result) -> str:
    """Clients that want the same few accounts."""
    return fill_text(
        "contention",
        result,
        table=contended.table(result, "github"),
        least=contended.LEAST_SHARE,
        most=contended.MOST_MEAN_WAITS,
        forgiven=contended.FORGIVEN_WAIT_S,
    )


def feed(result: Result) -> str:
    """The cost of bodies for readers that do not open them."""
    return fill_text("feed", result, table=feeds.table(result, "github"))


def tls_cost(result: Result) -> str:
    """SASL_SSL against PLAINTEXT, on both brokers."""
    told = {(each["tls"]["version"], each["tls"]["cipher"]) for each in result["sessions"] if "tls" in each}
    said = " and ".join(f"{version} with {cipher}" for version, cipher in sorted(told))
    return fill_text("secured", result, tls=said)


def growth(result: Result) -> str:
    """The growth of cost; steps of before something was measured are named."""
    connections, logs = (result["steps"].get(name, []) for name in ("connections", "log_gib"))
    unwritten = [f"{step['value']:,}" for step in logs if "loaded_rss_mb" not in step["figures"]]
    apart, noisy = steps.far_apart(result), steps.disturbed_steps(result)
    notes = [
        "For connections, resident MB and the idle CPU are those of a node whose connections had been closed "
        "again: these steps were measured before that was fixed."
        if any("held_connections" not in step["figures"] for step in connections)
        else "",
        f"Nothing was written to the logs of {', '.join(unwritten)} GiB after their reads: these steps were "
        "measured before these writes existed, and are in no row of them."
        if unwritten
        else "",
        "The two rounds of these steps are far apart, so that their median is typical of neither: "
        f"{'; '.join(apart)}. Each has one wait of unknown cause, which a closed loop would hardly "
        "show."
        if apart
        else "",
        f"Other work disturbed these steps: {', '.join(noisy)}." if noisy else "",
    ]
    words = {"rate": RATE, "flat": FLAT, "explained": EXPLAINED, "notes": "\n\n".join(filter(None, notes))}
    return fill_text("growth", result, table=steps.table(result, "github"), **words)


def logstore(result: Result) -> str:
    """Seed 001's figure 7, and ours."""
    repeated = sum(bool(run["figures"].get("repeated")) for run in result["runs"])
    failed = len(result["failures"])
    notes = [f"{repeated} of {len(result['runs'])} runs failed once and were repeated."] if repeated else []
    notes += [f"{failed} runs failed twice and are left out."] if failed else []
    return fill_text(
        "logstore",
        result,
        cap=result["stream_bytes_per_s"] / 1e6,
        seeds=tabulate(
            list(logstores.SEEDS_HEADLINES.items()), headers=["figure", "the seed"], tablefmt="github"
        ),
        summary=logstores.summary(result, "github"),
        notes="\n\n".join(notes),
    )


def profile(result: Result) -> str:
    """The time of a group commit by stage."""
    calls = system_calls.table(result, "github")
    note = (
        "The kernel's samples (perf) show what the same thread did on a processor; a wait for a flush or for "
        "work uses no processor."
    )
    table = stages.table(result, "github")
    return fill_text("profile", result, table=table, calls=f"{note}\n\n{calls}" if calls else "")


def spark(result: Result) -> str:
    """Spark over both brokers, and both of our ends beside Spark's own."""
    pairs = {len(each) for name, each in result["seconds"].items() if name.startswith("source.")}
    note = (
        "The epochs of a stream have 1,000 small rows each. Exactly-once takes more than the commit: the "
        "sink's writers are Python processes, which Spark starts for each epoch, and stage their rows first."
    )
    small = sparks.epochs(result, "github")
    return fill_text(
        "spark",
        result,
        table=sparks.table(result, "github"),
        pairs=" and ".join(map(str, sorted(pairs))) or "none",
        epochs=f"{note}\n\n{small}" if small else "",
    )


def player(result: Result) -> str:
    """Seed 000's figures 9 to 13, and ours."""
    notes = [
        "\n".join([head, "", *(f"- {each}" for each in result[name])])
        for name, head in (("notes", "Open loops that did not keep their rate:"), ("failures", "Failed:"))
        if result[name]
    ]
    summary, points = players.summary(result, "github"), len(FULL.points)
    return fill_text("player", result, summary=summary, points=points, notes="\n\n".join(notes))


def player_stalled(result: Result) -> str:
    """`python -m bench player stalled`, where the rest was measured in another run."""
    return fill_text("player_stalled", result, summary=players.summary(result, "github"))


def micro(result: Result) -> str:
    """The cost of single steps, and the commits that changed it."""
    records = result["records"]
    factor = history.machine_factor(records[-1], records[0])
    slower = [str(each) for each in history.regressions(records)]
    return fill_text(
        "micro",
        result,
        facts=history.facts(result),
        table=history.table(records),
        speed=f": {factor:.2f} times as long in the newest record as in the first" if factor else "",
        slower=history.SLOWER,
        faster=1 / history.SLOWER,
        window=history.WINDOW,
        regressions=f"Slower now: {'; '.join(slower)}." if slower else "Nothing is slower now.",
    )
