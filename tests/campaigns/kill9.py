"""`python -m tests.campaigns.kill9 --kills 200`: a broker process is killed with -9 again and again
while real clients produce, and afterwards every acknowledged record must be there.

A round is a fresh topic and some 25 kills at random moments, some of them during recovery itself; then the
writers stop, the broker is killed once more, and everything is read back from disk and judged by
`history.check`. The data directory lives through all rounds. Each restart is timed from exec to ready and
to the first acknowledged record of a bare connection. Adds to docs/evidence/kill9.json after each round;
`--resume` counts the kills already recorded there for the same source. Ends with 1 on any broken promise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests.targets import KafkaTarget, LockstepTarget, Target, TargetFailed
from tests.campaigns import evidence
from tests.campaigns.history import Verdict, check
from tests.campaigns.partition_client import first_ack
from tests.campaigns.writers import ALL_CLIENTS, Workload, Writer, make_writers

LOOPBACK = "127.0.0.1"
PARTITIONS = 4
RECOVERY_KILL_SHARE = 0.15
"""Of the kills, those followed by another while the broker is starting."""
FIRST_ACK_DEADLINE_S = 60.0
PROGRESS_DEADLINE_S = 60.0
MIN_RECORDS_BETWEEN_KILLS = 20
"""A kill while no client has been acknowledged anything would prove little."""
PROBE_TOPIC = "probe"
PRELOAD_TOPIC = "preload"


class Round:
    """Figures of one round; becomes one run in the evidence."""

    def __init__(self) -> None:
        self.kills = 0
        self.recovery_kills = 0
        self.ready_s: list[float] = []
        self.first_ack_s: list[float] = []
        self.verdict = Verdict()
        self.fatal: Counter[str] = Counter()
        self.stuck: list[str] = []

    @property
    def sound(self) -> bool:
        """Nothing lost, doubled or stuck."""
        return not self.verdict.kinds and not self.stuck


def run_round(
    target: Target, *, topic: str, kills: int, seed: int, clients: Sequence[str], records_per_s: float
) -> Round:
    """Kills `target` (running) `kills` times under `clients`, then reads everything back."""
    rng = random.Random(seed)
    result = Round()
    workload = Workload(target.bootstrap, topic, PARTITIONS, records_per_s, seed)
    writers = make_writers(workload, list(clients), target.directory)
    first_ack(target.port, PROBE_TOPIC, FIRST_ACK_DEADLINE_S)
    for writer in writers:
        writer.start()
    try:
        for _ in range(kills - 1):
            if not _wait_for_progress(workload, result):
                break
            time.sleep(rng.uniform(0.0, 1.5))
            _kill_and_restart(target, rng, result)
        _wait_for_progress(workload, result)
    finally:
        workload.stop.set()
        _join(writers, result)
    _kill_and_restart(target, rng, result)
    result.verdict = check(workload.histories, read_topic(target.bootstrap, topic, PARTITIONS))
    return result


def _wait_for_progress(workload: Workload, result: Round) -> bool:
    """False when the clients got nothing more acknowledged for a minute; that is a failure, too."""
    start = workload.acked()
    deadline = time.monotonic() + PROGRESS_DEADLINE_S
    while time.monotonic() < deadline:
        if workload.acked() - start >= MIN_RECORDS_BETWEEN_KILLS:
            return True
        time.sleep(0.01)
    result.stuck.append(f"kill {result.kills}: clients made no progress for {PROGRESS_DEADLINE_S} s")
    return False


def _join(writers: Sequence[Writer], result: Round) -> None:
    for writer in writers:
        try:
            writer.join()
        except TimeoutError as error:
            result.stuck.append(str(error))
        result.fatal.update({writer.label: len(writer.fatal)} if writer.fatal else {})
        for text in writer.fatal:
            print(f"  {writer.label} took a new client: {text}", flush=True)


def _kill_and_restart(target: Target, rng: random.Random, result: Round) -> None:
    if not target.running:
        raise TargetFailed(f"the broker had ended by itself with {target.exit_code}\n{target.log_tail()}")
    target.kill9()
    result.kills += 1
    if rng.random() < RECOVERY_KILL_SHARE:
        _kill_during_recovery(target, rng.uniform(0.0, 0.4))
        result.recovery_kills += 1
    started = time.monotonic()
    result.ready_s.append(target.start())
    first_ack(target.port, PROBE_TOPIC, FIRST_ACK_DEADLINE_S)
    result.first_ack_s.append(time.monotonic() - started)


def _kill_during_recovery(target: Target, after_s: float) -> None:
    def start() -> None:
        try:
            target.start()
        except TargetFailed:
            return  # that is what we are about

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    time.sleep(after_s)
    deadline = time.monotonic() + 5
    while not target.running and starting.is_alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    target.kill9()
    starting.join()
    target.kill9()


def read_topic(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes | None]]]:
    """Everything up to each partition's high watermark, in offset order, with CRCs checked by the client."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "campaign-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    read: dict[int, list[tuple[int, bytes | None]]] = {}
    try:
        for partition in range(partitions):
            read[partition] = _read_partition(consumer, topic, partition)
    finally:
        consumer.close()
    return read


def _read_partition(consumer: Any, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    import confluent_kafka

    place = confluent_kafka.TopicPartition(topic, partition, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=30, cached=False)
    records: list[tuple[int, bytes | None]] = []
    consumer.assign([place])
    deadline = time.monotonic() + 120
    while (records[-1][0] + 1 if records else 0) < end:
        for message in consumer.consume(5000, timeout=1.0):
            if message.error():
                raise RuntimeError(f"reading {topic}-{partition}: {message.error()}")
            records.append((message.offset(), message.value()))
        if time.monotonic() > deadline:
            raise TimeoutError(f"reading {topic}-{partition}: {len(records)} of {end} records")
    return records


def preload(bootstrap: str, total_bytes: int) -> None:
    """Fills the log with `total_bytes` of incompressible 64 KiB records."""
    import confluent_kafka

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 900_000, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    value = random.Random(1).randbytes(65_536)
    for _ in range(total_bytes // len(value)):
        while True:
            try:
                producer.produce(PRELOAD_TOPIC, value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(300)
    if left:
        raise TimeoutError(f"{left} records of the preload were not acknowledged")


def figures(result: Round, arguments: argparse.Namespace, seed: int, seconds: float) -> dict[str, Any]:
    """One run for the evidence file."""
    verdict = result.verdict
    return {
        "target": arguments.target,
        "seed": seed,
        "clients": arguments.clients.split(","),
        "preload_bytes": arguments.preload_bytes,
        "kills": result.kills,
        "kills_during_recovery": result.recovery_kills,
        "duration_s": round(seconds, 1),
        "records": {
            "sent": verdict.sent,
            "acknowledged": verdict.acked,
            "read_back": verdict.read,
            "unacknowledged_present": verdict.unacked_present,
            "repeats_without_idempotence": verdict.repeats,
        },
        "restart_to_ready": evidence.percentiles(result.ready_s),
        "restart_to_first_ack": evidence.percentiles(result.first_ack_s),
        "clients_replaced": dict(result.fatal),
        "problems": dict(verdict.kinds),
        "problem_texts": verdict.problems[:10] + result.stuck,
    }


def kills_on_record(preload_bytes: int) -> int:
    """Kills already recorded for this source and preload."""
    digest = evidence.source_digest()
    return sum(
        run["kills"]
        for run in evidence.load_runs("kill9")
        if run["source"] == digest and run["target"] == "lockstep" and run["preload_bytes"] == preload_bytes
    )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.kill9", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--round-kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--resume", action="store_true", help="count kills recorded for this source")
    parser.add_argument("--clients", default=",".join(ALL_CLIENTS))
    parser.add_argument("--records-per-s", type=float, default=150.0, help="of each client")
    parser.add_argument("--preload-bytes", type=int, default=0)
    parser.add_argument("--target", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker settings")
    parser.add_argument("--no-evidence", action="store_true")
    return parser.parse_args(words)


def make_target(name: str, settings: Sequence[str], directory: Path) -> Target:
    """The broker under test, not yet started."""
    properties = {"num.partitions": str(PARTITIONS), **dict(word.split("=", 1) for word in settings)}
    if name == "kafka":
        properties.setdefault("log.flush.interval.messages", "1")
        return KafkaTarget(properties, directory=directory, heap="512M")
    return LockstepTarget(properties, directory=directory)


def main(words: Sequence[str] | None = None) -> int:
    """Runs rounds until enough kills; the exit status is 1 when any round was not sound."""
    arguments = _arguments(words)
    done = kills_on_record(arguments.preload_bytes) if arguments.resume else 0
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    print(f"kill9: seed {seed}, {arguments.kills} kills wanted, {done} on record", flush=True)
    sound = True
    with tempfile.TemporaryDirectory(prefix="lockstep-kill9-") as name:
        target = make_target(arguments.target, arguments.set, Path(name))
        try:
            target.start()
            if arguments.preload_bytes:
                preload(target.bootstrap, arguments.preload_bytes)
            while done < arguments.kills and sound:
                kills = min(arguments.round_kills, arguments.kills - done)
                sound = _one_round(target, arguments, kills, seed)
                done += kills
                seed += 1
        finally:
            if not sound:
                print(f"broker's log kept: {target.keep_log()}", flush=True)
            target.close()
    return 0 if sound else 1


def _one_round(target: Target, arguments: argparse.Namespace, kills: int, seed: int) -> bool:
    began = time.monotonic()
    result = run_round(
        target,
        topic=f"round-{seed}",
        kills=kills,
        seed=seed,
        clients=arguments.clients.split(","),
        records_per_s=arguments.records_per_s,
    )
    run = figures(result, arguments, seed, time.monotonic() - began)
    print(f"seed {seed}: {run}", flush=True)
    if not arguments.no_evidence:
        evidence.add_run("kill9", run)
    return result.sound


if __name__ == "__main__":
    sys.exit(main())
