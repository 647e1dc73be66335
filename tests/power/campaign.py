"""The power-loss campaign: runs on fresh disks, its evidence, and the control that shows it can fail.

Owns: the command line, docs/evidence/power.json (added to after every few runs; `--resume` counts those
recorded for the same source and shape), and what is kept of an unsound run. Ends with 1 on any acknowledged
loss. `--control` runs on disks that lie about flushes, and ends with 0 only if it sees records lost.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from compat_tests.targets import TargetFailed
from tests.campaigns import evidence
from tests.campaigns.disk_full import NotPossible
from tests.power.nodes import Nodes
from tests.power.run import PARTITIONS, Result, Run
from tests.power.volume import Loss

CAMPAIGN = "power"
RUNS_PER_DISK = 5
CONTROL_RUNS = 10
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "lockstep.segment.bytes": str(1 << 20),
    "message.max.bytes": "500000",
    "lockstep.spare.segments": "1",
}
"""Segments so small that some are made and reused in every run."""
KEPT = evidence.ROOT / ".cache" / "power"


class Batch:
    """Runs on the same disks; becomes one entry of the evidence."""

    def __init__(self, arguments: argparse.Namespace, seed: int) -> None:
        self._arguments = arguments
        self._seed = seed
        self.results: list[Result] = []
        self.problems: list[str] = []

    @property
    def lost(self) -> int:
        """Acknowledged records that are nowhere."""
        return sum(result.verdict.kinds["lost"] for result in self.results)

    def go(self, runs: int) -> None:
        """Makes the disks, loses their first start in half of all cases, and runs. NotPossible."""
        arguments = self._arguments
        settings = {**SETTINGS, **dict(word.split("=", 1) for word in arguments.set)}
        with tempfile.TemporaryDirectory(prefix="lockstep-power-run-") as name:
            command = arguments.command.split() or None
            nodes = Nodes(arguments.nodes, settings, Path(name), arguments.flush_ms, command)
            try:
                random = Random(self._seed)
                if random.random() < 0.5:
                    nodes.lose_power_while_starting(nodes.all, random)
                nodes.start(nodes.all)
                for number in range(runs):
                    if self.problems:
                        break
                    self._one(nodes, self._seed + number, Path(name))
            except (TargetFailed, RuntimeError, OSError) as error:
                self.problems.append(f"{type(error).__name__}: {str(error)[-1500:]}")
            finally:
                if self.problems and not arguments.no_flush and shape(arguments)["judged"]:
                    self._keep(nodes, Path(name))
                nodes.close()

    def _one(self, nodes: Nodes, seed: int, directory: Path) -> None:
        arguments = self._arguments
        run = Run(nodes, seed, one_node=arguments.scope == "one")
        losses = 0 if arguments.no_flush else arguments.losses
        result = run.go(
            directory, losses, arguments.clients.split(","), arguments.records_per_s, lying=arguments.no_flush
        )
        self.results.append(result)
        self.problems += [f"seed {seed}: {problem}" for problem in result.problems]

    def _keep(self, nodes: Nodes, directory: Path) -> None:
        place = KEPT / f"{self._seed}-{time.strftime('%Y%m%d-%H%M%S')}"
        for node in nodes.all:
            node.kill9()
            shutil.copytree(node.disk.path, place / f"node-{node.node_id}", dirs_exist_ok=True)
        for log in directory.glob("node-*/broker.log"):
            shutil.copyfile(log, place / f"{log.parent.name}.log")
        print(f"disks and logs kept in {place}", flush=True)

    def figures(self, seconds: float) -> dict[str, Any]:
        """One entry for the evidence file."""
        verdicts = [result.verdict for result in self.results]
        kinds: Counter[str] = sum((verdict.kinds for verdict in verdicts), Counter())
        return {
            **shape(self._arguments),
            "seed": self._seed,
            "clients": self._arguments.clients.split(","),
            "flush_ms": self._arguments.flush_ms,
            "runs": len(self.results),
            "power_losses": sum(result.losses for result in self.results),
            "power_losses_while_starting": sum(result.losses_while_starting for result in self.results),
            "duration_s": round(seconds, 1),
            "records": {
                "sent": sum(verdict.sent for verdict in verdicts),
                "acknowledged": sum(verdict.acked for verdict in verdicts),
                "read_back": sum(verdict.read for verdict in verdicts),
                "unacknowledged_present": sum(verdict.unacked_present for verdict in verdicts),
            },
            "not_flushed": asdict(sum((result.loss for result in self.results), Loss())),
            "restart_to_ready": evidence.percentiles([s for result in self.results for s in result.ready_s]),
            "restart_to_first_ack": evidence.percentiles(
                [s for result in self.results for s in result.resumed_s]
            ),
            "unknown_topic_answers": sum(result.unknown_topic_answers for result in self.results),
            "clients_replaced": dict(sum((result.replaced for result in self.results), Counter())),
            "problems": dict(kinds),
            "problem_texts": self.problems[:10],
        }


def shape(arguments: argparse.Namespace) -> dict[str, Any]:
    """What must agree for runs to count together. Who loses all copies, none flushed, promised nothing."""
    all_copies = arguments.nodes == 1 or arguments.scope == "all"
    return {
        "nodes": arguments.nodes,
        "scope": arguments.scope,
        "settings": sorted(arguments.set),
        "command": arguments.command,
        "disk": "lies" if arguments.no_flush else "honest",
        "judged": not (all_copies and "log.flush=os" in arguments.set),
    }


def on_record(arguments: argparse.Namespace) -> int:
    """Runs recorded for this source and shape."""
    digest = evidence.source_digest()
    wanted = shape(arguments)
    return sum(
        entry["runs"]
        for entry in evidence.load_runs(CAMPAIGN)
        if entry["source"] == digest and all(entry.get(key, "") == value for key, value in wanted.items())
    )


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.power", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1, choices=range(1, 8), metavar="N")
    parser.add_argument("--scope", choices=["one", "all"], default="all", help="who loses power, of several")
    parser.add_argument("--losses", type=int, default=3, help="per run, under load; one more without")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--resume", action="store_true", help="count runs recorded for this source")
    parser.add_argument("--no-flush", action="store_true", help="disks that lie: the campaign must fail")
    parser.add_argument("--control", action="store_true", help="--no-flush; 0 only if it saw records lost")
    parser.add_argument("--clients", default="confluent,aiokafka,kafka-python", help="idempotent producers")
    parser.add_argument("--records-per-s", type=float, default=100.0, help="of each client")
    parser.add_argument("--flush-ms", type=float, default=4.0, help="the longest time a flush takes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker settings")
    parser.add_argument("--command", default="", help="the words before `serve` (default: this source)")
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    arguments.no_flush = arguments.no_flush or arguments.control
    return arguments


def one_batch(arguments: argparse.Namespace, seed: int, runs: int) -> Batch:
    """Runs it, prints it, keeps it in the evidence."""
    began = time.monotonic()
    batch = Batch(arguments, seed)
    batch.go(runs)
    figures = batch.figures(time.monotonic() - began)
    print(json.dumps(figures), flush=True)
    if not arguments.no_evidence:
        evidence.add_run(CAMPAIGN, figures)
    return batch


def control(arguments: argparse.Namespace, seed: int) -> int:
    """0 as soon as a run on lying disks reports acknowledged records lost, 1 when none of ten does."""
    for number in range(CONTROL_RUNS):
        batch = one_batch(arguments, seed + number, 1)
        if batch.lost:
            print(f"power: the lie was seen: {batch.lost} acknowledged records lost", flush=True)
            return 0
    print(f"power: {CONTROL_RUNS} runs on disks that do not flush, and no loss was seen", flush=True)
    return 1


def main(words: Sequence[str] | None = None) -> int:
    """0: nothing acknowledged was lost; 1: something was, or a broker failed; 2: not possible here."""
    arguments = parse(words)
    seed = SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    done = on_record(arguments) if arguments.resume else 0
    try:
        if arguments.control:
            print(f"power: control, seed {seed}", flush=True)
            return control(arguments, seed)
        print(f"power: seed {seed}, {arguments.runs} runs wanted, {done} on record", flush=True)
        while done < arguments.runs:
            runs = min(RUNS_PER_DISK, arguments.runs - done)
            batch = one_batch(arguments, seed, runs)
            if batch.problems and shape(arguments)["judged"]:
                return 1
            done += runs
            seed += runs
    except NotPossible as reason:
        print(f"power: not possible here: {reason}")
        return 2
    return 0
