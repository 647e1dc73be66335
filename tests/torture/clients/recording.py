"""What every Python worker has: its options, its file of events, the values it sends, and how it is ended.

Owns: `Recorder` (one line per event, written whole and at once, so a killed worker's file ends in at most
one cut line) and `Worker` (the options; SIGTERM asks it to finish what is under way). Times are
CLOCK_MONOTONIC, which all processes of a machine share, Java's System.nanoTime included.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import time
from typing import IO, Any

KEYS = 8
"""Per producer; each key has its partition."""
PAYLOAD_BYTES = 1000


class Recorder:
    """Events of one process (one client instance)."""

    def __init__(self, file: IO[str], process: str) -> None:
        self._file = file
        self.process = process

    def write(self, kind: str, **fields: Any) -> None:
        event = {"p": self.process, "t": time.monotonic_ns(), "f": kind, **fields}
        self._file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def send_end(self, value: str, error: str | None, offset: int, *, certain: bool = False) -> None:
        """How a send ended: no error, an error that leaves it open, or (`certain`) one that does not."""
        if error is None:
            self.write("send", s="ok", v=value, offset=offset)
        else:
            self.write("send", s="fail" if certain else "info", v=value, error=error[:200])

    def transaction(self, step: str, name: str, **fields: Any) -> None:
        """begin, asked for (commit, abort) or told (committed, aborted)."""
        self.write("tx", s=step, x=name, **fields)

    def moved(self, kind: str, topic: str, partitions: dict[int, int | None]) -> None:
        """assign, revoke or seek."""
        self.write(kind, parts={f"{topic}-{partition}": offset for partition, offset in partitions.items()})


class Worker:
    """One worker's options and its end."""

    def __init__(self, words: list[str] | None = None) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument(
            "--role", required=True, help="idempotent, plain, transactional, assign, subscribe, create"
        )
        for name in ("--name", "--bootstrap", "--topic", "--out"):
            parser.add_argument(name, required=True)
        parser.add_argument("--group", default="")
        parser.add_argument("--partitions", type=int, required=True)
        parser.add_argument("--rate", type=float, default=50.0)
        parser.add_argument("--lifetime-s", type=float, default=20.0, help="then a new client is taken")
        parser.add_argument("--seed", type=int, default=0)
        options = parser.parse_args(words)
        self.role: str = options.role
        self.name: str = options.name
        self.bootstrap: str = options.bootstrap
        self.topic: str = options.topic
        self.group: str = options.group
        self.partitions: int = options.partitions
        self.rate: float = options.rate
        self.lifetime_s: float = options.lifetime_s
        self.rng = random.Random(f"{options.seed}-{options.name}")
        self.stopping = False
        self._file = open(options.out, "a", buffering=1)  # noqa: SIM115  (lives as long as the process)
        self._incarnations = 0
        self._sequence = 0
        self.transactions = 0
        logging.disable(logging.CRITICAL)  # dead brokers are the point here
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, *_: object) -> None:
        self.stopping = True

    def next_recorder(self) -> Recorder:
        """For a new client."""
        self._incarnations += 1
        self._sequence = 0
        recorder = Recorder(self._file, f"{self.name}.{self._incarnations}")
        if self.role in ("idempotent", "plain", "transactional"):
            recorder.write("producer", idempotent=self.role != "plain")
        return recorder

    @property
    def transactional_id(self) -> str:
        """Also the group for which its transactions commit."""
        return f"tx-{self.name}"

    def next_transaction(self, recorder: Recorder) -> tuple[str, int]:
        """The next one's name, written down as begun, and the offset that it is to commit for the group."""
        self.transactions += 1
        name, number = f"{recorder.process}#{self.transactions}", self.transactions
        recorder.transaction(
            "begin", name, group=self.transactional_id, part=f"{self.topic}-0", offset=number
        )
        return name, number

    def fetched(self, recorder: Recorder, offset: int) -> None:
        """What is committed for the group, asked while nothing is under way."""
        recorder.write("fetched", group=self.transactional_id, part=f"{self.topic}-0", offset=max(offset, -1))

    def next_record(self, recorder: Recorder, transaction: str | None = None) -> tuple[int, str, str]:
        """(partition, key, value) of the next send, which is written down as begun."""
        self._sequence += 1
        number = self.rng.randrange(KEYS)
        partition = number % self.partitions
        key, value = f"{self.name}-k{number}", f"{recorder.process}.{self._sequence}"
        within = {} if transaction is None else {"x": transaction}
        recorder.write("send", s="invoke", part=f"{self.topic}-{partition}", key=key, v=value, **within)
        return partition, key, value

    def pause_s(self) -> float:
        """Bursty gaps that average out to the rate."""
        return self.rng.expovariate(self.rate)

    def lifetime_end(self) -> float:
        """When (monotonic seconds) this client is to be replaced."""
        return time.monotonic() + self.rng.uniform(0.5, 1.5) * self.lifetime_s


def payload(value: str) -> bytes:
    """The bytes of a value: the value itself, a space, and padding."""
    return f"{value} ".encode().ljust(PAYLOAD_BYTES, b".")


def value_of(data: bytes | None) -> str:
    """The value in these bytes; what is not ours shows as itself, and is a phantom."""
    return "(null)" if data is None else data.split(b" ", 1)[0].decode(errors="replace")
