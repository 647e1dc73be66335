"""`python -m tests.campaigns.exactly_once --records 100000 --kills 50`: consume, transform, produce.

Unchanged clients read records, write each transformed and commit position and output in one transaction
(`transforming.py`), while brokers are killed with kill -9. Every kind of client has topics and a group of its
own. In the end each output partition, read by a reader of committed records, must be its input partition
transformed, record by record and in order: nothing missing, nothing twice, nothing else; and the group's
positions must be the input's ends.

The input is written bit by bit between the kills, so that there is always something under way. Adds to
docs/evidence/exactly_once.json; `--resume` runs nothing where a sound run of this source, as large in records
and kills, is recorded. Ends with 1 when the result is not exact, with 2 where a tool is missing.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from compat_tests.targets import ROOT, TargetFailed
from tests.campaigns import java_programs, killed_brokers
from tests.campaigns.brokers import Brokers
from tests.campaigns.transforming import QUICK

NAME = "exactly_once"
PARTITIONS = 4
CLIENTS = ("confluent:2", "java:2", "aio:1")
"""Kind and number of members; aiokafka's have no way to share a group (`transforming.py`)."""
PATIENCE_S = 180.0
STEP_S = 90.0


class Pipeline:
    """One kind of client: its topics, its processes, what it was given."""

    def __init__(self, word: str, brokers: Brokers, directory: Path) -> None:
        self.kind, _, count = word.partition(":")
        self.source, self.target, self.group = f"in-{self.kind}", f"out-{self.kind}", f"group-{self.kind}"
        self.inputs: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.log = directory / f"{self.kind}.log"
        self._bootstrap = brokers.bootstrap
        self._count = int(count or 1)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """ToolchainMissing."""
        for number in range(self._count):
            words = [self._bootstrap, self.source, self.target, self.group, f"{self.kind}-{number}"]
            if self.kind == "java":
                command = java_programs.java("Transform", words)
            else:
                command = [sys.executable, "-m", "tests.campaigns.transforming", self.kind, *words]
            with open(self.log, "ab") as log:
                self._running.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=ROOT,
                        start_new_session=True,
                    )
                )

    def look(self) -> None:
        """TargetFailed when one of its processes has ended."""
        for each in self._running:
            if each.poll() is not None:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise TargetFailed(f"a {self.kind} worker ended with {each.returncode}:\n{tail}")

    def stop(self) -> None:
        for each in self._running:
            each.terminate()
        for each in self._running:
            try:
                each.wait(40)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()

    def counts(self) -> tuple[int, int]:
        """(transactions that were acknowledged, clients that were replaced)."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = text.splitlines()
        return sum(line.startswith("committed") for line in lines), sum(
            line.startswith("again") for line in lines
        )

    def left(self) -> int:
        """Input records behind the group's positions. KafkaException."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        try:
            places = [confluent_kafka.TopicPartition(self.source, each) for each in range(PARTITIONS)]
            found = {each.partition: max(0, each.offset) for each in consumer.committed(places, 10)}
        finally:
            consumer.close()
        return sum(len(values) - found[number] for number, values in enumerate(self.inputs))

    def judge(self, read: Mapping[int, Sequence[bytes | None]]) -> Iterator[str]:
        """What is not as it must be."""
        for number, values in enumerate(self.inputs):
            wanted = [value + b"!" for value in values]
            yield from differences(f"{self.target}-{number}", wanted, list(read[number]))


def differences(
    name: str, wanted: Sequence[Hashable], found: Sequence[Hashable], strange_word: str = "never written"
) -> Iterator[str]:
    """Nothing when they are the same; else what is missing, twice, strange or out of order."""
    if list(found) == list(wanted):
        return
    seen: dict[Hashable, int] = {}
    for value in found:
        seen[value] = seen.get(value, 0) + 1
    known = set(wanted)
    missing = [value for value in wanted if value not in seen]
    twice = [value for value in wanted if seen.get(value, 0) > 1]
    strange = [value for value in seen if value not in known]
    for kind, values in (("missing", missing), ("more than once", twice), (strange_word, strange)):
        if values:
            yield f"{name}: {len(values)} {kind}, first {values[0]!r}"
    if not (missing or twice or strange):
        yield f"{name}: in another order"


class Campaign:
    """One run over started brokers."""

    def __init__(
        self, brokers: Brokers, clients: Sequence[str], records: int, kills: int, seed: int, directory: Path
    ) -> None:
        self._brokers = brokers
        self._records = records
        self._kills = kills
        self._rng = random.Random(seed)
        self.pipelines = [Pipeline(word, brokers, directory) for word in clients]
        self._written = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "linger.ms": 2,
                **QUICK,
            }
        )
        self._failed: list[str] = []
        self.problems: list[str] = []

    def run(self) -> None:
        """Fills `problems`. ToolchainMissing."""
        self._create_topics()
        for pipeline in self.pipelines:
            pipeline.start()
        try:
            for kill in range(self._kills):
                self._write(self._records * (kill + 1) // (self._kills + 1))
                self._await_less_than(max(1, self._records // (self._kills + 1) // 2), STEP_S)
                self._pause(self._rng.uniform(0.0, 1.0))
                self._brokers.kill(self._rng)
            self._write(self._records)
            self._await_less_than(1, PATIENCE_S)
        except TargetFailed as failure:
            self.problems.append(str(failure))
        finally:
            for pipeline in self.pipelines:
                pipeline.stop()
        if not self.problems:
            self._judge()

    def _create_topics(self) -> None:
        admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": self._brokers.bootstrap, "log_level": 0}
        )
        names = [name for each in self.pipelines for name in (each.source, each.target)]
        wanted = [confluent_kafka.admin.NewTopic(name, PARTITIONS, -1) for name in names]  # type: ignore[attr-defined]
        for future in admin.create_topics(wanted, operation_timeout=20).values():
            future.result(30)

    def _write(self, until: int) -> None:
        """Input, by turns to all pipelines and partitions."""
        while self._written < until:
            pipeline = self.pipelines[self._written % len(self.pipelines)]
            number = self._written // len(self.pipelines) % PARTITIONS
            value = b"%d" % self._written
            try:
                self._producer.produce(pipeline.source, value, b"k", number, on_delivery=self._told)
            except BufferError:
                self._producer.poll(0.1)
                continue
            pipeline.inputs[number].append(value)
            self._written += 1
            self._producer.poll(0)

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _pause(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _await_less_than(self, records: int, patience_s: float) -> None:
        """Until no pipeline has as many left to do, so that kills meet work and not an idle broker."""
        deadline = time.monotonic() + patience_s
        waiting = list(self.pipelines)
        while waiting:
            for pipeline in self.pipelines:
                pipeline.look()
            self._producer.poll(0.2)
            left = {each.kind: self._left(each) for each in waiting}
            waiting = [each for each in waiting if left[each.kind] >= records]
            if waiting and time.monotonic() > deadline:
                raise TargetFailed(f"stuck: after {patience_s:.0f} s still to do: {left}")
        if self._failed:
            raise TargetFailed(f"the input was not written: {self._failed[0]}")

    def _left(self, pipeline: Pipeline) -> int:
        with contextlib.suppress(confluent_kafka.KafkaException):
            return pipeline.left()
        return self._records

    def _judge(self) -> None:
        if self._producer.flush(60) or self._failed:
            self.problems.append(f"the input was not written: {self._failed[:1]}")
        for pipeline in self.pipelines:
            for name, judged in ((pipeline.source, None), (pipeline.target, pipeline)):
                read = read_committed(self._brokers.bootstrap, name, PARTITIONS)
                if judged is not None:
                    self.problems += judged.judge(read)
                    continue
                for number, values in enumerate(pipeline.inputs):
                    self.problems += differences(f"{name}-{number}", values, read[number])


def read_committed(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
    """Everything committed, by partition, up to the ends there are now. TimeoutError, KafkaException."""
    read: dict[int, list[bytes | None]] = {number: [] for number in range(partitions)}
    for each in committed(bootstrap, topic, partitions):
        read[each.partition()].append(each.value())
    return read


def committed(bootstrap: str, topic: str, partitions: int) -> Iterator[Any]:
    """The same as confluent-kafka's messages, each partition's in order. TimeoutError, KafkaException."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "campaign-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    reached: dict[int, int] = dict.fromkeys(range(partitions), -1)
    each: Any
    try:
        spots = [confluent_kafka.TopicPartition(topic, number, 0) for number in reached]
        deadline = time.monotonic() + 120
        ends = {spot.partition: _end(consumer, spot, deadline) for spot in spots}
        consumer.assign(spots)
        while any(reached[number] < end for number, end in ends.items()):
            for each in consumer.consume(5000, 0.2):
                if each.error() is None:
                    yield each
                elif each.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    reached[each.partition()] = each.offset()
                else:
                    raise confluent_kafka.KafkaException(each.error())
            if time.monotonic() > deadline:
                raise TimeoutError(f"reading {topic}: {reached} of {ends}; is a transaction left open?")
    finally:
        consumer.close()


def _end(consumer: Any, spot: Any, deadline: float) -> int:
    """Asked again while its leader moves. KafkaException."""
    while True:
        try:
            return int(consumer.get_watermark_offsets(spot, 10)[1])
        except confluent_kafka.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def figures(campaign: Campaign, _: Brokers) -> dict[str, Any]:
    """What this campaign adds to its run in the evidence file."""
    counts = {each.kind: each.counts() for each in campaign.pipelines}
    return {
        "transactions_acknowledged": {kind: found[0] for kind, found in counts.items()},
        "clients_replaced": {kind: found[1] for kind, found in counts.items()},
    }


def main(words: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    parser = killed_brokers.parser(NAME, __doc__, "records", 100_000, 50)
    parser.add_argument("--clients", type=lambda text: text.split(","), default=list(CLIENTS))
    arguments = parser.parse_args(words)

    def make(brokers: Brokers, directory: Path) -> Campaign:
        return Campaign(
            brokers, arguments.clients, arguments.records, arguments.kills, arguments.seed, directory
        )

    def with_clients(campaign: Campaign, brokers: Brokers) -> dict[str, Any]:
        return {"clients": list(arguments.clients), **figures(campaign, brokers)}

    return killed_brokers.command(NAME, arguments, make, with_clients)


if __name__ == "__main__":
    sys.exit(main())
