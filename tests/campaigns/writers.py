"""Real producers that never stop: what each sent and was told goes into a `WriterHistory`.

Owns: one thread (or Java process) per writer. A writer whose client turns fatal - some clients do when a
broker dies under an idempotent producer - goes on with a new client under a new name, so every history
belongs to exactly one producer instance. A send without an acknowledgement stays "unknown", which the
checker allows to be there or not. Payloads are padded with incompressible bytes of random length.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from compat_tests.kafka_jars import SHORT_LIVED, classpath, java_command
from tests.campaigns.history import UNKNOWN_SENT, WriterHistory, make_value

FLUSH_TIMEOUT_S = 60.0
MAX_PADDING_BYTES = 1500


class Workload:
    """What all writers of one round share."""

    __slots__ = ("bootstrap", "histories", "partitions", "records_per_s", "seed", "stop", "topic")

    def __init__(self, bootstrap: str, topic: str, partitions: int, records_per_s: float, seed: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.records_per_s = records_per_s
        self.seed = seed
        self.stop = threading.Event()
        self.histories: list[WriterHistory] = []

    def acked(self) -> int:
        """Acknowledged so far, over all writers."""
        return sum(len(history.acked) for history in list(self.histories))


class Writer:
    """One kind of client in its own thread; a subclass sends through one client until stop or fatal error."""

    kind = ""

    def __init__(self, workload: Workload, idempotent: bool) -> None:
        self.workload = workload
        self.idempotent = idempotent
        self.incarnations = 0
        self.fatal: list[str] = []
        self._rng = random.Random(f"{workload.seed}-{workload.topic}-{self.kind}-{idempotent}")
        self._thread = threading.Thread(target=self._run, name=self.label, daemon=True)

    @property
    def label(self) -> str:
        """`confluent-idempotent`, `aiokafka-plain` and the like."""
        return f"{self.kind}-{'idempotent' if self.idempotent else 'plain'}"

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def join(self) -> None:
        """Waits for the last acknowledgements, after `workload.stop` was set. TimeoutError."""
        self._thread.join(FLUSH_TIMEOUT_S + 30)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.label} did not finish")

    def _run(self) -> None:
        while not self.workload.stop.is_set():
            history = WriterHistory(f"{self.label}-{self.incarnations}", self.kind, self.idempotent)
            self.incarnations += 1
            self.workload.histories.append(history)
            try:
                self.send_until_stopped(history)
            except Exception as error:  # a client's fatal error ends this client, not the campaign
                self.fatal.append(f"{type(error).__name__}: {error}"[:200])
                self.workload.stop.wait(0.2)

    def send_until_stopped(self, history: WriterHistory) -> None:
        """Sends through one client. Any exception means: this client is finished, take a new one."""
        raise NotImplementedError

    def next_record(self, history: WriterHistory) -> tuple[int, int, bytes]:
        """(sequence, partition, value) of the next send; counted as sent."""
        sequence = history.sent
        history.sent += 1
        padding = self._rng.randbytes(self._rng.randrange(MAX_PADDING_BYTES)).replace(b"|", b"/")
        return (
            sequence,
            self._rng.randrange(self.workload.partitions),
            make_value(history.name, sequence, padding),
        )

    def pause_s(self) -> float:
        """Bursty gaps that average out to the workload's rate."""
        return self._rng.expovariate(self.workload.records_per_s)


class ConfluentWriter(Writer):
    """confluent-kafka (librdkafka)."""

    kind = "confluent"

    def send_until_stopped(self, history: WriterHistory) -> None:
        import confluent_kafka

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.workload.bootstrap,
                "enable.idempotence": self.idempotent,
                "acks": "all",
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 60_000,
                "compression.type": self._rng.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
                "log_level": 0,
            }
        )
        fatal: list[str] = []
        failed = functools.partial(self._on_client_error, fatal)
        while not self.workload.stop.is_set():
            sequence, partition, value = self.next_record(history)
            told = functools.partial(self._told, history, sequence, failed)
            producer.produce(self.workload.topic, value, partition=partition, on_delivery=told)
            producer.poll(self.pause_s())
            if fatal:
                raise RuntimeError(fatal[0])
        producer.flush(FLUSH_TIMEOUT_S)

    @staticmethod
    def _on_client_error(fatal: list[str], error: Any) -> None:
        if error.fatal() or error.name() == "_FATAL":
            fatal.append(str(error))

    @staticmethod
    def _told(
        history: WriterHistory, sequence: int, failed: Callable[[Any], None], error: Any, message: Any
    ) -> None:
        if error is None:
            offset = message.offset()
            history.acked[sequence] = (message.partition(), -1 if offset is None else offset)
        else:
            history.failed += 1
            failed(error)


class AiokafkaWriter(Writer):
    """aiokafka, in an event loop of its own thread."""

    kind = "aiokafka"

    def send_until_stopped(self, history: WriterHistory) -> None:
        asyncio.run(self._send(history))

    async def _send(self, history: WriterHistory) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.workload.bootstrap,
            enable_idempotence=self.idempotent,
            acks="all",
            linger_ms=2,
            retry_backoff_ms=50,
            request_timeout_ms=60_000,
            compression_type=self._rng.choice([None, "gzip", "snappy", "lz4", "zstd"]),
        )
        await producer.start()
        fatal: list[BaseException] = []
        try:
            while not self.workload.stop.is_set():
                sequence, partition, value = self.next_record(history)
                future = await producer.send(self.workload.topic, value, partition=partition)
                future.add_done_callback(functools.partial(self._told, history, sequence, fatal))
                await asyncio.sleep(self.pause_s())
                if fatal:
                    raise fatal[0]
        finally:
            await asyncio.wait_for(producer.stop(), FLUSH_TIMEOUT_S)

    def _told(self, history: WriterHistory, sequence: int, fatal: list[BaseException], future: Any) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None and not future.cancelled():
            answer = future.result()
            history.acked[sequence] = (answer.partition, answer.offset)
            return
        history.failed += 1
        if self.idempotent and error is not None:
            fatal.append(error)  # an idempotent aiokafka producer cannot go on after a failed batch


class KafkaPythonWriter(Writer):
    """kafka-python; idempotent by default, as its users have it."""

    kind = "kafka-python"

    def send_until_stopped(self, history: WriterHistory) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.workload.bootstrap,
            enable_idempotence=self.idempotent,
            acks="all",
            linger_ms=2,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=20,
            max_block_ms=60_000,
            compression_type=self._rng.choice([None, "gzip", "snappy", "lz4", "zstd"]),
        )
        failures: list[BaseException] = []
        try:
            while not self.workload.stop.is_set():
                sequence, partition, value = self.next_record(history)
                future = producer.send(self.workload.topic, value, partition=partition)
                future.add_callback(functools.partial(self._acked, history, sequence))
                future.add_errback(functools.partial(self._failed, history, failures))
                time.sleep(self.pause_s())
                if failures:
                    raise failures[0]
            producer.flush(FLUSH_TIMEOUT_S)
        finally:
            producer.close(timeout=FLUSH_TIMEOUT_S)

    @staticmethod
    def _acked(history: WriterHistory, sequence: int, metadata: Any) -> None:
        history.acked[sequence] = (metadata.partition, metadata.offset)

    @staticmethod
    def _failed(history: WriterHistory, failures: list[BaseException], error: BaseException) -> None:
        history.failed += 1
        failures.append(error)


class JavaWriter(Writer):
    """Kafka's own producer through its VerifiableProducer, which prints every acknowledgement as JSON."""

    kind = "java"

    def __init__(self, workload: Workload, idempotent: bool, directory: Path) -> None:
        super().__init__(workload, idempotent)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def send_until_stopped(self, history: WriterHistory) -> None:
        prefix = self._rng.randrange(1, 2**31)
        history.name = f"java-{prefix}"
        # How far it got is only known from its answers, so nothing it may have sent is a phantom.
        history.sent = UNKNOWN_SENT
        config = self._directory / f"producer-{prefix}.properties"
        config.write_text(
            f"enable.idempotence={str(self.idempotent).lower()}\nretries=2147483647\nlinger.ms=2\n"
            "reconnect.backoff.ms=20\nreconnect.backoff.max.ms=200\nretry.backoff.ms=20\n"
        )
        words = [java_command(), "-Xmx128M", *SHORT_LIVED, "-cp", classpath()]
        words += ["org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", self.workload.bootstrap]
        words += [
            "--topic",
            self.workload.topic,
            "--throughput",
            str(max(1, int(self.workload.records_per_s))),
        ]
        words += ["--value-prefix", str(prefix), "--command-config", str(config)]
        with open(self._directory / "java.log", "ab") as log:
            self._process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        stopper = threading.Thread(target=self._stop_when_asked, args=(self._process,), daemon=True)
        stopper.start()
        assert self._process.stdout is not None
        self._read_answers(history, self._process.stdout)
        if self._process.wait(FLUSH_TIMEOUT_S) and not self.workload.stop.is_set():
            raise RuntimeError(f"VerifiableProducer ended with {self._process.returncode}")

    def _stop_when_asked(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM makes the tool close its producer, which waits for what is under way."""
        while process.poll() is None:
            if self.workload.stop.wait(0.5):
                process.terminate()
                try:
                    process.wait(FLUSH_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()

    @staticmethod
    def _read_answers(history: WriterHistory, lines: IO[bytes]) -> None:
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # cut off in the middle of a line
            if said.get("name") == "producer_send_success":
                sequence = int(said["value"].rpartition(".")[2])
                history.acked[sequence] = (said["partition"], said["offset"])
            elif said.get("name") == "tool_data":
                history.sent = said["sent"]
            elif said.get("name") == "producer_send_error":
                history.failed += 1


def make_writers(workload: Workload, kinds: list[str], directory: Path) -> list[Writer]:
    """One writer per kind, `NAME` idempotent or `NAME-plain` not. ValueError for an unknown kind."""
    for chatty in ("aiokafka", "kafka"):
        logging.getLogger(chatty).setLevel(logging.CRITICAL)  # a dead broker is the point here
    writers: list[Writer] = []
    for kind in kinds:
        name, _, flavour = kind.partition(":")
        idempotent = flavour != "plain"
        if name == "java":
            writers.append(JavaWriter(workload, idempotent, directory))
        elif name in PYTHON_WRITERS:
            writers.append(PYTHON_WRITERS[name](workload, idempotent))
        else:
            raise ValueError(f"unknown client {name!r}; there are java, {', '.join(PYTHON_WRITERS)}")
    return writers


PYTHON_WRITERS: dict[str, type[Writer]] = {
    writer.kind: writer for writer in (ConfluentWriter, AiokafkaWriter, KafkaPythonWriter)
}
ALL_CLIENTS = [
    "confluent",
    "confluent:plain",
    "aiokafka",
    "aiokafka:plain",
    "kafka-python",
    "kafka-python:plain",
    "java",
]
