"""`python -m tests.campaigns.groups --seconds 600`: 50 real clients in a group join, leave, pause and die by
kill -9, while its topics grow and the broker is killed, too; afterwards the group's history is judged.

A round is a fresh group over two growing topics with a steady stream of records. Even seeds use eager
rebalancing (range) with librdkafka, kafka-python and aiokafka in one group, odd ones cooperative
rebalancing with librdkafka. At the end the chaos stops, the members still there must consume everything,
and `group_history.check` reads `__consumer_offsets` from its first record. Adds to
docs/evidence/groups.json after each round; `--resume` counts the seconds recorded there for the same
source. Ends with 1 on any broken rule.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests.raw import ConnectionClosed, raw_connection
from compat_tests.targets import KafkaTarget, LockstepTarget, Target
from lockstep.broker.groups.group_records import (
    GROUP_METADATA,
    OFFSET_KINDS,
    committed_offset,
    group_key,
    group_metadata,
    kind_of,
    offset_key,
)
from tests.campaigns import evidence, group_member
from tests.campaigns.group_history import Event, GroupLog, GroupVerdict, Observation, TopicPartition, check
from tests.campaigns.group_member import COOPERATIVE, Plan

MEMBERS = 50
ROUND_S = 60.0
RECORDS_PER_S = 200.0
FIRST_PARTITIONS = 12
MOST_PARTITIONS = 40
OBSERVE_S = 0.25
PAUSE_S = (0.5, 12.0)
"""Some pauses outlive the session timeout of 6 s, some do not."""
CATCH_UP_S = 120.0
OFFSETS_TOPIC = "__consumer_offsets"
_GONE = (OSError, ConnectionClosed)
ACTIONS = {"start": 8, "kill": 5, "leave": 2, "pause": 4, "grow": 2, "broker": 1}
"""How often each happens, relative to the others."""


class Crowd:
    """The member processes of one round. Only this object's own children are ever signalled."""

    def __init__(
        self, target: Target, group: str, topics: tuple[str, ...], seed: int, directory: Path
    ) -> None:
        self.assignor = COOPERATIVE if seed % 2 else "range"
        self.counts: Counter[str] = Counter()
        self._bootstrap, self._group, self._topics = target.bootstrap, group, topics
        self._seed, self._directory = seed, directory
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["confluent_kafka", "kafka", "aiokafka", group_member.__name__])
        self.members: list[multiprocessing.process.BaseProcess] = []
        self._paused: list[tuple[float, int]] = []
        self._started = 0

    def start(self) -> None:
        """One more member."""
        number = self._started
        self._started += 1
        client = group_member.client_for(self._seed * 1000 + number, self.assignor)
        name = f"m{number}-{client}"
        plan = Plan(
            name,
            client,
            self._bootstrap,
            self._group,
            self._topics,
            self.assignor,
            self._directory / f"{name}.jsonl",
            number,
        )
        process = self._context.Process(target=group_member.run, args=(plan,), daemon=True)
        process.start()
        self.members.append(process)
        self.counts[client] += 1

    def remove(self, member: multiprocessing.process.BaseProcess, number: signal.Signals) -> None:
        """A member dies (SIGKILL) or is asked to leave (SIGTERM)."""
        self.members.remove(member)
        if member.pid is not None and member.is_alive():
            os.kill(member.pid, number)

    def pause(self, member: multiprocessing.process.BaseProcess, seconds: float) -> None:
        """Stop a member's process for a while; it does not notice."""
        if member.pid is not None and member.is_alive():
            os.kill(member.pid, signal.SIGSTOP)
            self._paused.append((time.monotonic() + seconds, member.pid))

    def wake(self, everybody: bool = False) -> None:
        """Let those go on whose pause is over."""
        now = time.monotonic()
        due = [each for each in self._paused if everybody or each[0] <= now]
        self._paused = [each for each in self._paused if each not in due]
        for _, pid in due:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def died(self) -> list[str]:
        """Members that ended by themselves, which is a failure."""
        return [f"{each.name} ended with {each.exitcode}" for each in self.members if not each.is_alive()]

    def end(self) -> None:
        """Ask everybody to leave; kill who does not."""
        self.wake(everybody=True)
        children = [each for each in multiprocessing.active_children() if each.pid is not None]
        for each in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid or 0, signal.SIGTERM)
        until = time.monotonic() + 20
        for each in children:
            each.join(max(0.1, until - time.monotonic()))
            if each.is_alive():
                each.kill()
                each.join()

    def events(self) -> list[Event]:
        """Every member's diary."""
        found: list[Event] = []
        for path in sorted(self._directory.glob("*.jsonl")):
            found += [json.loads(line) for line in path.read_text().splitlines()]
        return found


class Stream:
    """A producer that never stops, and a topic's growth."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...], seed: int) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        self.topics = topics
        self.partitions = {topic: FIRST_PARTITIONS // len(topics) for topic in topics}
        self._rng = random.Random(seed)
        self._bootstrap = bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        new = [NewTopic(topic, count, 1) for topic, count in self.partitions.items()]
        for future in admin.create_topics(new).values():
            future.result(30)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        while not self._stop.wait(1 / RECORDS_PER_S):
            topic = self._rng.choice(self.topics)
            with contextlib.suppress(KafkaException, BufferError):
                self._producer.produce(
                    topic, b"x" * 100, partition=self._rng.randrange(self.partitions[topic])
                )
            self._producer.poll(0)

    def grow(self) -> None:
        """One to three partitions more for one topic, while the broker is there to do it."""
        topic = self._rng.choice(self.topics)
        total = min(self.partitions[topic] + self._rng.randint(1, 3), MOST_PARTITIONS // len(self.topics))
        if total > self.partitions[topic]:
            wanted = [{"name": topic, "count": total, "assignments": None}]
            with contextlib.suppress(*_GONE), raw_connection(self._bootstrap, 10.0) as raw:
                (done,) = raw.call("create_partitions", 3, topics=wanted, timeout=10_000)["results"]
                self.partitions[topic] = self.partitions[topic] if done["error_code"] else total

    def end(self) -> None:
        """Stop and wait until everything is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        if left:
            raise TimeoutError(f"{left} records were not acknowledged")


class Observer:
    """Asks for the group's committed offsets all the time, from outside.

    On the wire itself: librdkafka's admin client aborts the process when the broker dies under this question.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        self.seen: list[Observation] = []
        self._bootstrap, self._group = bootstrap, group
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self) -> Observation | None:
        """One answer; None while the broker cannot give one."""
        asked_ns = time.monotonic_ns()
        wanted = [{"group_id": self._group, "topics": None}]
        try:
            with raw_connection(self._bootstrap, 10.0) as raw:
                (answer,) = raw.call("offset_fetch", 8, groups=wanted, require_stable=True)["groups"]
        except _GONE:
            return None
        if answer["error_code"]:
            return None
        found = {
            (topic["name"], each["partition_index"]): int(each["committed_offset"])
            for topic in answer["topics"]
            for each in topic["partitions"]
            if each["committed_offset"] >= 0
        }
        return Observation(asked_ns, found)

    def _run(self) -> None:
        while not self._stop.wait(OBSERVE_S):
            observation = self.ask()
            if observation is not None:
                self.seen.append(observation)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def run_round(target: Target, *, seed: int, seconds: float, members: int, directory: Path) -> dict[str, Any]:
    """One group's life; its figures, with `problems`."""
    rng = random.Random(seed)
    group = f"stress-{seed}"
    topics = (f"{group}-a", f"{group}-b")
    began = time.monotonic()
    stream = Stream(target.bootstrap, topics, seed)
    crowd = Crowd(target, group, topics, seed, directory)
    observer = Observer(target.bootstrap, group)
    stuck: list[str] = []
    done: Counter[str] = Counter()
    try:
        for _ in range(members):
            crowd.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(rng.uniform(0.0, 0.8))
            crowd.wake()
            done[_act(rng, target, crowd, stream, members)] += 1
        crowd.wake(everybody=True)
        stream.end()
        stuck += _catch_up(target, topics, observer)
        stuck += crowd.died()
    finally:
        crowd.end()
        observer.end()
    verdict = check(
        read_group_log(target.bootstrap, group), crowd.events(), observer.seen, crowd.assignor == COOPERATIVE
    )
    return _figures(seed, crowd, done, verdict, stuck, stream, time.monotonic() - began)


def _act(rng: random.Random, target: Target, crowd: Crowd, stream: Stream, members: int) -> str:
    (action,) = rng.choices(list(ACTIONS), list(ACTIONS.values()))
    if action == "start" or len(crowd.members) < members // 2:
        if len(crowd.members) >= members:
            return "nothing"
        crowd.start()
        return "start"
    member = rng.choice(crowd.members)
    if action == "kill":
        crowd.remove(member, signal.SIGKILL)
    elif action == "leave":
        crowd.remove(member, signal.SIGTERM)
    elif action == "pause":
        crowd.pause(member, rng.uniform(*PAUSE_S))
    elif action == "grow":
        stream.grow()
    else:
        target.kill9()
        time.sleep(rng.uniform(0.0, 1.0))
        target.start()
    return action


def _catch_up(target: Target, topics: tuple[str, ...], observer: Observer) -> list[str]:
    """Wait until every record is committed; what is missing after CATCH_UP_S."""
    until = time.monotonic() + CATCH_UP_S
    ends = _end_offsets(target.bootstrap, topics)
    missing: dict[TopicPartition, int] = dict(ends)
    while time.monotonic() < until:
        observation = observer.ask()
        if observation is not None:
            missing = {place: end for place, end in ends.items() if end > observation.offsets.get(place, 0)}
            if not missing:
                return []
        time.sleep(0.2)
    return [f"never consumed to the end within {CATCH_UP_S} s: {missing}"]


def _end_offsets(bootstrap: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "ends", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        found: dict[TopicPartition, int] = {}
        for topic in topics:
            for index in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
                place = confluent_kafka.TopicPartition(topic, index)
                found[topic, index] = consumer.get_watermark_offsets(place, timeout=10, cached=False)[1]
        return found
    finally:
        consumer.close()


def read_group_log(bootstrap: str, group: str) -> GroupLog:
    """Every record about one group, from the first."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "campaign-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    offsets: list[Any] = []
    generations: list[Any] = []
    try:
        for _, index in sorted(_end_offsets(bootstrap, [OFFSETS_TOPIC])):
            for key, value in _read_partition(consumer, index):
                if kind_of(key) in OFFSET_KINDS:
                    named = offset_key(key)
                    if named.group == group:
                        found = committed_offset(value) if value is not None else None
                        offsets.append(((named.topic, named.partition), found))
                elif kind_of(key) == GROUP_METADATA and group_key(key) == group:
                    generations.append(group_metadata(value) if value is not None else None)
    finally:
        consumer.close()
    return GroupLog(offsets, generations)


def _read_partition(consumer: Any, index: int) -> list[tuple[bytes, bytes | None]]:
    import confluent_kafka

    place = confluent_kafka.TopicPartition(OFFSETS_TOPIC, index, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=30, cached=False)
    found: list[tuple[bytes, bytes | None]] = []
    if not end:
        return found
    consumer.assign([place])
    until = time.monotonic() + 60
    position = 0
    while position < end:
        for message in consumer.consume(5000, timeout=1.0):
            if message.error():
                raise RuntimeError(f"reading {OFFSETS_TOPIC}-{index}: {message.error()}")
            found.append((message.key(), message.value()))
            position = message.offset() + 1
        if time.monotonic() > until:
            raise TimeoutError(f"reading {OFFSETS_TOPIC}-{index}: {position} of {end} records")
    return found


def _figures(
    seed: int,
    crowd: Crowd,
    done: Counter[str],
    verdict: GroupVerdict,
    stuck: list[str],
    stream: Stream,
    seconds: float,
) -> dict[str, Any]:
    return {
        "seed": seed,
        "assignor": crowd.assignor,
        "duration_s": round(seconds, 1),
        "members_started": dict(crowd.counts),
        "actions": dict(done),
        "partitions_at_end": stream.partitions,
        "generations": verdict.generations,
        "largest_generation": verdict.largest,
        "commits_in_log": verdict.commits_in_log,
        "commits_acknowledged": verdict.commits_acknowledged,
        "records_read": verdict.records_read,
        "observations": verdict.observations,
        "problems": {**verdict.kinds, **({"stuck": len(stuck)} if stuck else {})},
        "problem_texts": verdict.problems[:10] + stuck,
    }


def _made(name: str) -> Target:
    """Kafka flushes each append, so that both promise the same."""
    return (
        KafkaTarget({"log.flush.interval.messages": "1"}, heap="512M")
        if name == "kafka"
        else LockstepTarget()
    )


def seconds_on_record() -> float:
    """Seconds already recorded for this source."""
    digest = evidence.source_digest()
    return float(sum(run["duration_s"] for run in evidence.load_runs("groups") if run["source"] == digest))


def main(words: Sequence[str] | None = None) -> int:
    """Runs rounds until enough seconds; the exit status is 1 when any round broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.groups", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--round-seconds", type=float, default=ROUND_S)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--resume", action="store_true", help="count seconds recorded for this source")
    parser.add_argument("--target", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    spent = seconds_on_record() if arguments.resume else 0.0
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    print(f"groups: seed {seed}, {arguments.seconds:.0f} s wanted, {spent:.0f} s on record", flush=True)
    sound = True
    with tempfile.TemporaryDirectory(prefix="lockstep-groups-") as name, _made(arguments.target) as target:
        while spent < arguments.seconds and sound:
            directory = Path(name) / str(seed)
            directory.mkdir()
            run = run_round(
                target,
                seed=seed,
                seconds=min(arguments.round_seconds, arguments.seconds - spent),
                members=arguments.members,
                directory=directory,
            )
            print(f"seed {seed}: {run}", flush=True)
            if not arguments.no_evidence and arguments.target == "lockstep":
                evidence.add_run("groups", run)
            sound = not run["problems"]
            spent += run["duration_s"]
            seed += 1
        if not sound:
            print(f"broker's log kept: {target.keep_log()}", flush=True)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
