"""`lockstep log`: look into a stopped broker's data directory without changing it (`verify`, `dump`), and
have a running one pass over records that are damaged (`skip-damage`)."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lockstep.commands.options import (
    Families,
    add_connection,
    add_json,
    client_of,
    print_json,
    print_progress,
    print_table,
    printable,
    whole_number,
)
from lockstep.failures import CommandFailed, os_error, report_client_errors

if TYPE_CHECKING:
    from lockstep.stopped_broker import PartitionNames
    from lockstep.storage.log.damage_search import Damage
    from lockstep.storage.types import Buffer, DirectoryEntry, Frame

CORRUPT = 1
QUIET_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 5.0
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Document = dict[str, Any]


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "log",
        help="verify or print a stopped broker's files, skip damaged records",
        description="Verify or print the files of a stopped broker, skip damaged data (docs/operating.md).",
    )
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    verify = commands.add_parser(
        "verify",
        help="check every byte of the log",
        description="Check every frame, batch and checkpoint, and name all damage by topic, partition and "
        "offsets. Exit status 1 if there is damage; a torn tail, which a crash may leave, is none. RECORDS "
        "counts the records of topics; CONTROL those that no consumer sees: markers of transactions, and "
        "what the log writes for itself. Of a directory with those of several nodes each one's is checked.",
    )
    add_json(verify, "one document; of a directory with those of several nodes one per node and line")
    verify.set_defaults(run=_verify)

    dump = commands.add_parser(
        "dump",
        help="print the log's frames and batches",
        description="Print frames, oldest first: each is one group commit, with batches of any partitions.",
    )
    dump.add_argument("--group", type=whole_number, metavar="N", help="only this log group")
    dump.add_argument(
        "--from-index", type=whole_number, default=0, metavar="N", help="from this frame on, by its index"
    )
    dump.add_argument("-n", "--max-frames", type=whole_number, metavar="N", help="at most N frames per group")
    dump.add_argument("--records", action="store_true", help="also the records of each batch")
    add_json(dump, "one object per frame and line")
    dump.set_defaults(run=_dump)

    skip = commands.add_parser(
        "skip-damage",
        help="make consumers skip damaged records of a partition",
        description="Skip the records of a partition that are damaged on disk and that no node can "
        "repair; `lockstep cluster status` names them. The broker rejects it while another node has them, or "
        "may have them and is not reached. Consumers then continue at the next intact record; offsets do not "
        "change. The damaged records are lost, unless the log file is restored from a backup later. Exit "
        "status 1 where a node with a copy did not respond: run it again once that node is back.",
    )
    skip.add_argument(
        "--force",
        action="store_true",
        help="skip them even where another node has them, or may have them: consumers of the node with the "
        "damage do not get them",
    )
    skip.add_argument("partition", metavar="TOPIC-PARTITION", help="as in orders-3")
    add_connection(skip)
    add_json(skip, "one object")
    skip.set_defaults(run=_skip_damage)

    for command in (verify, dump):
        command.add_argument(
            "directory", metavar="DIR", type=Path, help="a data directory, or groups/N in it"
        )


def _skip_damage(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.broker.maintenance.damage import damage_location
    from lockstep.kafka_client.cluster import skip_damage

    topic, _, number = options.partition.rpartition("-")
    if not topic or not number.isdecimal():
        raise CommandFailed(f"{options.partition} is not a partition: write TOPIC-PARTITION, as in orders-3")

    async def run() -> tuple[list[Document], list[Document]]:
        async with client_of(options) as client:
            return await skip_damage(client, topic, int(number), force=options.force)

    with report_client_errors():
        skipped, unanswered = asyncio.run(run())
    if options.json:
        print_json({"given_up": skipped, "unanswered": unanswered})
        return 1 if unanswered else 0
    for each in skipped:
        print(
            f"{options.partition}: offsets {each['first_offset']} to {each['last_offset']} are skipped "
            f"(node {each['node']}, {damage_location(each)})"
        )
    if not skipped:
        print(f"{options.partition}: no damaged records are known that are not skipped already")
    if unanswered:
        silent = ", ".join(f"node {each['node']} ({each['reason']})" for each in unanswered)
        raise CommandFailed(
            f"no response from {silent}: the copy there may still be damaged; run this again once it responds"
        )
    return 0


def _verify(options: argparse.Namespace) -> int:
    from lockstep.stopped_broker import node_directories

    try:
        nodes = node_directories(options.directory)
    except OSError as error:
        raise os_error(error) from error
    statuses = []
    for number, directory in enumerate(nodes or [options.directory]):
        if nodes and not options.json:
            print(f"{chr(10) if number else ''}{directory}", flush=True)
        statuses.append(_verify_directory(directory, as_json=options.json))
    return max(statuses)


def _verify_directory(directory: Path, *, as_json: bool) -> int:
    """Prints the report on one data directory; returns the exit status."""
    from lockstep.stopped_broker import groups_of, topic_names
    from lockstep.storage.types import StorageError

    try:
        groups = groups_of(directory)
        topics = topic_names(groups[0][1].parent / "0")
        results = [_verify_group(number, path, topics) for number, path in groups]
    except StorageError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise os_error(error) from error
    is_corrupt = any(result["rot"] for result in results)
    if as_json:
        print_json({"directory": str(directory), "ok": not is_corrupt, "groups": results})
    else:
        counts = ("group", "segments", "frames", "batches", "records", "control_records", "bytes")
        print_table(
            ("GROUP", "SEGMENTS", "FRAMES", "BATCHES", "RECORDS", "CONTROL", "BYTES", "VERDICT"),
            [(*(result[key] for key in counts), _verdict(result)) for result in results],
        )
        for result in results:
            for note in _texts(result["rot"]) + _texts(result["notes"]):
                print(f"log group {result['group']}: {note}")
    return CORRUPT if is_corrupt else 0


def _verify_group(group_id: int, directory: Path, topics: dict[bytes, str]) -> Document:
    from lockstep.stopped_broker import PartitionNames, replay_frame
    from lockstep.storage.log.inspect import verify

    names = PartitionNames(group_id, None, topics)
    found = verify(directory, group_id, _Progress(group_id), lambda frame: replay_frame(names, frame))
    names.restore(found.checkpoint)
    damage = [_damage_document(each, names) for each in found.damage]
    return {
        "group": group_id,
        "directory": str(directory),
        "segments": found.segments,
        "frames": found.frames,
        "batches": found.batches,
        "records": found.records,
        "control_records": found.control_records,
        "bytes": found.bytes,
        "ends_at": found.ends_at,
        "rot": [_with_names(each, names) for each in found.corruption] + list(map(_damage_text, damage)),
        "damage": damage,
        "notes": found.notes,
    }


def _with_names(text: str, names: PartitionNames) -> str:
    """An error text of the log, which has numbers of partitions."""
    return re.sub(r"partition (\d+) offset", lambda found: f"{names.name(int(found[1]))} offset", text)


def _damage_document(damage: Damage, names: PartitionNames) -> Document:
    topic, index = names.topic_and_index(damage.partition)
    return {
        "segment": damage.segment,
        "topic": topic,
        "partition": index,
        "partition_number": damage.partition,
        "first_offset": damage.first_offset,
        "last_offset": damage.last_offset,
        "problem": damage.problem,
    }


def _damage_text(damage: Document) -> str:
    from lockstep.storage.types import NO_PARTITION

    first, last, number = damage["first_offset"], damage["last_offset"], damage["partition_number"]
    what = ("log entry", "log entries") if number == NO_PARTITION else ("offset", "offsets")
    where = f"{what[0]} {first}" if first == last else f"{what[1]} {first} to {last}"
    if number == NO_PARTITION:
        return damage["problem"] if first < 0 else f"{where}: {damage['problem']}"
    topic = damage["topic"]
    name = f"(partition {number})" if topic is None else f"{topic}-{damage['partition']}"
    return f"{name} {where}: {damage['problem']}"


class _Progress:
    """Prints the progress of a verification, at first after a second and then every few seconds."""

    def __init__(self, group_id: int) -> None:
        self._group_id = group_id
        self._due_s = time.monotonic() + QUIET_SECONDS

    def __call__(self, read: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + PROGRESS_SECONDS
            print_progress(f"log group {self._group_id}: {read >> 20} of {total >> 20} MiB read")


def _verdict(result: Document) -> str:
    return "ROT" if result["rot"] else "ok"


def _texts(value: object) -> list[str]:
    assert isinstance(value, list)
    return value


def _dump(options: argparse.Namespace) -> int:
    from lockstep.stopped_broker import PartitionNames, groups_of, topic_names
    from lockstep.storage.log.inspect import GroupLog, NoLog
    from lockstep.storage.types import CorruptLog, StorageError

    try:
        groups = groups_of(options.directory)
        topics = topic_names(groups[0][1].parent / "0")
        chosen = [pair for pair in groups if options.group in (None, pair[0])]
        if not chosen:
            raise NoLog(f"{options.directory} has no log group {options.group}")
        for group_id, directory in chosen:
            log = GroupLog(directory, group_id)
            names = PartitionNames(group_id, log.checkpoint, topics)
            left = options.max_frames
            for segment, scanned in log.frames():
                frame = scanned.frame()
                for entry, payload in zip(frame.directory, frame.payloads, strict=True):
                    names.replay(entry.partition, payload)
                if frame.index < options.from_index:
                    continue
                if left == 0:
                    break
                left = None if left is None else left - 1
                document = _frame_document(group_id, frame, names, options.records)
                document |= {"segment": segment.sequence, "byte": scanned.offset}
                if options.json:
                    print_json(document)
                else:
                    _print_frame(document)
    except CorruptLog as error:
        raise CommandFailed(f"rot: {error}") from error
    except BrokenPipeError:
        raise  # the reader has closed the pipe, as `| head` does
    except StorageError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise os_error(error) from error
    return 0


def _frame_document(group_id: int, frame: Frame, names: PartitionNames, with_records: bool) -> Document:
    from lockstep.storage.types import FrameKind

    return {
        "group": group_id,
        "index": frame.index,
        "term": frame.term,
        "kind": FrameKind(frame.kind).name.lower(),
        "first_lsn": frame.first_lsn,
        "records": frame.record_count,
        "time_ms": frame.time_ms,
        "batches": [
            _batch_document(entry, payload, names, with_records)
            for entry, payload in zip(frame.directory, frame.payloads, strict=True)
        ],
    }


def _batch_document(
    entry: DirectoryEntry, payload: Buffer, names: PartitionNames, with_records: bool
) -> Document:
    from lockstep.protocol.records.batch import MalformedBatch, read_header

    document: Document = {
        "partition": names.name(entry.partition),
        "partition_number": entry.partition,
        "base_offset": entry.base_offset,
        "records": entry.record_count,
        "leader_epoch": entry.leader_epoch,
        "max_timestamp_ms": entry.max_timestamp,
        "bytes": entry.length,
    }
    try:
        header = read_header(payload)
    except MalformedBatch:
        return document  # not a record batch
    document["codec"] = _CODECS[header.codec] if header.codec < len(_CODECS) else str(header.codec)
    if header.producer_id >= 0:
        document |= {
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
    if with_records:
        document["contents"] = list(_record_documents(payload))
    return document


def _record_documents(payload: Buffer) -> Iterator[Document]:
    from lockstep.protocol.records.batch import MalformedBatch
    from lockstep.protocol.records.record import iter_records

    try:
        for record in iter_records(payload):
            document: Document = {"offset": record.offset, "timestamp_ms": record.timestamp}
            for name, content in (("key", record.key), ("value", record.value)):
                suffix, text = printable(content)
                document[name + suffix] = text
            document["headers"] = [
                {"name": name, "value" + suffix: text}
                for name, content in record.headers
                for suffix, text in [printable(content)]
            ]
            yield document
    except MalformedBatch as error:
        yield {"unreadable": str(error)}


def _print_frame(frame: Document) -> None:
    from lockstep.protocol.utc_time import utc_time

    time = utc_time(int(str(frame["time_ms"])))
    print(
        f"group {frame['group']} index {frame['index']} term {frame['term']} {frame['kind']} "
        f"lsn {frame['first_lsn']} records {frame['records']} {time} "
        f"segment {frame['segment']} byte {frame['byte']}"
    )
    batches = frame["batches"]
    assert isinstance(batches, list)
    for batch in batches:
        producer = f" producer {batch['producer_id']}" if "producer_id" in batch else ""
        print(
            f"  {batch['partition']} offset {batch['base_offset']} records {batch['records']} "
            f"bytes {batch['bytes']} {batch.get('codec', 'raw')} epoch {batch['leader_epoch']}{producer}"
        )
        for record in batch.get("contents", []):
            print(f"    {_record_line(record)}")


def _record_line(record: Document) -> str:
    if "unreadable" in record:
        return str(record["unreadable"])
    key, value = (record.get(name, record.get(name + "_base64")) for name in ("key", "value"))
    return f"{record['offset']}: {key!r} {value!r}" + (f" {record['headers']}" if record["headers"] else "")
