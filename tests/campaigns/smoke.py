"""`python -m tests.campaigns.smoke --transactions 1000000 --clients 4`: a smoke test as Waltz has it.

Client processes (`smoke_client.py`) execute random transactions with `lockstep.transactions` on one topic,
while brokers are killed with kill -9 and started again, and the topic's log group is led by one node after
the other. In the end all clients must have the same checksums, which kafka-python's records must have, too,
and the log must agree with what each client was told, and with a model of locks (`smoke_judge.py`).

A round is a fresh topic and `--round` transactions; the brokers live through all rounds. Each is added to
docs/evidence/smoke.json; `--resume` counts the sound ones that are recorded there for this source. `--plant`
gives the first client a fault. Prints JSON; ends with 1 where something is not as it must be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition

from compat_tests.targets import ROOT, TargetFailed
from lockstep.kafka_client import cluster
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import ClientError
from tests.campaigns import evidence, smoke_client
from tests.campaigns.brokers import Brokers, raise_on_term
from tests.campaigns.smoke_judge import Checksum, Report, Stored, judge, report_of

NAME: Final = "smoke"
PARTITIONS: Final = 4
CONFIGS: Final = {"lockstep.locks": "true", "lockstep.group": "1"}
GROUP: Final = 1
PAUSE_S: Final = (1.0, 5.0)
"""Between what happens to the brokers."""
MOVE_SHARE: Final = 0.25
MOVE_S: Final = 10.0
STUCK_S: Final = 120.0
"""Without one transaction that ended, in any process."""
READ_S: Final = 300.0
KEPT_PROBLEMS: Final = 20


class Member:
    """A client process."""

    def __init__(self, number: int, words: Sequence[str], report: Path, directory: Path) -> None:
        self._report = report
        self.log = directory / f"client-{number}.log"
        self.done = -1
        """Transactions of which it knows what became; -1 while it is not connected."""
        self.is_finished = False
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.campaigns.smoke_client", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, count = line.strip().partition(" ")
            if word == "done":
                self.done = int(count)
            elif word == "finished":
                self.is_finished = True

    def look(self) -> None:
        """TargetFailed when it has ended."""
        if self._process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise TargetFailed(f"a client ended with {self._process.returncode}:\n{tail}")

    def ask_to_end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def report(self) -> dict[str, Any]:
        """What it wrote when it ended. TargetFailed."""
        try:
            status = self._process.wait(READ_S)
        except subprocess.TimeoutExpired:
            raise TargetFailed(f"a client has not read up to the end in {READ_S:.0f} s") from None
        if status:
            self.look()
        found: dict[str, Any] = json.loads(self._report.read_text())
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Nemesis:
    """Kills nodes and moves the leader, a random while apart."""

    def __init__(self, brokers: Brokers, rng: random.Random) -> None:
        self._brokers = brokers
        self._rng = rng
        self._next_s = 0.0
        self.moves = 0
        self.pause()

    def pause(self) -> None:
        self._next_s = time.monotonic() + self._rng.uniform(*PAUSE_S)

    def act(self) -> None:
        """Do something, if it is time. TargetFailed."""
        if time.monotonic() < self._next_s:
            return
        if len(self._brokers.nodes) > 1 and self._rng.random() < MOVE_SHARE:
            self.moves += asyncio.run(self._move(self._rng.choice(sorted(self._brokers.nodes))))
            self.pause()
        else:
            self.kill()

    def kill(self) -> None:
        """TargetFailed."""
        self._brokers.kill(self._rng)
        self.pause()

    async def _move(self, node: int) -> bool:
        with contextlib.suppress(ClientError):  # a node that has just come back may lag too far behind
            async with Client(self._brokers.bootstrap) as client:
                await cluster.transfer(client, GROUP, node, MOVE_S)
                return True
        return False


class Round:
    """One topic: its transactions, and what is wrong with them."""

    def __init__(self, brokers: Brokers, topic: str, seed: int, directory: Path) -> None:
        self.problems: list[str] = []
        self.figures: dict[str, Any] = {"seed": seed}
        self._brokers = brokers
        self._topic = topic
        self._seed = seed
        self._directory = directory
        self._rng = random.Random(seed)

    def run(self, transactions: int, clients: int, least_kills: int = 0, plant: str | None = None) -> None:
        """Fills `problems` and `figures`. `least_kills` are shared out over the work, others come by time."""
        asyncio.run(self._create_topic())
        nemesis = Nemesis(self._brokers, self._rng)
        kills, starting, began = self._brokers.kills, self._brokers.kills_while_starting, time.monotonic()
        members: list[Member] = []
        try:
            for number in range(clients):
                count = transactions * (number + 1) // clients - transactions * number // clients
                members.append(self._member(number, count, plant if number == 0 else None))
            due = [transactions * (number + 1) // (least_kills + 1) for number in range(least_kills)]
            self._wait(members, nemesis, due)
            seconds = time.monotonic() - began
            for member in members:
                member.ask_to_end()
            found = [member.report() for member in members]
            self._judge(found)
            self.figures |= {
                "transactions": transactions,
                "clients": clients,
                "kills": self._brokers.kills - kills,
                "kills_while_starting": self._brokers.kills_while_starting - starting,
                "leader_moves": nemesis.moves,
                "seconds": round(seconds, 1),
                "per_s": round(transactions / seconds),
                "with_judgement_s": round(time.monotonic() - began, 1),
            }
        except (TargetFailed, TimeoutError) as failure:
            self.problems.append(str(failure))
        finally:
            for member in members:
                member.kill()

    async def _create_topic(self) -> None:
        async with Client(self._brokers.bootstrap) as client:
            await client.create_topic(self._topic, partitions=PARTITIONS, configs=CONFIGS)

    def _member(self, number: int, count: int, plant: str | None) -> Member:
        report = self._directory / f"{self._topic}-{number}.json"
        words = [self._brokers.bootstrap, self._topic, str(number), str(count), str(self._seed), str(report)]
        return Member(number, [*words, *(("--plant", plant) if plant else ())], report, self._directory)

    def _wait(self, members: Sequence[Member], nemesis: Nemesis, due: Sequence[int]) -> None:
        """Until all have finished, under faults; `due`: how much is done when kills come. TargetFailed."""
        kills, done, since = self._brokers.kills, -1, time.monotonic()
        while not all(each.is_finished for each in members) or self._brokers.kills - kills < len(due):
            for member in members:
                member.look()
            if any(member.done < 0 for member in members):
                nemesis.pause()
            if self._brokers.kills - kills < sum(each <= done for each in due):
                nemesis.kill()
            nemesis.act()
            time.sleep(0.05)
            now_done = sum(member.done for member in members)
            if now_done != done:
                done, since = now_done, time.monotonic()
            elif time.monotonic() > since + STUCK_S:
                raise TargetFailed(f"stuck: {done} transactions done {STUCK_S:.0f} s ago, and none since")

    def _judge(self, found: Sequence[dict[str, Any]]) -> None:
        records, own = read_committed(self._brokers.bootstrap, self._topic)
        problems, counts = judge(self._topic, records, [own, *map(report_of, found)])
        self.problems += problems
        self.problems += [error for each in found for error in each["errors"]]
        refusals: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for each in found:
            refusals.update(each["refusals"])
            kinds.update(each["kinds"])
        self.figures |= {
            "counts": dict(sorted(counts.items())),
            "refusals": dict(sorted(refusals.items())),
            "appended_by_kind": dict(sorted(kinds.items())),
            "ends": own.ends,
            "checksums": own.checksums,
        }


def read_committed(bootstrap: str, topic: str) -> tuple[dict[int, list[Stored]], Report]:
    """Everything committed, through kafka-python, and what that adds up to. TimeoutError."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        check_crcs=True,
        max_partition_fetch_bytes=4 * 1024 * 1024,
        fetch_max_bytes=16 * 1024 * 1024,
    )
    try:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        records: dict[int, list[Stored]] = {each.partition: [] for each in places}
        checksums = {each.partition: Checksum() for each in places}
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        ends = {place.partition: end for place, end in consumer.end_offsets(places).items()}
        deadline = time.monotonic() + READ_S
        while any(consumer.position(each) < ends[each.partition] for each in places):
            for place, found in consumer.poll(timeout_ms=200, max_records=5000).items():
                for each in found:
                    headers = dict(each.headers)
                    request = headers.get("lockstep-request")
                    records[place.partition].append(Stored(each.offset, each.key, each.value, headers))
                    checksums[place.partition].add(each.offset, each.key, each.value, request)
            if time.monotonic() > deadline:
                raise TimeoutError(f"kafka-python has not read {topic} up to {ends}")
    finally:
        consumer.close()
    return records, Report("kafka-python", ends, {number: str(each) for number, each in checksums.items()})


def recorded(nodes: int) -> int:
    """Transactions in sound rounds of this source."""
    digest = evidence.source_digest()
    return sum(
        run["transactions"]
        for run in evidence.load_runs(NAME)
        if run["source"] == digest and run["nodes"] == nodes and not run["problems"]
    )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.smoke", description=__doc__)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("--round", type=int, default=100_000, help="transactions of a topic")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=3)
    parser.add_argument("--seed", type=int, help="of the first round; default: drawn, and printed")
    parser.add_argument("--kills", type=int, default=0, help="at least so many in each round, spread evenly")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after these")
    parser.add_argument("--plant", choices=smoke_client.PLANTS)
    parser.add_argument("--resume", action="store_true", help="count what is recorded for this source")
    parser.add_argument("--no-evidence", action="store_true")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    arguments = _arguments(words)
    raise_on_term()
    left = arguments.transactions - (recorded(arguments.nodes) if arguments.resume else 0)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**31)
    print(f"smoke: seed {seed}, {max(0, left):,} transactions", flush=True)
    began, is_sound = time.monotonic(), True
    with tempfile.TemporaryDirectory(prefix="lockstep-smoke-") as name:
        brokers = Brokers("lockstep", arguments.nodes, {}, Path(name))
        try:
            if left > 0:
                brokers.start()
            while left > 0 and is_sound and time.monotonic() - began < arguments.seconds:
                size = min(left, arguments.round)
                is_sound = one_round(brokers, arguments, seed, size, Path(name))
                left, seed = left - size, seed + 1
        finally:
            brokers.close()
    return 0 if is_sound else 1


def one_round(brokers: Brokers, arguments: argparse.Namespace, seed: int, size: int, directory: Path) -> bool:
    """Run, print, record; whether it is sound."""
    current = Round(brokers, f"smoke-{seed}", seed, directory)
    current.run(size, arguments.clients, arguments.kills, arguments.plant)
    done = {
        "nodes": arguments.nodes,
        "transactions": size,
        **current.figures,
        "problems": [text[:1000] for text in current.problems[:KEPT_PROBLEMS]],
    }
    print(json.dumps(done), flush=True)
    if current.problems:
        print(brokers.log_tail(), file=sys.stderr, flush=True)
    if not arguments.no_evidence and arguments.plant is None:
        evidence.add_run(NAME, done)
    return not current.problems


if __name__ == "__main__":
    sys.exit(main())
