"""What was sent, what was acknowledged, what was read back - and whether the three agree.

Owns: the identity every record carries, one `WriterHistory` per producer instance, and `check()`, which
compares histories with the records a consumer finally read. Pure: no client, no clock, no file.

The rules (source: Jepsen's Kafka checker, reduced to what one broker without transactions promises):
- lost: an acknowledged record is nowhere;
- duplicate: an idempotent producer's record, acknowledged or not, is there twice;
- reordered: within a partition, an idempotent producer's records are not in the order they were sent;
- misplaced: the acknowledgement named an offset that holds something else;
- gap: a partition's offsets are not dense from its first;
- damaged: a record whose own checksum is wrong;
- phantom: a record nobody sent.
Other producers promise at least once: their repeats are counted, not judged.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

KEPT_PROBLEMS = 50
"""Per verdict, the texts kept; the counts are always whole."""
UNKNOWN_SENT = 2**62
"""`WriterHistory.sent` of a producer that ended without saying how far it got."""


class DamagedRecord(ValueError):
    """A value that is not one of ours, or is one no longer."""


def make_value(writer: str, sequence: int, padding: bytes) -> bytes:
    """`writer|sequence|padding|crc32`: unique per record, and self-checking."""
    body = b"%s|%d|%s" % (writer.encode(), sequence, padding)
    return b"%s|%08x" % (body, zlib.crc32(body))


def parse_value(value: bytes | None) -> tuple[str, int]:
    """The (writer, sequence) of a value, also of VerifiableProducer's `prefix.sequence`. DamagedRecord."""
    if value is None:
        raise DamagedRecord("null value")
    if b"|" not in value:
        prefix, dot, sequence = value.partition(b".")
        if not (dot and prefix.isdigit() and sequence.isdigit()):
            raise DamagedRecord(f"not a campaign's record: {value[:60]!r}")
        return f"java-{int(prefix)}", int(sequence)
    body, _, crc = value.rpartition(b"|")
    if crc != b"%08x" % zlib.crc32(body):
        raise DamagedRecord(f"checksum {crc!r} does not match: {value[:60]!r}")
    writer, sequence, _ = body.split(b"|", 2)
    return writer.decode(), int(sequence)


class WriterHistory:
    """One producer instance: what it sent and what it was told. Sequences count its sends from 0.

    `acked` maps sequence to (partition, offset); offset -1 when the client did not say.
    """

    __slots__ = ("acked", "failed", "idempotent", "kind", "name", "sent")

    def __init__(self, name: str, kind: str, idempotent: bool) -> None:
        self.name = name
        self.kind = kind
        self.idempotent = idempotent
        self.sent = 0
        self.acked: dict[int, tuple[int, int]] = {}
        self.failed = 0


class Verdict:
    """Counts and problems of one check. Sound when `problems` is empty."""

    __slots__ = ("acked", "kinds", "problems", "read", "repeats", "sent", "unacked_present")

    def __init__(self) -> None:
        self.sent = 0
        self.acked = 0
        self.read = 0
        self.repeats = 0
        self.unacked_present = 0
        self.kinds: Counter[str] = Counter()
        self.problems: list[str] = []

    def add(self, kind: str, text: str) -> None:
        """Counts a problem; keeps the text while there are few."""
        self.kinds[kind] += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(f"{kind}: {text}")


def check(
    histories: Iterable[WriterHistory], read: Mapping[int, Sequence[tuple[int, bytes | None]]]
) -> Verdict:
    """Judges everything read (partition -> (offset, value) in read order) against the histories."""
    writers = {history.name: history for history in histories}
    verdict = Verdict()
    places: dict[str, dict[int, list[tuple[int, int]]]] = {name: {} for name in writers}
    for partition in sorted(read):
        _walk_partition(partition, read[partition], writers, places, verdict)
    for name in sorted(writers):
        _judge_writer(writers[name], places[name], verdict)
    return verdict


def _walk_partition(
    partition: int,
    records: Sequence[tuple[int, bytes | None]],
    writers: Mapping[str, WriterHistory],
    places: dict[str, dict[int, list[tuple[int, int]]]],
    verdict: Verdict,
) -> None:
    newest: dict[str, int] = {}
    for expected_offset, (offset, value) in enumerate(records):
        verdict.read += 1
        if offset != expected_offset:
            verdict.add("gap", f"partition {partition}: record {expected_offset} has offset {offset}")
        try:
            name, sequence = parse_value(value)
        except DamagedRecord as damage:
            verdict.add("damaged", f"partition {partition} offset {offset}: {damage}")
            continue
        writer = writers.get(name)
        if writer is None or sequence >= writer.sent:
            verdict.add("phantom", f"partition {partition} offset {offset}: {name} never sent {sequence}")
            continue
        places[name].setdefault(sequence, []).append((partition, offset))
        if writer.idempotent and sequence < newest.get(name, -1):
            verdict.add(
                "reordered", f"partition {partition} offset {offset}: {name} {sequence} after {newest[name]}"
            )
        newest[name] = max(sequence, newest.get(name, -1))


def _judge_writer(
    writer: WriterHistory, places: Mapping[int, list[tuple[int, int]]], verdict: Verdict
) -> None:
    verdict.sent += writer.sent if writer.sent != UNKNOWN_SENT else len(places)
    verdict.acked += len(writer.acked)
    verdict.unacked_present += sum(1 for sequence in places if sequence not in writer.acked)
    for sequence, found in places.items():
        if len(found) > 1:
            if writer.idempotent:
                verdict.add("duplicate", f"{writer.name} {sequence} is at {found}")
            else:
                verdict.repeats += len(found) - 1
    for sequence, (partition, offset) in writer.acked.items():
        found = places.get(sequence, [])
        if not found:
            verdict.add(
                "lost", f"{writer.name} {sequence}, acknowledged at partition {partition} offset {offset}"
            )
        elif offset >= 0 and (partition, offset) not in found:
            verdict.add(
                "misplaced", f"{writer.name} {sequence}, acknowledged at {partition}/{offset}, is at {found}"
            )
