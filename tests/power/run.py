"""One run: idempotent producers, power losses at moments that hurt, and everything read back.

Owns: when the power goes. Mostly the disk stops first, at a drawn number of its own operations, and the
brokers run on for some milliseconds: what they acknowledge then and the disk never kept is a lost record.
Some losses meet a broker that is starting. At the end the power goes once more and every partition is
read and judged by `history.check`: everything acknowledged is there, exactly once, in order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import confluent_kafka

from compat_tests.targets import TargetFailed
from tests.campaigns.history import Verdict, check
from tests.campaigns.kill9 import read_topic
from tests.campaigns.writers import Workload, Writer, make_writers
from tests.power.nodes import Node, Nodes
from tests.power.volume import Loss

PARTITIONS = 4
MIN_RECORDS = 20
"""Acknowledged between two losses."""
PROGRESS_DEADLINE_S = 60.0
KNOWN_AGAIN_S = 30.0
STARTING_SHARE = 0.2
"""Of the losses, those followed by another one while the brokers start."""
STOPPED_FIRST_SHARE = 0.8
"""Of the losses, those whose disk stops before the brokers die."""


GONE = (
    confluent_kafka.KafkaError._UNKNOWN_PARTITION,
    confluent_kafka.KafkaError._UNKNOWN_TOPIC,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
)
"""A topic that was not flushed either: with it, all its records are lost."""


class Unsound(Exception):
    """A run cannot go on; the text is its problem."""


class Result:
    """What one run found. Sound when `problems` is empty."""

    def __init__(self) -> None:
        self.losses = 0
        self.losses_while_starting = 0
        self.loss = Loss()
        self.ready_s: list[float] = []
        self.resumed_s: list[float] = []
        """From power on to the next acknowledgement."""
        self.unknown_topic_answers = 0
        """When reading back, before the nodes knew the topic again."""
        self.verdict = Verdict()
        self.replaced: Counter[str] = Counter()
        self.problems: list[str] = []


class Run:
    """See the module. `nodes` are running before and, unless a problem was found, afterwards.

    `one_node`: only one of the nodes loses power, else all of them together.
    """

    def __init__(self, nodes: Nodes, seed: int, *, one_node: bool = False) -> None:
        self._nodes = nodes
        self._one_node = one_node
        self._seed = seed
        self._random = Random(seed)
        self.result = Result()

    def go(
        self, directory: Path, losses: int, clients: Sequence[str], records_per_s: float, lying: bool = False
    ) -> Result:
        """Produces under `losses` power losses, one more at the end, reads back and judges.

        `lying`: once records flow, the disks only say that they flush (the negative control).
        """
        topic = f"power-{self._seed}"
        workload = Workload(self._nodes.bootstrap, topic, PARTITIONS, records_per_s, self._seed)
        writers = make_writers(workload, list(clients), directory)
        for writer in writers:
            writer.start()
        try:
            self._progress(workload)
            if lying:
                for node in self._nodes.all:
                    node.disk.lie()
            for _ in range(losses):
                self._lose_and_restart(workload)
            self._progress(workload)
            workload.stop.set()
            self._join(writers)
            self._lose_and_restart(None)
            self._judge(workload)
        except Unsound as problem:
            self.result.problems.append(str(problem))
        except TargetFailed as failure:
            self.result.problems.append(f"a broker failed: {str(failure)[-1500:]}")
        finally:
            if not workload.stop.is_set():
                workload.stop.set()
                self._join(writers)
        return self.result

    def _judge(self, workload: Workload) -> None:
        self.result.verdict = check(workload.histories, self._read(workload.topic))
        self.result.problems += self.result.verdict.problems

    def _read(self, topic: str) -> dict[int, list[tuple[int, bytes | None]]]:
        """Every partition's records; several nodes may need a moment to know it and its leaders again."""
        deadline = time.monotonic() + (KNOWN_AGAIN_S if len(self._nodes.all) > 1 else 0)
        while True:
            try:
                return read_topic(self._nodes.bootstrap, topic, PARTITIONS)
            except confluent_kafka.KafkaException as error:
                gone = error.args[0].code() in GONE
                self.result.unknown_topic_answers += gone
                if time.monotonic() > deadline:
                    if not gone:
                        raise Unsound(f"unreadable: {error}") from error
                    self.result.problems.append(f"the topic is gone: {error}")
                    return {}
                time.sleep(0.2)
            except (RuntimeError, TimeoutError) as error:
                raise Unsound(f"unreadable: {error}") from error

    # -- power ------------------------------------------------------------------------------------------

    def _victims(self) -> list[Node]:
        return [self._random.choice(self._nodes.all)] if self._one_node else self._nodes.all

    def _lose_and_restart(self, workload: Workload | None) -> None:
        victims, random = self._victims(), self._random
        for node in victims:
            if not node.running:
                raise TargetFailed(f"the broker had ended by itself: {node.exit_code}\n{node.log_tail()}")
        if random.random() < STOPPED_FIRST_SHARE:
            self._nodes.stop_disks(victims, random)
            time.sleep(random.choice((0.0, 0.005, 0.03, 0.1)))
        self.result.loss += self._nodes.lose_power(victims, random)
        self.result.losses += 1
        if random.random() < STARTING_SHARE:
            self.result.loss += self._nodes.lose_power_while_starting(victims, random)
            self.result.losses += 1
            self.result.losses_while_starting += 1
        began = time.monotonic()
        self.result.ready_s += self._nodes.start(victims)
        if workload is not None:
            before = workload.acked()
            self._until(workload, before + 1)
            self.result.resumed_s.append(time.monotonic() - began)
            self._until(workload, before + MIN_RECORDS)
            time.sleep(random.uniform(0, 0.5))

    # -- progress ---------------------------------------------------------------------------------------

    def _progress(self, workload: Workload) -> None:
        self._until(workload, workload.acked() + MIN_RECORDS)

    def _until(self, workload: Workload, acked: int) -> None:
        deadline = time.monotonic() + PROGRESS_DEADLINE_S
        while workload.acked() < acked:
            if time.monotonic() > deadline:
                raise Unsound(f"stuck: no {MIN_RECORDS} records acknowledged in {PROGRESS_DEADLINE_S:.0f} s")
            time.sleep(0.005)

    def _join(self, writers: Sequence[Writer]) -> None:
        for writer in writers:
            try:
                writer.join()
            except TimeoutError as error:
                self.result.problems.append(str(error))
            self.result.replaced.update({writer.label: len(writer.fatal)} if writer.fatal else {})
