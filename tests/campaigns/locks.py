"""`python -m tests.campaigns.locks --sequences 1000000`: conditional appends against an exact model.

Each sequence is some twenty random batches for two partitions of a topic: locks, read locks of the other
partition, expected offsets and requests of several records, on tables so small that all of their parts are in
use, with changes of the setting, deleted records, and restarts from snapshots in between. What the broker
takes the model must take; what it refuses the model must refuse with the same error, but for refusals that
say they rest on an estimate. `--plant` breaks the table in one way (`--list-plants`), which must be seen.

Prints its seed; ends with 1 where the two differ; adds to docs/evidence/locks.json (`--no-evidence`: not).
`--resume` counts what is recorded for this source.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any, Final, cast

from lockstep.broker.locks import lock_check as checks
from lockstep.broker.locks import lock_table as table
from lockstep.broker.locks.lock_check import LockChecks, LockConflict
from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.locks.lock_versions import LockVersions
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_config import LOCKS_IGNORED, LOCKS_KEPT, LOCKS_REJECTED
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.record import BatchBuilder, Headers
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from tests.campaigns import evidence

TOPIC_ID: Final = bytes(range(16))
MODES: Final = (LOCKS_KEPT, LOCKS_IGNORED, LOCKS_REJECTED)
STEPS: Final = 20
RETRY, NEVER = 44, 87


class Differs(Exception):
    """The broker and the model decide differently."""


class Asked:
    """One record's conditions, drawn once and told to both sides."""

    def __init__(self) -> None:
        self.hwm: int | None = None
        self.locks: dict[str, list[bytes]] = {"write": [], "read": [], "append": []}
        self.expected: int | None = None
        self.elsewhere: tuple[int | None, bytes] | None = None
        self.request: tuple[bytes, int, int] | None = None

    @property
    def is_conditional(self) -> bool:
        return bool(any(self.locks.values()) or self.elsewhere) or self.expected is not None

    def headers(self, other: str) -> Headers:
        found: Headers = []
        if self.hwm is not None:
            found.append(("lockstep-hwm", b"%d" % self.hwm))
        found += [(f"lockstep-{kind}-lock", b"\n".join(names)) for kind, names in self.locks.items() if names]
        if self.expected is not None:
            found.append(("lockstep-expected-offset", b"%d" % self.expected))
        if self.elsewhere is not None:
            hwm, name = self.elsewhere
            found.append((f"lockstep-read-lock@{other}", name))
            if hwm is not None:
                found.append((f"lockstep-hwm@{other}", b"%d" % hwm))
        if self.request is not None:
            name, part, parts = self.request
            found += [("lockstep-request", name), ("lockstep-part", b"%d/%d" % (part, parts))]
        return found


class ModelPartition:
    """All that was ever raised, and where it counts as raised although nobody knows."""

    def __init__(self) -> None:
        self.marks: dict[bytes, int] = {}
        self.floor: int | None = None

    def mark(self, name: bytes, end: int) -> int:
        return max(self.marks.get(name, -1), end - 1 if self.floor is None else self.floor)


class World:
    """Two partitions, the broker's checks over them, and the model."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sizes = rng.choice([2, 8, 64]), rng.choice([4, 64, 1024])
        self.table = LockTable(*self.sizes)
        self.logs = [PartitionLog(number, TOPIC_ID, number - 1) for number in (1, 2)]
        self.config = SimpleNamespace(lockstep_locks=rng.choice([LOCKS_KEPT, LOCKS_KEPT, LOCKS_IGNORED]))
        self.model = [ModelPartition(), ModelPartition()]
        self.names = [b"%d" % number for number in range(rng.choice([2, 10, 100]))]
        self.requests = itertools.count()
        self.counts: Counter[str] = Counter()
        topic = SimpleNamespace(name="t", config=self.config)
        group = cast(LogGroup, SimpleNamespace(has_lease=True))
        found = [SimpleNamespace(topic=topic, group=group, log=log) for log in self.logs]
        cluster = SimpleNamespace(
            topic_by_id=lambda _: topic, partition=lambda _, index: found[index], metadata_index=1
        )
        self.checks = LockChecks(self.table, group, cast(MetadataCache, cluster))

    def step(self) -> None:
        """One batch, or something that happens to the broker."""
        draw = self.rng.random()
        if draw < 0.04:
            self.config.lockstep_locks = self.rng.choice(
                [LOCKS_KEPT, LOCKS_KEPT, LOCKS_IGNORED, LOCKS_REJECTED]
            )
        elif draw < 0.08:
            sizes = self.rng.choice([self.sizes, self.sizes, (2, 4)])
            kept = self.table.snapshot(0)
            self.table.__init__(*sizes)  # type: ignore[misc]
            self.table.restore(kept)
        elif draw < 0.11:
            log = self.rng.choice(self.logs)
            log.log_start_offset = self.rng.randint(log.log_start_offset, log.next_offset)
        else:
            self.batch()

    def batch(self) -> None:
        index = self.rng.randrange(2)
        log, other = self.logs[index], f"t-{1 - index}"
        asked = self.draw_records(log, self.logs[1 - index])
        builder = BatchBuilder()
        for each in asked:
            builder.append(b"v", headers=each.headers(other), timestamp_ms=5)
        data = builder.build()
        wanted = self.judge(index, asked)
        try:
            notes = self.checks.check_and_encode(
                log, BatchBody(data, read_header(data)), self.config.lockstep_locks
            )
        except RequestError as refused:
            is_estimate = isinstance(refused, LockConflict) and not refused.is_exact
            self.counts["refused"] += 1
            if wanted is None and is_estimate:
                self.counts["refused wrongly"] += 1
            elif wanted is None or (refused.error not in wanted and not is_estimate):
                raise Differs(f"refused with {refused}, the model says {wanted or 'yes'}") from None
            return
        if wanted is not None:
            raise Differs(f"taken, the model says {wanted}: {[each.headers(other) for each in asked]}")
        self.counts["taken"] += 1
        self.table.take(notes)
        self.take(index, asked)

    def draw_records(self, log: PartitionLog, other: PartitionLog) -> list[Asked]:
        rng, asked = self.rng, []
        for place in range(rng.choice([1, 1, 1, 2, 3])):
            each = Asked()
            for kind in each.locks:
                if rng.random() < 0.4:
                    each.locks[kind] = rng.choices(self.names, k=rng.choice([1, 1, 2]))
            if rng.random() < 0.97:
                each.hwm = self.draw_hwm(log)
            if rng.random() < 0.1:
                each.expected = max(0, log.next_offset + place + rng.choice([0, 0, 0, -1, 1]))
            if rng.random() < 0.15:
                hwm = self.draw_hwm(other) if rng.random() < 0.95 else None
                each.elsewhere = hwm, rng.choice(self.names)
            asked.append(each)
        if len(asked) > 1 and rng.random() < 0.5:
            name = b"c/1/%d" % next(self.requests)
            for place, each in enumerate(asked, 1):
                each.request = name, place, len(asked)
        return asked

    def draw_hwm(self, log: PartitionLog) -> int:
        end = log.next_offset
        drawn = self.rng.random()
        if drawn < 0.6:
            return end - 1
        return self.rng.randint(-1, end) if drawn < 0.95 else -1

    # --- the model ----------------------------------------------------------------------------------------

    def judge(self, index: int, asked: Sequence[Asked]) -> set[int] | None:
        """The errors that are right, all of the first record that has any; None: to be taken."""
        mode = self.config.lockstep_locks
        locked = [
            each for each in asked if any(each.locks.values()) or each.elsewhere or each.expected is not None
        ]
        if mode == LOCKS_IGNORED or not locked:
            return None
        if mode == LOCKS_REJECTED:
            return {NEVER}
        log, own, other = self.logs[index], self.model[index], self.model[1 - index]
        raised: set[bytes] = set()
        for place, each in enumerate(asked):
            wrong: set[int] = set()
            at = log.next_offset + place
            if each.expected is not None and each.expected != at:
                wrong.add(RETRY if each.expected < at else NEVER)
            needed = [*each.locks["write"], *each.locks["read"]]
            if needed:
                before = set() if each.request is not None else raised
                wrong |= self._judged(log, own, each.hwm, needed, before)
            if each.elsewhere is not None:
                hwm, name = each.elsewhere
                wrong |= self._judged(self.logs[1 - index], other, hwm, [name], set())
            if wrong:
                return wrong
            raised.update(each.locks["write"], each.locks["append"])
        return None

    def _judged(
        self,
        log: PartitionLog,
        known: ModelPartition,
        hwm: int | None,
        names: Sequence[bytes],
        raised: set[bytes],
    ) -> set[int]:
        if hwm is None or hwm >= log.high_watermark:
            return {NEVER}
        wrong = set()
        for name in names:
            mark = known.mark(name, log.next_offset)
            if name in raised:
                wrong.add(RETRY)
            elif mark > hwm:
                wrong.add(NEVER if mark < log.log_start_offset else RETRY)
        return wrong

    def take(self, index: int, asked: Sequence[Asked]) -> None:
        log, known = self.logs[index], self.model[index]
        if self.config.lockstep_locks == LOCKS_IGNORED:
            known.marks, known.floor = {}, None
        elif self.config.lockstep_locks == LOCKS_KEPT:
            if known.floor is None:
                known.floor = log.next_offset - 1
            last = log.next_offset + len(asked) - 1
            for each in asked:
                known.marks.update(dict.fromkeys([*each.locks["write"], *each.locks["append"]], last))
        log.next_offset += len(asked)
        log.high_watermark = log.next_offset


# --- planted faults ---------------------------------------------------------------------------------------


def _forgets_old(self: LockVersions, lock: bytes, mark: int) -> None:
    self.horizon = mark


def _exact_part(self: LockVersions, lock: bytes) -> tuple[int, bool]:
    mark = self._recent.get(lock, -1)
    return mark, True


def _first_offset(self: LockVersions, lock: bytes, offset: int) -> None:
    _raised(self, lock, offset - 1)


def _fresh(data: bytes, recent: int, cells: int) -> LockVersions:
    return LockVersions(-1, 0, recent, cells)


def _one_name(topic_id: bytes, name: bytes) -> bytes:
    return blake2b(name + b"%d" % _turns(), digest_size=16).digest()


_raised = LockVersions.raise_lock
_turn = itertools.count()


def _turns() -> int:
    return next(_turn) // 50


PLANTS: Final[dict[str, tuple[Any, str, Callable[..., Any]]]] = {
    "old-marks-are-forgotten": (LockVersions, "_forget", _forgets_old),
    "only-the-exact-part-is-asked": (LockVersions, "of", _exact_part),
    "a-mark-is-one-too-low": (LockVersions, "raise_lock", _first_offset),
    "a-restart-forgets": (table, "restore", _fresh),
    "names-change-their-hashes": (checks, "hash_of", _one_name),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The table broken in one way."""
    if name is None:
        yield
        return
    place, attribute, broken = PLANTS[name]
    whole = getattr(place, attribute)
    setattr(place, attribute, broken)
    try:
        yield
    finally:
        setattr(place, attribute, whole)


# --- the command ------------------------------------------------------------------------------------------


def run(seed: int, sequences: int, plant: str | None = None) -> tuple[Counter[str], str]:
    """What was counted, and where the two differ, with the sequence's seed; empty for nowhere."""
    counts: Counter[str] = Counter()
    with planted(plant):
        for number in range(seed, seed + sequences):
            world = World(random.Random(number))
            try:
                for _ in range(STEPS):
                    world.step()
            except Differs as differs:
                return counts, f"seed {number}: {differs}"
            counts += world.counts
            counts["sequences"] += 1
    return counts, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.locks", description=__doc__)
    parser.add_argument("--sequences", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, help="of the first sequence; default: drawn, and printed")
    parser.add_argument("--resume", action="store_true", help="count what is recorded for this source")
    parser.add_argument("--plant", choices=PLANTS)
    parser.add_argument("--list-plants", action="store_true")
    parser.add_argument("--no-evidence", action="store_true")
    options = parser.parse_args(arguments)
    if options.list_plants:
        print("\n".join(PLANTS))
        return 0
    wanted = options.sequences
    if options.resume:
        source = evidence.source_digest()
        done = [each for each in evidence.load_runs("locks") if each["source"] == source]
        wanted -= sum(each["sequences"] for each in done)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 40)
    print(f"locks: seed {seed}, {max(0, wanted):,} sequences")
    started = time.monotonic()
    counts, problem = run(seed, max(0, wanted), options.plant)
    figures = {"seed": seed, **counts, "seconds": round(time.monotonic() - started, 1), "problem": problem}
    print(json.dumps(figures))
    if not options.no_evidence and options.plant is None and wanted > 0:
        evidence.add_run("locks", figures)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
