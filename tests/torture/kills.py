"""`python -m tests.torture.kills --one 500 --all 100`: kill -9 under load, of one node and of all at once.

A round is a fresh cluster and some 25 kills of one sort, each after the clients were acknowledged something
since the last one, some of them while the node is just starting again. Then everything is read through every
node and judged by the history checker: nothing acknowledged is missing, nothing of an idempotent producer is
there twice. Adds to docs/evidence/kills3.json after each round; `--resume` counts the kills recorded there
for the same source. Ends with 1 on any broken promise, with 2 where this machine cannot do it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests.kafka_jars import ToolchainMissing
from tests.campaigns import evidence
from tests.campaigns.brokers import raise_on_term
from tests.torture.cluster import Cluster
from tests.torture.faults import Injector, Planned
from tests.torture.network import NotPossible
from tests.torture.run import KEPT, figures
from tests.torture.session import TOPIC, Options, Session, keep

NAME = "kills3"
WORKERS = (
    "confluent-idempotent",
    "confluent-plain",
    "aio-idempotent",
    "java:idempotent",
    "confluent-assign",
)
RECOVERY_KILL_SHARE = 0.15
"""Of the kills, those followed by another while the node is starting."""
RECORDS_BETWEEN = 20
"""Acknowledged at least, between two kills: a kill while nobody is served would prove little."""


class KillRound(Session):
    """A session whose only fault is kill -9, as often as the clients get on."""

    def __init__(self, options: Options, directory: Path, kills: int, sort: str) -> None:
        super().__init__(options, directory, lambda text: None)
        self.kills = kills
        self.sort = sort
        self.done = 0
        self.recovery_kills = 0
        self.resumed_s: list[float] = []
        """From the kill to the next RECORDS_BETWEEN acknowledgements, whoever was killed."""

    def torture(self, cluster: Cluster, injector: Injector, planned: list[Planned]) -> None:
        rng = random.Random(f"kills-{self._options.seed}")
        while self.done < self.kills:
            time.sleep(rng.uniform(0.0, 1.0))
            self.look_for_the_dead(cluster)
            self._kill(cluster, rng)
            self.await_progress(RECORDS_BETWEEN)

    def _kill(self, cluster: Cluster, rng: random.Random) -> None:
        nodes = list(cluster.nodes.values())
        if self.sort == "one":  # every second time the leader of a partition
            leaders = sorted(set(cluster.leaders(TOPIC).values()))
            leads = leaders and rng.random() < 0.5
            nodes = [cluster.nodes[rng.choice(leaders)] if leads else rng.choice(nodes)]
        for node in nodes:
            node.kill()
        self.done += 1
        killed = time.monotonic()
        if rng.random() < RECOVERY_KILL_SHARE:
            for node in nodes:
                node.start()
            time.sleep(rng.uniform(0.0, 0.8))
            for node in nodes:
                node.kill()
            self.recovery_kills += 1
        elif self.sort == "one" and rng.random() < 0.5:
            time.sleep(rng.uniform(0.0, 3.0))  # the others serve alone for a while
        for node in nodes:
            node.start()
        self.await_progress(RECORDS_BETWEEN)
        self.resumed_s.append(time.monotonic() - killed)


def one_round(options: Options, sort: str, kills: int, *, record: bool) -> bool:
    """A round in a fresh directory; whether it was sound."""
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="lockstep-kills-"))
    try:
        session = KillRound(options, directory, kills, sort)
        outcome = session.run()
        run: dict[str, Any] = {
            "sort": sort,
            "kills": session.done,
            "kills_during_recovery": session.recovery_kills,
            **figures(outcome, time.monotonic() - began),
            "kill_to_progress": evidence.percentiles(session.resumed_s),
        }
        print(f"{sort}: {run}", flush=True)
        if record:
            evidence.add_run(NAME, run)
        if not outcome.sound:
            for text in [*outcome.verdict.problems[:20], *outcome.problems]:
                print(f"  {text}", flush=True)
            keep(directory, KEPT / f"kills-{options.seed}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return outcome.sound


def kills_on_record(sort: str, nodes: int) -> int:
    """Kills in sound rounds recorded for this source."""
    digest = evidence.source_digest()
    return sum(
        run["kills"]
        for run in evidence.load_runs(NAME)
        if run["source"] == digest and run["sort"] == sort and run["nodes"] == nodes
        if not run["anomalies"] and not run["problems"]
    )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.kills", description=__doc__)
    parser.add_argument("--one", type=int, default=500, help="kills of one node")
    parser.add_argument("--all", type=int, default=100, help="kills of all nodes at once")
    parser.add_argument("--round-kills", type=int, default=25)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--workers", default=",".join(WORKERS))
    parser.add_argument("--rate", type=float, default=60.0, help="records/s of each producer")
    parser.add_argument("--resume", action="store_true", help="count kills recorded for this source")
    parser.add_argument("--no-evidence", action="store_true")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    raise_on_term()
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    for sort, wanted in (("one", arguments.one), ("all", arguments.all)):
        done = kills_on_record(sort, arguments.nodes) if arguments.resume else 0
        print(f"kills of {sort}: seed {seed}, {wanted} wanted, {done} on record", flush=True)
        while done < wanted:
            kills = min(arguments.round_kills, wanted - done)
            options = Options(
                nodes=arguments.nodes,
                seconds=0,
                seed=seed,
                faults=(),
                workers=arguments.workers.split(","),
                rate=arguments.rate,
            )
            try:
                if not one_round(options, sort, kills, record=not arguments.no_evidence):
                    return 1
            except (NotPossible, ToolchainMissing) as missing:
                print(f"not possible here: {missing}", file=sys.stderr)
                return 2
            done += kills
            seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
