"""kcat, the command-line client (librdkafka as Debian ships it). One process per call."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from compat_tests.clients.face import (
    Assigned,
    Broker,
    CannotDo,
    Client,
    Cluster,
    Header,
    Member,
    Message,
    Refused,
    Stored,
    Tail,
    text_of,
)
from compat_tests.clients.security import PLAINTEXT, Security
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.waiting import readable

_RECORD_END = "~|~\n"
_KEY_END = "~|k|~"
_FORMAT = "%p %o %T %K %S|%k%s%h" + _RECORD_END.replace("\n", "\\n")
_CODES = {
    "Broker: Offset out of range": 1,
    "Broker: Unknown topic or partition": 3,
    "Broker: Message size too large": 10,
    "Broker: Invalid topic": 17,
    "Broker: Policy violation": 44,
    "Broker: Broker failed to validate record": 87,
}


_NO_SCRAM = "repeats its nonce (librdkafka before 2.6.1), which a broker must refuse"


class Kcat(Client):
    name = "kcat"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "fails every record of a batch that is too large, it does not split it",
        "SCRAM-SHA-256": _NO_SCRAM,
        "SCRAM-SHA-512": _NO_SCRAM,
        "OAUTHBEARER": "makes tokens without a signature, or (with a newer librdkafka) asks an issuer",
        "admin": "has no command to create, delete or configure topics",
        "add partitions": "has no command to add partitions",
        "delete records": "has no command to delete records",
        "set config": "has no command to configure topics",
        "commit": "commits by itself or not at all",
        "committed": "has no command for committed offsets",
        "group admin": "has no command for groups",
        "transactions": "has no transactional producer",
        "transaction admin": "has no command for transactions",
        "delete group": "has no command for groups",
        "set offset": "has no command for committed offsets",
        "delete offset": "has no command for committed offsets",
        "describe without creating": "its metadata question lets the broker create the topic",
        "topic id": "shows no topic ids",
        "cluster id": "shows no cluster id",
        "explicit timestamps": "cannot set a record's timestamp",
        "timestamp type": "does not print the timestamp's type in its format string",
        "offsets of writes": "does not print the offsets it wrote",
        "null key and value": "skips a message that is empty altogether",
        "empty key": "takes an empty key for no key",
        "headers of each": "takes the same headers for all records of a process",
        "empty value": "skips an empty message (or sends it as null with -Z)",
    }

    def __init__(self, bootstrap: str, *, security: Security = PLAINTEXT) -> None:
        super().__init__(bootstrap, security=security)
        self._program = _program()

    @classmethod
    def version(cls) -> str:
        said = subprocess.run([_program(), "-V"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"Version (\S+) .*librdkafka (\S+)", said)
        return f"{found[1]} (librdkafka {found[2]})" if found else "unknown"

    def _command(self, *words: str) -> list[str]:
        return [self._program, "-b", self.bootstrap, *_options(self.security.words()), *words]

    def _run(self, *words: str, stdin: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """Standard output. Refused when it reports a broker's error, TimeoutError when it hangs."""
        try:
            done = subprocess.run(
                self._command(*words), input=stdin, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise TimeoutError(f"kcat {' '.join(words)}: {late.stderr!r}") from late
        said = done.stderr.decode(errors="replace")
        for text, code in _CODES.items():
            if text in said:
                raise Refused(code, said.strip()[-300:])
        if done.returncode != 0 or "ERROR" in said:
            raise RuntimeError(f"kcat {' '.join(words)} ended with {done.returncode}: {said[-500:]}")
        return done.stdout

    def first_contact(self) -> str:
        asked = self._command("-L", "-m", "2")
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        return done.stderr if done.returncode else ""

    # -- produce ----------------------------------------------------------------------------------------

    def _produce(self, topic: str, messages: Sequence[Message], settings: dict[str, Any]) -> list[int]:
        settings["message.timeout.ms"] = 15_000
        if "max.request.size" in settings:
            settings["message.max.bytes"] = settings.pop("max.request.size")
        words = ["-P", "-t", topic, "-D", _RECORD_END, "-K", _KEY_END, *_options(settings)]
        for (partition, headers, with_null), group in itertools.groupby(messages, _run_key):
            extra = ["-p", str(partition), *(["-Z"] if with_null else [])]
            for name, value in headers:
                extra += ["-H", name if value is None else f"{name}={value.decode()}"]
            self._run(*words, *extra, stdin=b"".join(_line(each) for each in group))
        return []

    # -- consume ----------------------------------------------------------------------------------------

    def _read(
        self, topic: str, count: int, where: Assigned, timeout_s: float, settings: dict[str, Any]
    ) -> list[Stored]:
        offset = {"earliest": "beginning", "latest": "end"}.get(str(where.start), str(where.start))
        settings |= {"topic.auto.offset.reset": "error", "allow.auto.create.topics": False}
        words = ["-C", "-q", "-e", "-t", topic, "-o", offset, "-f", _FORMAT, *_options(settings)]
        if len(where.partitions) == 1:
            words += ["-p", str(where.partitions[0])]
        out = self._run(*words, "-c", str(count), timeout_s=timeout_s)  # without -p: all partitions
        return [each for each in _parse(out) if each.partition in where.partitions]

    def tail(self, topic: str, partition: int, *, max_wait_ms: int) -> Tail:
        words = ["-C", "-q", "-u", "-t", topic, "-p", str(partition), "-o", "end", "-c", "1", "-f", _FORMAT]
        words += ["-X", f"fetch.wait.max.ms={max_wait_ms}", "-X", f"socket.timeout.ms={max_wait_ms + 5000}"]
        process = subprocess.Popen(self._command(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(0.7)  # nothing it prints tells when its first fetch waits
        return _KcatTail(process)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found = self._query(topic, partition, timestamp_ms)
        return None if found < 0 else found  # -1 is librdkafka's "end"

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        out = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}").decode()
        found = re.search(r"\[\d+\] offset (-?\d+)", out)
        if found is None:
            raise RuntimeError(f"kcat -Q said {out!r}")
        return int(found[1])

    # -- groups -----------------------------------------------------------------------------------------

    def _join(self, topics: Sequence[str], settings: dict[str, Any]) -> Member:
        group = settings.pop("group.id")
        settings["allow.auto.create.topics"] = False
        words = ["-u", "-f", _FORMAT, *_options(settings)]
        return _KcatMember(self._command(*words, "-G", group, *topics))

    # -- metadata ---------------------------------------------------------------------------------------

    def _metadata(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._run("-L", "-J", *words))
        return found

    def topics(self) -> set[str]:
        return {each["topic"] for each in self._metadata()["topics"]}

    def partition_count(self, topic: str) -> int:
        (found,) = self._metadata("-t", topic)["topics"]
        if "error" in found:
            raise Refused(_CODES.get(found["error"], -1), found["error"])
        return len(found["partitions"])

    def cluster(self) -> Cluster:
        found = self._metadata()
        brokers = []
        for each in found["brokers"]:
            host, _, port = each["name"].rpartition(":")
            brokers.append(Broker(each["id"], host, int(port)))
        return Cluster(tuple(brokers), found["controllerid"], None)

    def close(self) -> None:
        """Nothing outlives a call."""


class _KcatTail(Tail):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def next(self, timeout_s: float) -> Stored | None:
        assert self._process.stdout is not None
        got = b""
        until = time.monotonic() + timeout_s
        while not got.endswith(_RECORD_END.encode()):
            ready = readable([self._process.stdout.fileno()], until - time.monotonic())
            part = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                return None
            got += part
        return next(_parse(got), None)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class _KcatMember(Member):
    """A process that prints records on its output and every rebalance on its error output."""

    _REBALANCED = re.compile(rb"% Group \S+ rebalanced[^\n]*?(assign|revoke)[^\n]*: ([^\n]*)\n")
    """Eager ("assigned: t [0]") and cooperative ("incremental assignment of 1 partition(s) (...): t [0]")."""
    _PARTITION = re.compile(rb"(\S+) \[(\d+)\]")

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._outputs = {self._process.stdout.fileno(): b"", self._process.stderr.fileno(): b""}
        self._out, self._err = self._outputs
        self._waiting: list[Stored] = []
        self._owned: set[tuple[str, int]] = set()

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        until = time.monotonic() + timeout_s
        before = set(self._owned)
        self._take(0.0)
        while time.monotonic() < until and (len(self._waiting) < count if count else self._owned == before):
            self._take(until - time.monotonic())
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return found

    def _take(self, timeout_s: float) -> None:
        """Whatever it has printed by now, or prints first."""
        for each in readable(self._outputs, timeout_s):
            part = os.read(each, 1 << 16)
            if not part:
                raise RuntimeError(f"kcat ended: {self._outputs[self._err][-500:]!r}")
            self._outputs[each] += part
        whole, end, rest = self._outputs[self._out].rpartition(_RECORD_END.encode())
        self._waiting += _parse(whole + end)
        lines, end, last = self._outputs[self._err].rpartition(b"\n")
        self._outputs.update({self._out: rest, self._err: last})
        for change, partitions in self._REBALANCED.findall(lines + end):
            named = {(topic.decode(), int(n)) for topic, n in self._PARTITION.findall(partitions)}
            self._owned = self._owned | named if change == b"assign" else self._owned - named

    def assignment(self) -> set[tuple[str, int]]:
        self._take(0.0)
        return set(self._owned)

    def commit(self) -> None:
        raise CannotDo(Kcat.cannot["commit"])

    def close(self) -> None:
        """It leaves, and commits where it was told to, when it is asked to end."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@functools.cache
def _program() -> str:
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        raise ToolchainMissing("kcat not found: install the package kcat")
    return found


def _options(settings: Mapping[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-X", f"{name}={text_of(value)}")]


def _run_key(message: Message) -> tuple[int, tuple[Header, ...], bool]:
    """What one kcat process has in common for all its messages."""
    return message.partition, message.headers, message.value is None


def _line(message: Message) -> bytes:
    key = b"" if message.key is None else message.key + _KEY_END.encode()
    return key + (message.value or b"") + _RECORD_END.encode()


def _parse(out: bytes) -> Iterator[Stored]:
    place = 0
    while place < len(out):
        bar = out.index(b"|", place)
        partition, offset, timestamp_ms, key_length, value_length = map(int, out[place:bar].split())
        place = bar + 1
        key = None if key_length < 0 else out[place : place + key_length]
        place += max(0, key_length)
        value = None if value_length < 0 else out[place : place + value_length]
        place += max(0, value_length)
        end = out.index(_RECORD_END.encode(), place)
        headers = tuple(_header(part) for part in out[place:end].split(b",") if part)
        place = end + len(_RECORD_END)
        yield Stored(partition, offset, key, value, headers, timestamp_ms)


def _header(text: bytes) -> Header:
    name, _, value = text.partition(b"=")
    return name.decode(), None if value == b"NULL" else value
