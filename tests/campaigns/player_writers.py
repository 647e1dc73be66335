"""What writes while the player's campaign goes on: records for some of the targets each, in threads.

Owns: two idempotent producers, one of which compresses, and one that writes transactions and aborts some.
Each record's header names the targets that it is for: mostly one or two, now and then all or nobody; a value
may be null. A key is always of one partition. What is in the topic in the end is read from the topic: a
transaction of which nobody knows what became is no problem.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import confluent_kafka

from tests.campaigns.player_judge import HEADER
from tests.campaigns.transforming import CALL_S, QUICK, Stuck, returning

KEYS: Final = 5000
PATIENCE_S: Final = 180.0
REMOVED_SHARE: Final = 0.03
NOBODY_SHARE: Final = 0.02
ABORTED_SHARE: Final = 0.25
TRANSACTION_RECORDS: Final = 40
PACE_S: Final = 0.01


class Drawn:
    """Random records, as keywords of `Producer.produce`."""

    def __init__(self, word: str, topic: str, targets: Sequence[str], seed: str) -> None:
        self.rng = random.Random(seed)
        self._word = word
        self._topic = topic
        self._targets = targets
        self._number = 0

    def record(self) -> dict[str, Any]:
        rng, targets = self.rng, self._targets
        self._number += 1
        if rng.random() < NOBODY_SHARE:
            names: Sequence[str] = ()
        else:
            names = rng.sample(targets, min(len(targets), rng.choice((1, 1, 1, 1, 2, 2, len(targets)))))
        value = f"{self._word} {self._number} ".ljust(rng.randrange(20, 180), "x").encode()
        return {
            "topic": self._topic,
            "key": b"%d" % rng.randrange(KEYS),
            "value": None if rng.random() < REMOVED_SHARE else value,
            "headers": [(HEADER, ",".join(names).encode())],
        }


class Writer(threading.Thread):
    """One of them: so many records a second, until `finish`. `problem` says why it does not go on."""

    def __init__(self, drawn: Drawn, config: dict[str, Any], rate: float) -> None:
        super().__init__(daemon=True)
        self.written = 0
        """Records that were acknowledged."""
        self.problem = ""
        self._drawn = drawn
        self._rate = rate
        self._finishing = threading.Event()
        self._config = {
            **QUICK,
            "enable.idempotence": True,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            "linger.ms": 5,
            **config,
        }

    def finish(self) -> None:
        self._finishing.set()

    def run(self) -> None:
        try:
            self._write()
        except Exception as error:
            self.problem = repr(error)

    def _write(self) -> None:
        producer = confluent_kafka.Producer(self._config)
        produced, began = 0, time.monotonic()
        while not self._finishing.is_set() and not self.problem:
            due = int((time.monotonic() - began) * self._rate)
            try:
                while produced < due:
                    producer.produce(**self._drawn.record(), on_delivery=self._told)
                    produced += 1
            except BufferError:
                began += PACE_S  # nobody takes them now: so much less is due
            producer.poll(PACE_S)
        if (left := producer.flush(PATIENCE_S)) and not self.problem:
            self.problem = f"{left} records were not acknowledged"

    def _told(self, error: Any, _: Any) -> None:
        if error is None:
            self.written += 1
        elif not self.problem:
            self.problem = f"not written: {error}"


class TransactionWriter(Writer):
    """The same in transactions. After any error it goes on with another producer of its id."""

    aborted = 0
    replaced = 0

    def _write(self) -> None:
        while not self._finishing.is_set():
            producer = confluent_kafka.Producer(self._config)
            try:
                returning(producer.init_transactions, CALL_S)
                while not self._finishing.is_set():
                    self._transaction(producer)
            except (confluent_kafka.KafkaException, BufferError, Stuck):
                self.replaced += 1
                self._finishing.wait(0.2)
            finally:
                producer.purge(blocking=False)

    def _transaction(self, producer: Any) -> None:
        rng = self._drawn.rng
        count = rng.randrange(1, 2 * TRANSACTION_RECORDS)
        began = time.monotonic()
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(**self._drawn.record())
            if rng.random() < 0.05:
                producer.poll(PACE_S)
        if rng.random() < ABORTED_SHARE:
            producer.flush(CALL_S)  # so that there is something to leave out
            returning(producer.abort_transaction, CALL_S)
            self.aborted += 1
        else:
            returning(producer.commit_transaction, CALL_S)
            self.written += count
        self._finishing.wait(max(0.0, began + count / self._rate - time.monotonic()))


class Writers:
    """All of them."""

    def __init__(self, bootstrap: str, topic: str, targets: Sequence[str], rate: float, seed: int) -> None:
        """`rate`: records a second, of all together."""

        def drawn(word: str) -> Drawn:
            return Drawn(word, topic, targets, f"{seed} {word}")

        servers = {"bootstrap.servers": bootstrap}
        transactional = {
            "transactional.id": "campaign",
            "transaction.timeout.ms": 15_000,
            "message.timeout.ms": 10_000,
            "compression.type": "lz4",
        }
        self.transactions = TransactionWriter(drawn("t"), {**servers, **transactional}, 0.1 * rate)
        self._all = [
            Writer(drawn("p"), servers, 0.5 * rate),
            Writer(drawn("z"), {**servers, "compression.type": "zstd"}, 0.4 * rate),
            self.transactions,
        ]

    def start(self) -> None:
        for each in self._all:
            each.start()

    @property
    def written(self) -> int:
        return sum(each.written for each in self._all)

    @property
    def problems(self) -> list[str]:
        return [f"a writer: {each.problem}" for each in self._all if each.problem]

    def finish(self) -> None:
        """Everything is acknowledged afterwards, or a problem is there."""
        for each in self._all:
            each.finish()
        for each in self._all:
            each.join(2 * PATIENCE_S)
