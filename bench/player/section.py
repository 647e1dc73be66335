"""The section of docs/benchmarks/ on the player. Owns the wording; measures nothing."""

from __future__ import annotations

from typing import Any

from bench.figures.tables import facts, join_parts, reservations, table
from bench.player.points import FULL
from bench.player.tables import summary

KIND, ALONE = "player", "player_stalled"
"""Of results: all of it, or `python -m bench player stalled`."""
PICTURE = "player.svg"
"""Beside the page: `python -m bench player --plot RESULT.json --picture docs/player.svg`."""


def section(result: dict[str, Any]) -> str:
    """Seed 000's figures 9 to 13, and ours."""
    axes = result["axes"]
    failed = [f"- {failure}" for failure in result["failures"]]
    late = [f"- {note}" for note in result["notes"]]
    parts = [
        "## The player (seed 000's experiments)",
        facts(result),
        reservations(result),
        f"![Seed 000's figures 9 to 13, recoveries, dummies]({PICTURE})",
        "*How to read this.* Three durable nodes of one kind at a time: replication factor 3, every write "
        "flushed before it is acknowledged (Kafka: `flush.messages=1`, its transaction and offset logs "
        "flushed too). A transaction of k KB is k key-values of 1 KB, each for one of the targets. Writer, "
        "players and targets are on this machine and share its clock; all targets of a run are in one "
        "process, on both sides. Writers, and Kafka's consumers, are librdkafka through confluent-kafka, "
        "without linger. *Apply delay*: from just before the append is sent until a target has received its "
        "part; *LogPlayer delay*: from just before the player processes the entry. One sample for each "
        "transaction and target; medians over the rounds. Closed loop: the next append begins when the "
        f"one before is acknowledged; open loop: {axes['rate']:g} transactions/s on every side. `grpc` and "
        "`raw` are players in the broker that leads the log; `remote` is one in a process of its own that "
        "reads as a client does; `stored` ends when SQLite has it durably, instead of when it is "
        "received. `two_level` is Kafka twice, with a player between: "
        f"{axes['two_level_transactions']:,} transactions, each appended as soon as the one before is "
        "acknowledged.",
        summary(result, "github"),
        "### Against Kafka\n\n"
        f"At {len(FULL.points)} points; goals are for the open loop.\n\n{table(result, 'github')}",
        "\n".join(["Open loops that did not keep their rate:", "", *late]) if late else "",
        "\n".join(["Failed:", "", *failed]) if failed else "",
    ]
    return join_parts(parts)


def stalled_section(result: dict[str, Any]) -> str:
    """`python -m bench player stalled`, where the rest was measured in another run."""
    parts = [
        "## The player while a target stands still",
        "One durable node and four targets, the last in a process of its own, which is stopped (SIGSTOP) for "
        "as long as is written; then it goes on, and must get all that it has missed, once and in order. "
        "Blocks without and with it take turns. Memory is that of a player in a process of its own.",
        facts(result),
        reservations(result),
        summary(result, "github"),
        table(result, "github"),
    ]
    return join_parts(parts)
