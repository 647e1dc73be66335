"""`python -m tests.campaigns.player --records 1000000 --kills 20`: a player and its targets, all killed.

Three brokers, two players of which one stands by, four targets in SQLite and four in PostgreSQL, each a
process; writers, whose records name the targets that they are for. Players, targets and brokers are killed
with kill -9 and stopped with SIGSTOP, each kind `--kills` times (`player_nemesis.py`). One target is stopped
for a third of the records. In the end everything is healed, and each target must get everything: what it has
applied is compared, record by record, with the topic as confluent-kafka reads it (`player_judge.py`).

The players' resident memory is looked at all the time. Their settings let them hold little for each target,
so it must stay below a bound, also while a target is stopped.

With `--order "log group"` the brokers themselves play, all partitions as one log: brokers and targets are
killed and stopped, and all targets must have one order of all partitions' records.

Adds to docs/evidence/player.json; `--resume` runs nothing where a sound run of this source, as large in
records and kills, is recorded. Prints JSON; ends with 1 where something is not as it must be, with 2 where
PostgreSQL is missing. `--plant` gives the targets in SQLite a mistake that must be found
(`player_sabotage.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, get_args

import confluent_kafka
import confluent_kafka.admin

from compat_tests.targets import TargetFailed
from lockstep.player_host.config import Order
from tests.campaigns import evidence, player_processes, player_sabotage
from tests.campaigns.brokers import Brokers, raise_on_term
from tests.campaigns.exactly_once import committed
from tests.campaigns.killed_brokers import KEPT_PROBLEMS
from tests.campaigns.player_judge import Contents, judge, order_differences, record_of, wanted
from tests.campaigns.player_nemesis import FAULTS, TICK_S, Nemesis
from tests.campaigns.player_processes import Memory, Player, Process, Target
from tests.campaigns.player_writers import Writers
from tests.lockstep.postgres import PostgresMissing, postgres

NAME: Final = "player"
TOPIC: Final = "played"
PARTITIONS: Final = 2
PLANTED: Final = "tests.campaigns.player_sabotage"
STALLED_SHARES: Final = (0.3, 0.65)
"""Of the records, from where to where one target is stopped."""
STUCK_S: Final = 180.0
"""Without one record applied, once everything is healed."""
READY_S: Final = 120.0
BASE_MIB: Final = 128
"""Of a player that holds nothing for its targets, with what it is reading."""


class Campaign:
    """One run over started brokers."""

    def __init__(
        self,
        brokers: Brokers,
        targets: Sequence[Target],
        players: Sequence[Player],
        options: argparse.Namespace,
    ) -> None:
        """`players`: none where the brokers play."""
        self.problems: list[str] = []
        self.figures: dict[str, Any] = {}
        self._brokers = brokers
        self._options = options
        self._rng = random.Random(options.seed)
        self._targets, self._players = targets, players
        self._processes: list[Process] = [*self._targets, *self._players]
        names = [each.name for each in self._targets]
        self._writers = Writers(brokers.bootstrap, TOPIC, names, options.rate, options.seed)
        self._nemesis = Nemesis(brokers, self._players, self._targets, options.faults, self._rng)
        self._memory = Memory(self._players)

    def run(self) -> None:
        """Fills `problems` and `figures`."""
        began = time.monotonic()
        create_topic(self._brokers.bootstrap)
        try:
            for process in self._processes:
                process.start()
            self._await_ready()
            self._memory.start()
            self._writers.start()
            self._under_faults()
            self.figures["faults_s"] = round(time.monotonic() - began, 1)
            self._heal()
            contents = self._await_all()
            self.figures["healed_s"] = round(time.monotonic() - began - self.figures["faults_s"], 1)
            for process in reversed(self._processes):
                process.end()
            self._judge(contents)
        except (TargetFailed, TimeoutError, confluent_kafka.KafkaException) as failure:
            self.problems.append(str(failure))
        finally:
            self._memory.end()
            for process in self._processes:
                process.kill9()
        self.problems += [each for process in self._processes for each in process.strange]
        self.figures["seconds"] = round(time.monotonic() - began, 1)
        self._count()

    def _await_ready(self) -> None:
        """Until all partitions are played. TargetFailed."""
        deadline = time.monotonic() + READY_S
        while self._players and not all_are_played(self._players):
            if time.monotonic() > deadline:
                raise TargetFailed(f"nobody plays:\n{self._tails()}")
            time.sleep(TICK_S)

    def _under_faults(self) -> None:
        """Until as much is written, and as much has happened, as was asked for. TargetFailed."""
        stalled = self._rng.choice(self._targets)
        first, last = (int(self._options.records * share) for share in STALLED_SHARES)
        stalled_from = 0
        while not self._has_enough():
            if self._writers.problems:
                raise TargetFailed("; ".join(self._writers.problems))
            for process in self._processes:
                process.look()
            written = self._writers.written
            if self._memory.phase == "before" and written >= first:
                stalled.restart()
                stalled.stop()
                self._nemesis.spared, self._memory.phase = stalled, "while_one_is_stopped"
                stalled_from = written
            elif self._nemesis.spared is not None and written - stalled_from >= last - first:
                stalled.go_on()
                self._nemesis.spared, self._memory.phase = None, "after"
                self.figures["stopped_for_records"] = written - stalled_from
            self._nemesis.heal_due()
            if self._may_act():
                self._nemesis.act()
            time.sleep(TICK_S)

    def _may_act(self) -> bool:
        """False where all faults have happened but for a planted mistake's: a target that is killed while it
        still starts, as on a busy machine, would never come to its mistake."""
        is_over = self._options.plant and self._nemesis.rounds >= self._options.kills
        return not is_over or any(map(player_sabotage.is_between, self._targets))

    def _has_enough(self) -> bool:
        """Is as much written, and has as much happened, as was asked for?"""
        return (
            self._writers.written >= self._options.records
            and self._nemesis.rounds >= self._options.kills
            and self._memory.phase == "after"
            and (not self._options.plant or any(map(player_sabotage.was_killed_between, self._targets)))
        )

    def _heal(self) -> None:
        """TargetFailed."""
        self._nemesis.heal()
        for process in self._processes:
            process.go_on()
            process.restart()
        self._writers.finish()
        if self._writers.problems:
            raise TargetFailed("; ".join(self._writers.problems))

    def _await_all(self) -> dict[str, Contents]:
        """Until each target has as many records as it must have in the end; what that is. TargetFailed."""
        records = map(record_of, committed(self._brokers.bootstrap, TOPIC, PARTITIONS))
        contents, count = wanted(records, [each.name for each in self._targets])
        self.figures["records"] = count
        self.figures["applied"] = {name: each.count() for name, each in contents.items()}
        if count < self._options.records:
            raise TargetFailed(f"{self._writers.written} records were written, {count} are there")
        left, since = -1, time.monotonic()
        while left or not all(each.is_ready() for each in self._processes):
            for process in self._processes:
                process.look()
            before, left = (
                left,
                sum(max(0, contents[each.name].count() - each.count()) for each in self._targets),
            )
            if left < before or before < 0:
                since = time.monotonic()
            elif time.monotonic() > since + STUCK_S:
                raise TargetFailed(
                    f"stuck: {left} records are not applied, or a process is not up\n{self._tails()}"
                )
            time.sleep(5 * TICK_S)
        return contents

    def _judge(self, contents: dict[str, Contents]) -> None:
        self.figures["player_terms"] = max(each.player_term() for each in self._targets)
        found = {each.name: each.contents() for each in self._targets}
        for name, each in found.items():
            self.problems += judge(name, contents[name], each)
        if not self._players:
            self.problems += order_differences(found)
            self.figures["in_one_order"] = len({*chain(*(each.sequence for each in found.values()))})
        held = player_processes.bound_bytes(len(self._targets), PARTITIONS) >> 20
        highest = max(self._memory.highest.values()) >> 20
        if highest > BASE_MIB + held:
            self.problems.append(f"a player had {highest} MiB, with bounds of {held} MiB in all")

    def _count(self) -> None:
        transactions = self._writers.transactions
        self.figures |= {
            "faults": dict(sorted(self._nemesis.counts.items())),
            "kills": self._nemesis.rounds,
            "broker_kills": self._brokers.kills,
            "transactions_aborted": transactions.aborted,
            "transaction_producers_replaced": transactions.replaced,
            "players_ended": sorted({text for each in self._players for text in each.ended})[:10],
        }
        if self._players:
            highest = {phase: size >> 20 for phase, size in self._memory.highest.items()}
            self.figures["player_rss_mib"] = highest

    def _tails(self) -> str:
        return "\n".join(
            f"{each.name}: {each.log.read_text(errors='replace')[-1500:]}" for each in self._processes
        )


def all_are_played(players: Sequence[Player]) -> bool:
    """Whether each partition has one who plays it: they claim each by itself, and may share them."""
    return set().union(*(each.plays() for each in players)) == {*range(PARTITIONS)}


def create_topic(bootstrap: str) -> None:
    """KafkaException."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = confluent_kafka.admin.NewTopic(TOPIC, PARTITIONS, -1)  # type: ignore[attr-defined]
    admin.create_topics([topic], operation_timeout=20)[TOPIC].result(30)


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Figures and problems. PostgresMissing; TargetFailed when the brokers do not even start."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-player-")))
        databases = stack.enter_context(new_databases(options.postgres))
        stores = {
            f"sqlite-{number}": f"sqlite:///{directory}/shard-{number}.db" for number in range(options.sqlite)
        }
        stores |= {f"postgres-{number}": url for number, url in enumerate(databases)}
        common = player_processes.Options(options.transport, directory)
        program = PLANTED if options.plant else player_processes.SHARD
        targets = player_processes.targets_of(stores, common, program)
        settings = {}
        if options.order == "log group":
            file = player_processes.group_config(TOPIC, targets, common)
            settings = {"lockstep.data.groups": "1", "lockstep.player.config": str(file)}
        brokers = Brokers("lockstep", options.nodes, settings, directory)
        stack.callback(brokers.close)
        brokers.start()
        players = [] if settings else player_processes.players_of(brokers.bootstrap, TOPIC, targets, common)
        campaign = Campaign(brokers, targets, players, options)
        campaign.run()
        if campaign.problems:
            print("\n".join(campaign.problems[:KEPT_PROBLEMS]), file=sys.stderr)
            print(brokers.log_tail(), file=sys.stderr, flush=True)
        return campaign.figures, campaign.problems


@contextlib.contextmanager
def new_databases(count: int) -> Iterator[list[str]]:
    """So many, in a PostgreSQL of their own. PostgresMissing."""
    if not count:
        yield []
        return
    with postgres() as server:
        yield [server.new_database().replace("+psycopg", "") for _ in range(count)]


def on_record(options: argparse.Namespace) -> bool:
    """Is there a sound run of this source that is as large?"""
    digest = evidence.source_digest(packages=evidence.WITH_PLAYER)
    same = ("nodes", "sqlite", "postgres", "transport")
    kinds = [kind for kind in FAULTS if options.order == "partition" or not kind.endswith("_player")]
    return any(
        run["source"] == digest
        and not run["problems"]
        and all(run[name] == getattr(options, name) for name in same)
        and run.get("order", "partition") == options.order
        and run["records"] >= options.records
        and run["kills"] >= options.kills
        and all(run["faults"].get(kind, 0) >= options.kills for kind in kinds)
        for run in evidence.load_runs(NAME)
    )


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.player", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="at least so many")
    parser.add_argument("--kills", type=int, default=20, help="of each kind, and as often stopped, at least")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--rate", type=float, default=2000, help="records a second that are written at most")
    parser.add_argument("--sqlite", type=int, default=4, help="targets in SQLite")
    parser.add_argument("--postgres", type=int, default=4, help="targets in PostgreSQL")
    parser.add_argument("--order", choices=get_args(Order), default="partition", help="what is one log")
    parser.add_argument("--transport", choices=["grpc", "raw"], default="grpc")
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=3)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--plant", action="store_true", help="SQLite targets that make a mistake")
    parser.add_argument("--resume", action="store_true", help="nothing where it is recorded for this source")
    parser.add_argument("--no-evidence", action="store_true")
    options = parser.parse_args(words)
    if options.order == "log group":
        options.faults = [kind for kind in options.faults if not kind.endswith("_player")]
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**31)
    return options


def main(words: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    options = arguments(words)
    raise_on_term()
    if options.resume and on_record(options):
        print("player: on record", flush=True)
        return 0
    print(f"player: seed {options.seed}", file=sys.stderr, flush=True)
    try:
        figures, problems = run(options)
    except PostgresMissing as missing:
        print(f"not possible here: {missing}", file=sys.stderr)
        return 2
    told = ("nodes", "sqlite", "postgres", "transport", "order", "rate", "seed")
    given = {name: getattr(options, name) for name in told}
    done = {**given, **figures, "problems": [text[:1000] for text in problems[:KEPT_PROBLEMS]]}
    print(json.dumps(done), flush=True)
    if not options.no_evidence and not options.plant:
        evidence.add_run(NAME, done, packages=evidence.WITH_PLAYER)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
