"""One torture run: a fresh cluster, clients, faults, then healing, final reads and a verdict.

Owns: the order of these steps and the bounds within which each must come to its end; what does not is a
problem by name ("stuck", "died"), next to the anomalies of the checker. Every partition is finally read in
whole through every node as the only bootstrap server, and every reader of the run must have had everything.
Does not: print tables, keep evidence (`run.py`).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture.checker import Verdict, check
from tests.torture.clients import workers
from tests.torture.cluster import NOT_YET, Cluster, ClusterFailed
from tests.torture.faults import Done, Injector, Planned, plan
from tests.torture.final_read import read_all
from tests.torture.gaps import Acknowledgements
from tests.torture.history import History
from tests.torture.kafka_cluster import KafkaCluster
from tests.torture.progress import Progress

TOPIC = "torture"
PROGRESS_S = 60.0
HEAL_S = 60.0
FINISH_S = 75.0
UNSEEN_S = 60.0
DISK_BYTES = 256 << 20
SMALL_FILES = {
    "lockstep.segment.bytes": str(1 << 20),
    "lockstep.spare.segments": "1",
    "message.max.bytes": str(128 << 10),
}
"""So that a full disk is felt within seconds: what was preallocated is soon used up."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is made of."""

    nodes: int
    seconds: float
    seed: int
    faults: Sequence[str]
    workers: Sequence[str] = workers.LINE_UP
    partitions: int = 6
    rate: float = 40.0
    settings: dict[str, str] = field(default_factory=dict)
    target: str = "lockstep"
    module: str = "lockstep"
    """What the nodes run; another one has a fault planted."""


@dataclass(slots=True)
class Outcome:
    """What a run showed. Sound when there are neither anomalies nor problems."""

    options: Options
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)
    faults: list[Done] = field(default_factory=list)
    silences_s: list[float] = field(default_factory=list)
    """Per fault: the longest time without an acknowledgement in the partitions it hit."""
    heal_s: float = 0.0
    unseen_s: float = 0.0
    """From the producers' end until every reader had everything."""
    last_readers: list[str] = field(default_factory=list)
    """Who had everything last."""
    notes: list[str] = field(default_factory=list)
    """Errors that ended a client; an idempotent producer of a sound cluster should meet none."""

    @property
    def sound(self) -> bool:
        return self.verdict.sound and not self.problems

    def leader_silences_s(self) -> list[float]:
        """Those of faults that hit a leader."""
        return [silence for done, silence in zip(self.faults, self.silences_s, strict=True) if done.led]


class Session:
    """One run in `directory`, which keeps histories and logs afterwards."""

    def __init__(self, options: Options, directory: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._directory = directory
        self._say = say
        self.outcome = Outcome(options)
        self._progress = Progress(())

    def run(self) -> Outcome:
        """The whole of it. NotPossible, ToolchainMissing; what the cluster does wrong is in the outcome."""
        options = self._options
        settings = dict(options.settings)
        if "disk-full" in options.faults:
            settings = {**SMALL_FILES, **settings}
        planned = plan(options.seed, options.faults, options.nodes, options.seconds) if options.faults else []
        for each in planned:
            self._say(f"planned: {each}")
        kind = KafkaCluster if options.target == "kafka" else Cluster
        with kind(
            options.nodes,
            self._directory,
            settings=settings,
            disk_bytes=DISK_BYTES if "disk-full" in options.faults else 0,
            throttled="disk-slow" in options.faults,
            module=options.module,
        ) as cluster:
            try:
                self._work(cluster, planned)
            except ClusterFailed as failure:
                self.outcome.problems.append(str(failure))
        self._judge()
        return self.outcome

    def _work(self, cluster: Cluster, planned: list[Planned]) -> None:
        options = self._options
        cluster.start()
        cluster.create_topic(TOPIC, options.partitions)
        events = self._directory / "events"
        events.mkdir()
        workload = workers.Workload(
            cluster.bootstrap, TOPIC, options.partitions, events, rate=options.rate, seed=options.seed
        )
        running = workers.start(cluster.network.inside("client"), options.workers, workload)
        self._progress = progress = Progress([worker.path for worker in running])
        injector = Injector(cluster, TOPIC, self._say)
        self.outcome.faults = injector.done
        try:
            self.await_progress(100)
            self.torture(cluster, injector, planned)
            self._heal(cluster, injector)
            self._finish(cluster, running, progress)
        finally:
            for worker in running:
                worker.kill()

    def await_progress(self, records: int) -> float:
        """Until so many more are acknowledged; the seconds it took. ClusterFailed after PROGRESS_S."""
        self._progress.update()
        began, before = time.monotonic(), self._progress.acknowledged
        while self._progress.acknowledged < before + records:
            if time.monotonic() > began + PROGRESS_S:
                more = self._progress.acknowledged - before
                raise ClusterFailed(f"stuck: {more} acknowledged in {PROGRESS_S} s")
            time.sleep(0.05)
            self._progress.update()
        return time.monotonic() - began

    def torture(self, cluster: Cluster, injector: Injector, planned: list[Planned]) -> None:
        """What is done to the cluster while the workers work. ClusterFailed ends the run."""
        began = time.monotonic()

        def wait_until(at_s: float) -> None:
            while (left := began + at_s - time.monotonic()) > 0:
                self.look_for_the_dead(cluster)
                time.sleep(min(0.2, left))

        for each in planned:
            wait_until(each.at_s)
            injector.inject(each, lambda seconds: wait_until(time.monotonic() - began + seconds))
        wait_until(self._options.seconds)

    def look_for_the_dead(self, cluster: Cluster) -> None:
        """A node that ended by itself is a problem, and started again."""
        for node in cluster.died():
            self.outcome.problems.append(
                f"died: node {node.node_id} ended by itself with {node.exit_code}:\n{node.log_tail()}"
            )
            node.start()

    def _heal(self, cluster: Cluster, injector: Injector) -> None:
        began = time.monotonic()
        injector.heal()
        cluster.await_members(HEAL_S)
        while len(cluster.leaders(TOPIC)) < self._options.partitions:
            if time.monotonic() > began + HEAL_S:
                raise ClusterFailed(f"stuck: {HEAL_S} s after healing only {cluster.leaders(TOPIC)} lead")
            time.sleep(0.05)
        self.outcome.heal_s = time.monotonic() - began

    def _finish(self, cluster: Cluster, running: list[workers.WorkerProcess], progress: Progress) -> None:
        """Producers finish; everything is read through every node; readers catch up; readers finish."""
        producers = [worker for worker in running if not workers.is_consumer(worker.name)]
        readers = [worker for worker in running if workers.is_consumer(worker.name)]
        self._end(producers)
        began = time.monotonic()
        ends = {f"{TOPIC}-{partition}": 0 for partition in range(self._options.partitions)}
        for node_id in cluster.nodes:
            for part, end in self._read_through(cluster, node_id).items():
                ends[part] = max(ends[part], end)
        while True:
            progress.update()
            behind = progress.behind(ends)
            if not behind:
                break
            self.outcome.last_readers = sorted(behind)
            if time.monotonic() > began + UNSEEN_S:
                self.outcome.problems.append(f"stuck: after {UNSEEN_S} s still behind {ends}: {behind}")
                break
            time.sleep(0.1)
        self.outcome.unseen_s = time.monotonic() - began
        self._end(readers)
        self._list_topics(cluster)
        self.look_for_the_dead(cluster)

    def _end(self, some: list[workers.WorkerProcess]) -> None:
        for worker in some:
            worker.ask_to_end()
        for worker in some:
            problem = worker.end(FINISH_S)
            if problem:
                self.outcome.problems.append(f"stuck: {problem}")

    def _read_through(self, cluster: Cluster, node_id: int) -> dict[str, int]:
        """Every record there is, with one node as the bootstrap server; each partition's end."""
        process = f"final-n{node_id}.1"
        deadline = time.monotonic() + UNSEEN_S
        while True:
            try:
                read = cluster.ask(read_all, cluster.bootstrap_of(node_id), TOPIC, self._options.partitions)
                break
            except Exception as error:  # any client error: until the deadline another try
                if time.monotonic() > deadline:
                    self.outcome.problems.append(
                        f"stuck: reading everything through node {node_id}: {error!r}"
                    )
                    return {}
                time.sleep(0.5)
        records = {f"{TOPIC}-{partition}": found for partition, found in read.items()}
        self._write(process, "consumer", committed=True)
        self._write(process, "assign", parts=dict.fromkeys(records, 0))
        self._write(process, "poll", records=records)
        return {part: found[-1][0] + 1 if found else 0 for part, found in records.items()}

    def _list_topics(self, cluster: Cluster) -> None:
        for node_id in cluster.nodes:
            try:
                answer = cluster.call(node_id, "metadata", 9, topics=None, allow_auto_topic_creation=False)
            except NOT_YET:
                continue
            self._write("final", "topics", names=[topic["name"] for topic in answer["topics"]])
            return

    def _write(self, process: str, kind: str, **fields: Any) -> None:
        event = {"p": process, "t": time.monotonic_ns(), "f": kind, **fields}
        with open(self._directory / "events" / "final.jsonl", "a") as file:
            file.write(json.dumps(event) + "\n")

    def _judge(self) -> None:
        history = History()
        for path in sorted((self._directory / "events").glob("*.jsonl")):
            with open(path) as file:
                history.add_lines(file)
        self.outcome.verdict = check(history)
        self.outcome.notes = history.notes
        acknowledged = Acknowledgements(history)
        end_ns = max((send.done_ns for send in history.sends.values()), default=0)
        for done in self.outcome.faults:
            until = done.next_ns or max(end_ns, done.ended_ns)
            self.outcome.silences_s.append(acknowledged.longest_silence_s(done.led, done.began_ns, until))


def keep(directory: Path, target: Path) -> None:
    """What a reader of a failed run needs: events, plans and logs, not the data."""
    target.mkdir(parents=True, exist_ok=True)
    for path in [*directory.glob("events/*"), *directory.glob("n*/broker.log")]:
        copy = target / path.relative_to(directory)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
