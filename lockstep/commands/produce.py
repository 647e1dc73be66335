"""`lockstep produce TOPIC`: one record per line of standard input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lockstep.commands.options import (
    Families,
    add_connection,
    add_json,
    client_of,
    followed_topic,
    pair,
    print_json,
    print_progress,
    report_silence,
    separator,
    topic_of,
    whole_number,
)
from lockstep.failures import CommandFailed, report_client_errors

if TYPE_CHECKING:
    from lockstep.kafka_client.client import Client, TopicMetadata
    from lockstep.kafka_client.followed_topic import FollowedTopic
    from lockstep.protocol.records.record import BatchBuilder

BATCH_BYTES = 128 * 1024
"""Records of one batch, uncompressed; less where the topic allows less."""
_RECORD_OVERHEAD_BYTES = 40
"""At most this much of a record is neither key, value nor header."""
_READ_BYTES = 1024 * 1024
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Entry = tuple[bytes | None, bytes | None]
ProducerIdAndEpoch = tuple[int, int]


def add_to(families: Families) -> None:
    """Declare the command."""
    produce = families.add_parser(
        "produce",
        help="write lines to a topic",
        description="Write each line of standard input as one record, without its end (\\n or \\r\\n). Ends "
        "at the end of the input, when everything is acknowledged. Where a leader goes, the next one gets "
        "its records, and no record is appended twice; records sent with --acks 0 may be lost.",
    )
    produce.add_argument("topic", help="its name")
    produce.add_argument(
        "-K",
        "--key-separator",
        type=separator,
        metavar="TEXT",
        help="lines are KEY, this text, VALUE; escapes such as \\t work",
    )
    produce.add_argument(
        "--null",
        metavar="TEXT",
        help="send a key or value that is exactly this text as null (a null value deletes)",
    )
    produce.add_argument(
        "-H",
        "--header",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of every record; may be repeated",
    )
    produce.add_argument(
        "-p",
        "--partition",
        type=whole_number,
        metavar="N",
        help="default: by key as Java's producer does; without keys, lines that arrive together go to one "
        "partition, the next lines to the next",
    )
    produce.add_argument("-z", "--codec", choices=_CODECS, default="none", help="compression (default none)")
    produce.add_argument(
        "--acks", choices=tuple(_ACKS), default="all", help="what to wait for (default all; 0: nothing)"
    )
    add_json(produce, "one object at the end: the number of records by partition")
    add_connection(produce)
    produce.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    import asyncio

    asyncio.run(_produce(options))
    return 0


async def _produce(options: argparse.Namespace) -> None:
    from lockstep.commands.standard_input import lines_of

    if sys.stdin is None:
        raise CommandFailed("standard input is closed")
    with report_client_errors():
        made = client_of(options, outlives_leaders=True)
    async with made as client:
        with report_client_errors():
            topic = await topic_of(client, options.topic, options.timeout, create=True)
        if options.partition is not None and options.partition >= len(topic.partitions):
            raise CommandFailed(f"topic {topic.name} has partitions 0 to {len(topic.partitions) - 1} only")
        with report_client_errors():
            configs = await _configs(client, topic)
            producer = await _Producer.begin(client, topic, options)
        if problem := _unchecked_locks(topic.name, options.header, configs.get("lockstep.locks")):
            print_progress(problem)
        writer = _Writer(producer, len(topic.partitions), options, _largest_batch(configs))
        try:
            with report_client_errors():
                async with report_silence(producer.followed):
                    async for lines in lines_of(sys.stdin.buffer, _READ_BYTES):
                        await writer.write([_entry(line, options) for line in lines])
        except CommandFailed as error:
            if options.json:
                _print_result(topic, writer)
            raise CommandFailed(f"{error}; {writer.describe_outcome(options.acks)}") from error
    if options.json:
        _print_result(topic, writer)


def _print_result(topic: TopicMetadata, writer: _Writer) -> None:
    print_json(
        {
            "topic": topic.name,
            "records": writer.total,
            "partitions": [
                {"partition": index, "records": count, "next_offset": next_offset}
                for index, (count, next_offset) in sorted(writer.written.items())
            ],
        }
    )


async def _configs(client: Client, topic: TopicMetadata) -> dict[str, str | None]:
    """The topic's settings by name; none where the broker does not report them."""
    from lockstep.kafka_client.connection import ClientError

    try:
        return {config.name: config.value for config in await client.topic_configs(topic.name)}
    except ClientError:
        return {}


def _largest_batch(configs: Mapping[str, str | None]) -> int:
    """The topic's `max.message.bytes`; the default where it is not known."""
    limit = configs.get("max.message.bytes")
    return min(BATCH_BYTES, int(limit)) if limit and limit.isdecimal() else BATCH_BYTES


def _unchecked_locks(topic: str, headers: Sequence[tuple[str, str]], locks: str | None) -> str:
    """A warning where the records have headers of locks that the topic ignores; empty otherwise.

    Args:
        locks: the topic's `lockstep.locks`; None where the broker knows of no such setting.
    """
    from lockstep.protocol.lock_words import PREFIX

    names = dict.fromkeys(name for name, _ in headers if name.startswith(PREFIX))
    if not names or locks not in (None, "ignore"):
        return ""
    return (
        f"topic {topic} has no locks, so that nothing checks the headers {', '.join(names)} and every record "
        f"is appended; to have them checked: lockstep configs alter topic {topic} lockstep.locks=true "
        "(docs/locks.md)"
    )


def _entry(line: bytes, options: argparse.Namespace) -> Entry:
    """(key, value) of one line."""
    key: bytes | None = None
    value: bytes | None = line
    if options.key_separator is not None:
        mark = options.key_separator.encode()
        found, middle, rest = line.partition(mark)
        if not middle:
            raise CommandFailed(f"no {options.key_separator!r} in the line {line[:80]!r}")
        key, value = found, rest
    if options.null is not None:
        null = options.null.encode()
        key = None if key == null else key
        value = None if value == null else value
    return key, value


def _is_definite(error: Exception) -> bool:
    """True if the error means that the batch was not appended: the leader has checked and rejected it.

    Other errors may arise after the append, or leave its outcome open: a former leader, a timeout, a failed
    disk.
    """
    from lockstep.kafka_client.connection import BrokerError
    from lockstep.protocol.errors import ErrorCode

    return isinstance(error, BrokerError) and error.code in (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.POLICY_VIOLATION,  # a conditional write (docs/locks.md), among others
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )


class _Producer:
    """Sends batches to the leader. Numbered ones are sent again whatever became of them, others (of who
    has no response, or to brokers that do not number) only as long as none can have them."""

    def __init__(
        self, followed: FollowedTopic, acks: int, timeout_s: float, numbered: ProducerIdAndEpoch | None
    ) -> None:
        self.followed = followed
        self._acks = acks
        self._timeout_s = timeout_s
        self._numbered = numbered
        self._sequences: dict[int, int] = {}
        self.in_doubt: set[int] = set()
        """Partitions for which it is unknown whether they have the newest batch."""

    @classmethod
    async def begin(cls, client: Client, topic: TopicMetadata, options: argparse.Namespace) -> _Producer:
        from lockstep.kafka_client.connection import Unsupported

        followed = followed_topic(client, topic)
        acks, numbered = _ACKS[options.acks], None
        if acks != 0:
            with suppress(Unsupported):
                numbered = await followed.retry_while(client.producer_id, options.timeout)
        return cls(followed, acks, options.timeout, numbered)

    async def append(self, index: int, batch: BatchBuilder) -> int:
        """The offset that a batch begins at, -1 where the broker does not report it. Raises ClientError."""
        if self._numbered is not None:
            batch.producer_id, batch.producer_epoch = self._numbered
            batch.base_sequence = self._sequences.get(index, 0)
            self._sequences[index] = (batch.base_sequence + batch.record_count) % (1 << 31)
        data = batch.build()
        offset = await self.followed.retry_while(lambda: self._sent(index, data), self._timeout_s)
        self.in_doubt.discard(index)
        return offset

    async def _sent(self, index: int, batch: bytes) -> int:
        from lockstep.kafka_client.connection import BrokerError, ClientError, ConnectionFailed
        from lockstep.protocol.errors import ErrorCode

        topic, client = self.followed.topic, self.followed.client
        await client.leader_of(topic, index)  # what fails until there is a connection may be tried again
        earlier = index in self.in_doubt  # a rejection does not decide an earlier try
        self.in_doubt.add(index)
        try:
            return await client.produce(topic, index, batch, acks=self._acks)
        except (BrokerError, ConnectionFailed) as error:
            if _is_definite(error) and not earlier:
                self.in_doubt.discard(index)
            if self._numbered is None:
                if self._acks == 0:
                    return -1  # sent, without a response (acks=0)
                raise ClientError(str(error)) from None
            if isinstance(error, BrokerError) and error.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return -1
            raise


class _Writer:
    """Puts records into batches by partition and waits for the responses of each round together."""

    def __init__(
        self, producer: _Producer, partitions: int, options: argparse.Namespace, batch_bytes: int
    ) -> None:
        from random import randrange

        from lockstep.protocol.records.compression import Codec

        self.written: dict[int, tuple[int, int]] = {}
        """Partition -> records acknowledged, and the offset after the last of them (-1 where unknown)."""
        self._producer = producer
        self._in_parallel = False
        """Whether batches of several partitions are under way, or were when it ended."""
        self._partitions = partitions
        self._partition: int | None = options.partition
        self._codec = Codec[options.codec.upper()]
        self._headers = [(name, value.encode()) for name, value in options.header]
        # Not always 0: many short runs, and the members of a group that read them, would use one partition.
        self._next_keyless = randrange(partitions)
        header_bytes = sum(len(name.encode()) + len(value) + 10 for name, value in self._headers)
        self._room = batch_bytes - header_bytes - _RECORD_OVERHEAD_BYTES

    @property
    def total(self) -> int:
        return sum(count for count, _ in self.written.values())

    def describe_outcome(self, acks: str) -> str:
        """Returns the known outcome after a failure."""
        fate, other_fate = ("sent", "sent") if acks == "0" else ("acknowledged", "appended")
        summary = f"{self.total} records were {fate}"
        if self.total and self._in_parallel:
            summary += ", which need not be the first ones"
        if self._producer.in_doubt:
            return f"{summary}; of those that failed some may be there as well"
        return f"{summary}; nothing else was {other_fate}" if self.total else f"nothing was {other_fate}"

    async def write(self, entries: list[Entry]) -> None:
        """Write them all; partitions at the same time, the batches of one partition one after the other."""
        import asyncio

        batches = self._batches(entries)
        self._in_parallel = len(batches) > 1
        results = await asyncio.gather(
            *(self._write_sequentially(index, mine) for index, mine in sorted(batches.items())),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self._in_parallel = False

    async def _write_sequentially(self, index: int, batches: list[BatchBuilder]) -> None:
        for batch in batches:
            base_offset = await self._producer.append(index, batch)
            count, _ = self.written.get(index, (0, -1))
            next_offset = base_offset + batch.record_count if base_offset >= 0 else -1
            self.written[index] = (count + batch.record_count, next_offset)

    def _batches(self, entries: list[Entry]) -> dict[int, list[BatchBuilder]]:
        from time import time

        from lockstep.protocol.partitioner import partition_of
        from lockstep.protocol.records.record import BatchBuilder

        now_ms = int(time() * 1000)
        count = self._partitions
        keyless = self._next_keyless
        self._next_keyless = (keyless + 1) % count  # one call's records without a key stay together
        batches: dict[int, list[BatchBuilder]] = {}
        for key, value in entries:
            if self._partition is not None:
                index = self._partition
            elif key is None:
                index = keyless
            else:
                index = partition_of(key, count)
            mine = batches.setdefault(index, [])
            size = len(key or b"") + len(value or b"")
            if not mine or mine[-1].size_bytes + size > self._room:
                mine.append(BatchBuilder(self._codec))
            mine[-1].append(value, key, timestamp_ms=now_ms, headers=self._headers)
        return batches
