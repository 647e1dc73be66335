"""`python -m tests.campaigns.damage --cases 60 --nodes 1 --resume`: a stopped node's files are damaged.

A broker, or three, is filled once and stopped; its directory is copied half way, too. Each case puts that
back, damages one file of one node in one way and starts again. Then a client that checks no checksum reads
everything. Two things are judged. No record that comes is another than what was written (`changed`). Each
acknowledged record comes, or the damage is said: the node refuses to start and names a file, or the partition
is answered with an error and status ends with 1 (`silent` where none of that is so). Cases are all files and
all kinds of damage, in an order drawn from `--seed`; `--resume` leaves out those that this source has in
docs/evidence/damage.json, where each case is recorded as soon as it is judged; `--minutes` ends a run between
two cases. Prints JSON, ends with 1 where anything was changed or silent (decision 46).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests import fork_server
from compat_tests.targets import ROOT, Target, TargetFailed
from tests.campaigns import evidence
from tests.campaigns.brokers import Brokers

NAME: Final = "damage"
TOPIC: Final = "t"
PARTITIONS: Final = 2
RECORDS: Final = 120
"""Of each partition; half of them are in the old copy."""
RECORD_BYTES: Final = 20_000
SETTINGS: Final = {"lockstep.segment.bytes": str(1 << 20), "message.max.bytes": "200000"}
QUIET_S: Final = 8.0
"""So long nothing may come before the client is believed to wait for ever."""
READY_S: Final = 30.0
DAMAGED_NODE: Final = 1
PAGE: Final = 4096
NAMED: Final = re.compile(r"segment|checkpoint|state|origin|meta\.properties|damaged|cannot start: /\S")
"""What a node that refuses to start must say, or the file's name."""


class Limit(NamedTuple):
    """Where a run ends that has more cases."""

    cases: int
    minutes: float


Damage = Callable[[Path, Path, random.Random], bool]
"""Damages a file, given its old copy; False where that makes no difference."""


def _flip(path: Path, old: Path, draw: random.Random) -> bool:
    data = bytearray(path.read_bytes())
    if not data:
        return False
    used = len(data.rstrip(b"\0")) or len(data)
    data[draw.randrange(used)] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return True


def _zero_page(path: Path, old: Path, draw: random.Random) -> bool:
    data = bytearray(path.read_bytes())
    at = draw.randrange(0, max(1, len(data.rstrip(b"\0"))), 1) // PAGE * PAGE
    page = data[at : at + PAGE]
    if not any(page):
        return False
    data[at : at + PAGE] = bytes(len(page))
    path.write_bytes(data)
    return True


def _truncate(path: Path, old: Path, draw: random.Random) -> bool:
    size = path.stat().st_size
    if not size:
        return False
    with path.open("r+b") as file:
        file.truncate(draw.randrange(size))
    return True


def _remove(path: Path, old: Path, draw: random.Random) -> bool:
    path.unlink()
    return True


def _swap(path: Path, old: Path, draw: random.Random) -> bool:
    """With a neighbour of the same kind."""
    others = sorted(each for each in path.parent.glob(f"*{path.suffix}") if each != path and each.is_file())
    if not others:
        return False
    other = draw.choice(others)
    here, there = path.read_bytes(), other.read_bytes()
    path.write_bytes(there)
    other.write_bytes(here)
    return here != there


def _append(path: Path, old: Path, draw: random.Random) -> bool:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randrange(1, 2 * PAGE)))
    return True


def _older(path: Path, old: Path, draw: random.Random) -> bool:
    if not old.is_file() or old.read_bytes() == path.read_bytes():
        return False
    shutil.copyfile(old, path)
    return True


KINDS: Final[dict[str, Damage]] = {
    "bit flip": _flip,
    "zeroed page": _zero_page,
    "truncated": _truncate,
    "missing": _remove,
    "swapped": _swap,
    "garbage appended": _append,
    "old copy": _older,
}


def value(partition: int, number: int) -> bytes:
    """What was written: no two alike, and no byte of it as another's."""
    return random.Random(partition * 1_000_003 + number).randbytes(RECORD_BYTES)


class World:
    """Nodes that are stopped, as they were filled, and an old copy of them."""

    def __init__(self, nodes: int, directory: Path) -> None:
        settings = SETTINGS if nodes == 1 else {**SETTINGS, "lockstep.data.groups": "1"}
        self.brokers = Brokers("lockstep", nodes, settings, directory / "nodes")
        self.full, self.old = directory / "full", directory / "old"

    def fill(self) -> None:
        """TargetFailed."""
        self.brokers.start()
        admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
            made.result(30)
        self._write(0, RECORDS // 2)
        self._stop()
        self._copy(self.old)
        self.start()
        self._write(RECORDS // 2, RECORDS)
        changed, came, errors = read(self.brokers.bootstrap)
        if changed or errors or any(len(numbers) < RECORDS for numbers in came.values()):
            raise TargetFailed(f"not what was written: {changed} changed, {errors}, before any damage")
        self._stop()
        self._copy(self.full)

    def _write(self, first: int, end: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.brokers.bootstrap,
                "enable.idempotence": True,  # a batch that is sent again is there once
                "linger.ms": 0,
                "batch.size": 40_000,
            }
        )
        failed: list[object] = []
        for number in range(first, end):
            for partition in range(PARTITIONS):
                producer.produce(
                    TOPIC,
                    value(partition, number),
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
        if producer.flush(60) or failed:
            raise TargetFailed(f"not all was written: {failed[:1]}")

    def start(self) -> list[str]:
        """Start every node; what those said that did not start."""
        nodes = list(self.brokers.nodes.values())
        for node in nodes:
            node.log_path.unlink(missing_ok=True)
            node.ready_timeout_s = READY_S
        with ThreadPoolExecutor(len(nodes)) as pool:
            return [said for said in pool.map(_started, nodes) if said]

    def _stop(self) -> None:
        for node in self.brokers.nodes.values():
            if node.running:
                node.stop()

    def kill(self) -> None:
        """End all."""
        self.brokers.close()

    def _copy(self, to: Path) -> None:
        for number, node in self.brokers.nodes.items():
            shutil.copytree(node.data_dir, to / str(number))

    def restore(self) -> None:
        """As it was filled, nobody running."""
        for number, node in self.brokers.nodes.items():
            if node.running:
                node.kill9()
            shutil.rmtree(node.data_dir, ignore_errors=True)
            shutil.copytree(self.full / str(number), node.data_dir)

    def files(self) -> list[str]:
        """Of the node that is damaged, from its directory."""
        top = self.full / str(DAMAGED_NODE)
        return sorted(str(each.relative_to(top)) for each in top.rglob("*") if each.is_file())


def _started(node: Target) -> str:
    """What a node said that did not start."""
    try:
        node.start()
    except TargetFailed:
        return node.log_tail() or "nothing"
    return ""


def read(bootstrap: str) -> tuple[int, dict[int, set[int]], dict[int, str]]:
    """What comes to a client that checks nothing: how many records are not what was written, the numbers that
    came by partition, and the first error of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    changed = 0
    came: dict[int, set[int]] = {each: set() for each in range(PARTITIONS)}
    errors: dict[int, str] = {}
    heard = time.monotonic()
    while time.monotonic() - heard < QUIET_S:
        if all(len(numbers) == RECORDS or partition in errors for partition, numbers in came.items()):
            break
        message = consumer.poll(0.2)
        if message is None:
            continue
        error, partition = message.error(), message.partition()
        if error is not None:
            if partition is not None and partition >= 0 and error.code() != KafkaError._PARTITION_EOF:
                errors.setdefault(partition, error.name())
            continue
        heard = time.monotonic()
        number = message.offset()
        assert partition is not None and number is not None
        if message.value() == value(partition, number):
            came[partition].add(number)
        else:
            changed += 1
    consumer.close()
    return changed, came, errors


def status(bootstrap: str) -> tuple[int, str]:
    """Exit status and words of `lockstep cluster status`."""
    command = [sys.executable, "-m", "lockstep", "cluster", "status", "-b", bootstrap]
    done = fork_server.run(command, text=True, cwd=ROOT, timeout_s=60)
    return done.returncode, done.stdout + done.stderr


def judge(world: World, file: str, kind: str, seed: int) -> dict[str, Any]:
    """One case; `made` False where the damage would be none."""
    world.restore()
    draw = random.Random(f"{seed} {file} {kind}")
    node = world.brokers.nodes[DAMAGED_NODE]
    old = world.old / str(DAMAGED_NODE) / file
    case: dict[str, Any] = {"file": file, "kind": kind, "made": KINDS[kind](node.data_dir / file, old, draw)}
    if not case["made"]:
        return case
    said = [each.replace(f"{world.full.parent}/", "") for each in world.start()]
    refused = bool(said)
    names_it = any(NAMED.search(each) or Path(file).name in each for each in said)
    if refused and len(world.brokers.nodes) == 1:
        return case | {"outcome": "refused" if names_it else "silent", "said": said[0][-400:]}
    changed, came, errors = read(world.brokers.bootstrap)
    missing = {p: RECORDS - len(numbers) for p, numbers in came.items() if len(numbers) < RECORDS}
    code, words = status(world.brokers.bootstrap)
    outcome = "whole"
    if missing:
        outcome = "said" if all(p in errors for p in missing) and code else "silent"
    elif refused:
        outcome = "refused, others served" if names_it else "silent"
    if changed:
        outcome = "changed"
    case |= {
        "outcome": outcome,
        "missing": sum(missing.values()),
        "errors": sorted(set(errors.values())),
        "status": code,
    }
    if outcome in ("silent", "changed"):
        case |= {"words": words[-1500:], "said": [each[-1500:] for each in said], "changed": changed}
    return case


def cases(files: Sequence[str], seed: int, done: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """All that were not done, in an order of the seed's."""
    every = [(file, kind) for file in files for kind in KINDS]
    random.Random(seed).shuffle(every)
    return (each for each in every if each not in done)


def kind_of(file: str) -> str:
    """Without numbers: what sort of file it is."""
    return re.sub(r"\d+", "N", file)


def done_before(nodes: int, seed: int, directory: Path = evidence.EVIDENCE) -> set[tuple[str, str]]:
    """The cases that were judged for this source."""
    source = evidence.source_digest()
    runs = [run for run in evidence.load_runs(NAME, directory) if run["source"] == source]
    return {
        (case["file"], case["kind"])
        for run in runs
        if (run["nodes"], run["seed"]) == (nodes, seed)
        for case in run["cases"]
    }


def run(
    nodes: int,
    limit: Limit,
    seed: int,
    done: set[tuple[str, str]],
    directory: Path,
    save: Callable[[dict[str, Any]], object] = lambda figures: None,
) -> dict[str, Any]:
    """Cases up to a limit; `save` is given the figures after each. TargetFailed."""
    world = World(nodes, directory)
    judged: list[dict[str, Any]] = []
    began = time.monotonic()
    figures = _figures(nodes, seed, 0.0, judged)
    try:
        world.fill()
        for file, kind in cases(world.files(), seed, done):
            if len(judged) >= limit.cases or time.monotonic() - began >= 60 * limit.minutes:
                break
            case = judge(world, file, kind, seed)
            if case["made"]:
                judged.append(case)
                print(json.dumps(case), file=sys.stderr, flush=True)
                figures = _figures(nodes, seed, time.monotonic() - began, judged)
                save(figures)
    finally:
        world.kill()
    return figures


def _figures(nodes: int, seed: int, seconds: float, judged: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "nodes": nodes,
        "seed": seed,
        "seconds": round(seconds, 1),
        "outcomes": dict(sorted(Counter(case["outcome"] for case in judged).items())),
        "files": dict(sorted(Counter(kind_of(case["file"]) for case in judged).items())),
        "problems": [case for case in judged if case["outcome"] in ("changed", "silent")],
        "cases": list(judged),
    }


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1 << 20)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    done = done_before(options.nodes, options.seed) if options.resume else set()
    limit = Limit(options.cases, options.minutes)
    with tempfile.TemporaryDirectory() as scratch:
        record = evidence.OpenRun(NAME)
        figures = run(options.nodes, limit, options.seed, done, Path(scratch), record.save)
    print(json.dumps({key: figures[key] for key in figures if key != "cases"}, indent=1))
    return 1 if figures["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
