"""`lockstep consume TOPIC`: records to standard output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lockstep.commands.options import (
    Families,
    add_connection,
    add_json,
    client_of,
    followed_topic,
    printable,
    report_silence,
    separator,
    topic_of,
    whole_number,
)
from lockstep.failures import CommandFailed, WrongUsage, report_client_errors

if TYPE_CHECKING:
    from lockstep.kafka_client.client import Client, FetchedPartition, TopicMetadata
    from lockstep.kafka_client.followed_topic import FollowedTopic
    from lockstep.kafka_client.group_member import ConsumerMember
    from lockstep.protocol.records.batch import BatchHeader, Buffer
    from lockstep.protocol.records.committed import CommittedReader
    from lockstep.protocol.records.record import Record

_WAIT_MS = 500
_HEARTBEAT_SECONDS = 3.0
_COMMIT_SECONDS = 5.0
_METADATA_MAX_AGE_MS = 300_000
"""The defaults of Java's consumer, as are the two above."""
_EARLIEST = "earliest"
_LATEST = "latest"


def add_to(families: Families) -> None:
    """Declare the command."""
    consume = families.add_parser(
        "consume",
        help="print the records of a topic",
        description="Print records, one per line: new ones until Ctrl-C, or with --from-beginning or "
        "--offset older ones until the topic's present end (--follow: until Ctrl-C). Partitions are read "
        "side by side: the order of the log holds only within one. With --group it is a member of a consumer "
        "group until Ctrl-C: it reads from the group's committed offsets, shares the partitions with other "
        "members, and commits what it has printed, every 5 s and at its end.",
    )
    consume.add_argument("topic", help="its name")
    start = consume.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="from the oldest record")
    start.add_argument(
        "-o",
        "--offset",
        type=_offset,
        metavar="N",
        help="from this offset in each partition; below zero: as many records before the end; also "
        "earliest (as --from-beginning) and latest",
    )
    consume.add_argument("-f", "--follow", action="store_true", help="wait for new records at the end")
    consume.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="as a member of this consumer group; --from-beginning counts where it has no committed offset",
    )
    consume.add_argument(
        "--metadata-max-age-ms",
        type=whole_number,
        default=_METADATA_MAX_AGE_MS,
        metavar="MS",
        help=f"with --group: notice added partitions so often (default: {_METADATA_MAX_AGE_MS})",
    )
    consume.add_argument(
        "--committed",
        action="store_true",
        help="as read_committed: no records of aborted or open transactions; ends before the first open one",
    )
    consume.add_argument("-n", "--max-records", type=whole_number, metavar="N", help="stop after N records")
    consume.add_argument(
        "-p",
        "--partition",
        type=whole_number,
        action="append",
        metavar="N",
        help="only this partition; may be repeated",
    )
    form = consume.add_mutually_exclusive_group()
    form.add_argument(
        "-K", "--key-separator", type=separator, metavar="TEXT", help="print KEY, this text, VALUE"
    )
    form.add_argument(
        "-v", "--verbose", action="store_true", help="print partition, offset, time, key and headers too"
    )
    add_json(form, "one object per record and line; bytes that are not UTF-8 are in *_base64")
    add_connection(consume)
    consume.set_defaults(run=_run)


def _offset(text: str) -> int | str:
    """An argument type."""
    if text in (_EARLIEST, _LATEST):
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor earliest or latest") from None


def _run(options: argparse.Namespace) -> int:
    import asyncio

    if options.group is not None and (options.offset is not None or options.partition is not None):
        raise WrongUsage("--group reads from the group's committed offsets: without --offset and --partition")
    with report_client_errors():
        asyncio.run(_consume(options) if options.group is None else _consume_in_group(options))
    return 0


async def _consume(options: argparse.Namespace) -> None:
    async with client_of(options, outlives_leaders=True) as client:
        topic = await topic_of(client, options.topic, options.timeout)
        existing = [partition.index for partition in topic.partitions]
        chosen = existing if options.partition is None else sorted(set(options.partition))
        for index in chosen:
            if index not in existing:
                raise CommandFailed(f"topic {topic.name} has partitions 0 to {len(existing) - 1} only")
        followed = followed_topic(client, topic)
        reading = await followed.retry_while(
            lambda: _ReadPositions.begin(client, followed.topic, chosen, options), options.timeout
        )

        async def fetch() -> list[FetchedPartition]:
            return await client.fetch(
                followed.topic, reading.offsets, max_wait_ms=_WAIT_MS, committed=options.committed
            )

        left = options.max_records
        async with report_silence(followed):
            while left != 0 and reading.offsets:
                # A leader that goes has a successor soon: nothing that was printed is read again.
                found = await followed.retry_while(fetch, options.timeout)
                for index, record in reading.records(found):
                    _print(topic.name, index, record, options)
                    if left is not None:
                        left -= 1
                        if left == 0:
                            break
                sys.stdout.buffer.flush()


async def _consume_in_group(options: argparse.Namespace) -> None:
    """Read as a member of the group, as kafka-console-consumer does."""
    import asyncio
    import signal

    from lockstep.kafka_client.group_member import ConsumerMember

    # Ctrl-C cancels this task; SIGTERM ends it as well as that, with what was printed committed
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
    async with client_of(options, outlives_leaders=True) as client:
        topic = await topic_of(client, options.topic, options.timeout)
        followed = followed_topic(client, topic)
        member = ConsumerMember(client, options.group, topic.name)
        left = options.max_records
        try:
            while left != 0:
                await member.join()
                await followed.refresh()
                starts = await _group_starts(followed, member.partitions, options)
                reading = _ReadPositions(starts, None, options.committed)
                async with report_silence(followed):
                    left = await _read_in_generation(followed, member, reading, left, options)
        finally:
            await member.leave()


async def _read_in_generation(
    followed: FollowedTopic,
    member: ConsumerMember,
    reading: _ReadPositions,
    left: int | None,
    options: argparse.Namespace,
) -> int | None:
    """Print and commit until the group rebalances, or has to; the number of records that are left to be
    printed."""
    import asyncio

    generation = _Generation(member, asyncio.get_running_loop().time, options.metadata_max_age_ms / 1000)
    printed: dict[int, int] = {}

    async def fetch() -> list[FetchedPartition]:
        return await followed.client.fetch(
            followed.topic, reading.offsets, max_wait_ms=_WAIT_MS, committed=options.committed
        )

    try:
        while left != 0:
            positions: dict[int, int] = {}
            if reading.offsets:
                found = await followed.retry_while(fetch, options.timeout)
                for index, record in reading.records(found):
                    _print(followed.topic.name, index, record, options)
                    positions[index] = record.offset + 1
                    if left is not None:
                        left -= 1
                        if left == 0:
                            break
                else:
                    positions = dict(reading.offsets)
                sys.stdout.buffer.flush()
                printed |= positions
            else:
                await asyncio.sleep(_WAIT_MS / 1000)
            if not await generation.poll(printed):
                break
        return left
    finally:
        await member.commit(printed)


class _Generation:
    """The member's duties while a generation of the group lasts, each at its interval.

    Args: clock: monotonic, in seconds.
    """

    def __init__(self, member: ConsumerMember, clock: Callable[[], float], metadata_max_age_s: float) -> None:
        self._member = member
        self._clock = clock
        self._metadata_max_age_s = metadata_max_age_s
        now = clock()
        self._commit_at, self._heartbeat_at = now + _COMMIT_SECONDS, now + _HEARTBEAT_SECONDS
        self._metadata_at = now + metadata_max_age_s

    async def poll(self, printed: dict[int, int]) -> bool:
        """Commits and sends heartbeats where due; False where the member has to join again."""
        member, now = self._member, self._clock()
        if now >= self._commit_at:
            self._commit_at = now + _COMMIT_SECONDS
            if not await member.commit(printed):
                return False
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + _HEARTBEAT_SECONDS
            if not await member.heartbeat():
                return False
        if now >= self._metadata_at:
            self._metadata_at = now + self._metadata_max_age_s
            return not await member.has_new_partitions()
        return True


async def _group_starts(
    followed: FollowedTopic, partitions: tuple[int, ...], options: argparse.Namespace
) -> dict[int, int]:
    """The first offset of each partition: the one that the group committed, or, where there is none or its
    record is gone, the newest or, with --from-beginning, the oldest record."""
    from lockstep.kafka_client.client import EARLIEST, LATEST
    from lockstep.kafka_client.groups import committed_offsets

    client, topic = followed.client, followed.topic

    async def attempt() -> dict[int, int]:
        first = await client.offsets(topic, partitions, EARLIEST)
        end = await client.offsets(topic, partitions, LATEST, committed=options.committed)
        committed = await committed_offsets(client, options.group)
        otherwise = first if options.from_beginning else end
        return {
            index: offset if first[index] <= offset <= end[index] else otherwise[index]
            for index in partitions
            for offset in [committed.get((topic.name, index), -1)]
        }

    return await followed.retry_while(attempt, options.timeout)


class _ReadPositions:
    """The next position of each partition, and the end."""

    def __init__(self, offsets: dict[int, int], ends: dict[int, int] | None, committed: bool) -> None:
        self.offsets = offsets
        """The next offsets of the partitions that are not at their end yet."""
        self._ends = ends
        self._committed = committed

    @classmethod
    async def begin(
        cls, client: Client, topic: TopicMetadata, chosen: list[int], options: argparse.Namespace
    ) -> _ReadPositions:
        from lockstep.kafka_client.client import EARLIEST, LATEST

        ends = await client.offsets(topic, chosen, LATEST, committed=options.committed)
        if not options.from_beginning and options.offset in (None, _LATEST):
            return cls(dict(ends), None, options.committed)
        starts = await client.offsets(topic, chosen, EARLIEST)
        if options.offset not in (None, _EARLIEST):
            for index in chosen:
                start_offset = options.offset if options.offset >= 0 else ends[index] + options.offset
                if start_offset > ends[index]:
                    raise CommandFailed(f"partition {index} of {topic.name} ends at offset {ends[index]}")
                starts[index] = max(starts[index], start_offset)
        if options.follow:
            return cls(starts, None, options.committed)
        unread = {index: start for index, start in starts.items() if start < ends[index]}
        return cls(unread, ends, options.committed)

    def records(self, found: list[FetchedPartition]) -> Iterator[tuple[int, Record]]:
        """(partition, record) of what came, from the requested offsets on; moves the offsets on."""
        from lockstep.protocol.records.batch import MalformedBatch, iter_headers
        from lockstep.protocol.records.committed import CommittedReader
        from lockstep.protocol.records.record import iter_records

        for partition in found:
            index = partition.index
            reader = CommittedReader(partition.aborted) if self._committed else None
            try:
                for pos, header in iter_headers(partition.records):
                    if _is_visible(reader, partition.records, pos, header):
                        for record in iter_records(partition.records, pos):
                            if record.offset >= self.offsets[index] and not self._is_beyond(
                                index, record.offset
                            ):
                                yield index, record
                    self.offsets[index] = header.next_offset
            except MalformedBatch as error:
                raise CommandFailed(
                    f"partition {index} at offset {self.offsets[index]} cannot be read: {error}"
                ) from error
            if self._is_beyond(index, self.offsets[index]):
                del self.offsets[index]

    def _is_beyond(self, index: int, offset: int) -> bool:
        return self._ends is not None and offset >= self._ends[index]


def _is_visible(reader: CommittedReader | None, records: Buffer, pos: int, header: BatchHeader) -> bool:
    """True if the records of the batch at `pos` are to be printed. Raises MalformedBatch."""
    from lockstep.protocol.records.batch import verify

    if reader is not None:
        return reader.is_visible(records, pos, header)
    verify(records, pos, header)
    return not header.is_control


def _print(topic: str, index: int, record: Record, options: argparse.Namespace) -> None:
    out = sys.stdout.buffer
    if options.json:
        out.write(_json(topic, index, record))
    elif options.verbose:
        out.write(_line(index, record))
    else:
        if options.key_separator is not None:
            out.write(b"null" if record.key is None else record.key)
            out.write(options.key_separator.encode())
        out.write(b"null" if record.value is None else record.value)
    out.write(b"\n")


def _json(topic: str, index: int, record: Record) -> bytes:
    import json

    document: dict[str, object] = {
        "topic": topic,
        "partition": index,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
    for name, content in (("key", record.key), ("value", record.value)):
        suffix, text = printable(content)
        document[name + suffix] = text
    headers: list[dict[str, object]] = []
    for header, content in record.headers:
        suffix, text = printable(content)
        headers.append({"name": header, "value" + suffix: text})
    document["headers"] = headers
    return json.dumps(document, ensure_ascii=False).encode()


def _line(index: int, record: Record) -> bytes:
    from lockstep.protocol.utc_time import utc_time

    parts = [f"{index}/{record.offset}".encode(), utc_time(record.timestamp).encode()]
    parts += [b"null" if content is None else content for content in (record.key, record.value)]
    parts += [
        name.encode() + b"=" + (b"null" if content is None else content) for name, content in record.headers
    ]
    return b"  ".join(parts)
