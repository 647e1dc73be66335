"""What a seed draws before anything happens, printed first; `--set name=value` overrides any of it.

Ranges follow TigerBeetle's VOPR where it has them (docs/evidence/README.md names the sources). Each seed
draws which kinds of fault it has at all (some kinds hide others), and how often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from random import Random

FAULTS = (
    "kill",
    "power loss",
    "cut mid-write",
    "kill all",
    "power loss all",
    "pause",
    "isolate leader",
    "partition",
    "one-way partition",
    "clog",
    "swizzle",
    "stalled flush",
    "slow disk",
    "failed write",
    "failed flush",
    "failed reads",
    "short writes",
    "full disk",
    "clock jump",
    "transfer",
    "remove voter",
    "add learner",
    "replace disk",
    "housekeeping",
    "rot",
)
"""Every kind the nemesis knows; `nemesis.py` has a function for each."""


@dataclass(frozen=True)
class Options:
    """Times in the unit their name ends with; shares from 0 to 1."""

    nodes: int = 3
    safety_s: int = 60
    liveness_s: int = 60
    clients: int = 4
    fast_path: bool = True
    """Producers use the fast path of Produce where it does not decline; the history is the same without."""
    straight_commit: bool = True
    """A lone member commits without the replica's general loop; the history is the same without."""
    think_ms: int = 200
    """Clients wait this long on average between operations."""
    fault_every_ms: int = 1500
    faults: tuple[str, ...] = FAULTS
    # network
    loss: float = 0.0
    duplication: float = 0.0
    late: float = 0.0
    """Share of messages that take 5 to 50 times as long."""
    delay_us: int = 500
    # clocks
    drift_ppm: int = 0
    """Clocks run at most this much too fast or too slow."""
    # disk
    flush_us: int = 300
    cold_reads: float = 0.0
    segment_bytes: int = 128 << 10
    spare_segments: int = 1
    pool_segments: int = 2
    tail_cache_bytes: int = 64 << 10
    # Raft
    heartbeat_ms: int = 50
    election_timeout_ms: int = 500
    pipeline_depth: int = 1
    max_append_bytes: int = 64 << 10
    commit_push_ms: int = 0
    spare_wait_ms: int = 0
    race_commits: int = 16
    kept_entries: int = 1 << 20
    """How far behind a follower is still sent entries; small numbers mean that checkpoints are shipped."""
    chunk_bytes: int = 1 << 20
    """What a checkpoint is shipped in; small numbers mean that there is time for something else between."""
    # what not every seed has, however hard
    rot: bool = False
    """Damage flushed bytes of one node at a time."""
    joins: bool = False
    """Seal files long before they are full, and join small ones; no seed draws it."""
    stale_cache: bool = False
    """After a failed flush the page cache shows what the disk does not have (ext4, XFS)."""


def draw(random: Random) -> Options:
    """The options of one seed. The order of draws is part of what a seed means."""
    kept = tuple(kind for kind in FAULTS if random.random() < 0.75)
    nodes = random.choice((1, 3, 3, 3, 3, 3, 3, 5))
    return Options(
        nodes=nodes,
        safety_s=40 if nodes == 5 else 60,  # five say three times as much to each other
        clients=random.randint(2, 6),
        think_ms=random.choice((200, 800, 1600, 3200)),
        fault_every_ms=random.choice((600, 1000, 1500, 2000)),
        faults=kept,
        loss=random.choice((0.0, 0.0, 0.01, 0.05, 0.1, 0.3)),
        duplication=random.choice((0.0, 0.0, 0.05, 0.2, 0.5)),
        late=random.choice((0.0, 0.01, 0.1, 0.3)),
        delay_us=random.choice((100, 500, 2000, 10_000)),
        drift_ppm=random.choice((0, 200, 10_000, 50_000)),
        flush_us=random.choice((80, 200, 1000, 4000)),
        cold_reads=random.choice((0.0, 0.1, 0.5)),
        segment_bytes=random.choice((64 << 10, 128 << 10, 256 << 10)),
        spare_segments=random.choice((1, 2)),
        pool_segments=random.choice((0, 2, 4)),
        tail_cache_bytes=random.choice((4 << 10, 64 << 10, 1 << 20)),
        heartbeat_ms=random.choice((50, 200, 200)),
        election_timeout_ms=random.choice((500, 500, 1000)),
        pipeline_depth=random.choice((1, 1, 2, 4)),
        max_append_bytes=random.choice((4 << 10, 64 << 10, 1 << 20)),
        rot=random.random() < 0.5,
        stale_cache=random.random() < 0.5,
        kept_entries=random.choice((8, 50, 500, 5000, 1 << 20)),
        commit_push_ms=random.choice((0, 3)),
        spare_wait_ms=random.choice((0, 20, 45)),
        race_commits=random.choice((1, 3, 16)),
        chunk_bytes=random.choice((4 << 10, 32 << 10, 1 << 20)),
    )


def override(options: Options, values: Mapping[str, object]) -> Options:
    """Options with some replaced; text values (of the command line) are read by the field's type.

    Raises ValueError for a name or a value that is none.
    """
    changed: dict[str, object] = {}
    known = {field.name: getattr(options, field.name) for field in fields(options)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"no option {name!r}; there are {', '.join(known)}")
        changed[name] = _read(value, known[name]) if isinstance(value, str) else value
    return replace(options, **changed)  # type: ignore[arg-type]


def _read(text: str, former: object) -> object:
    if isinstance(former, bool):
        return text.lower() in ("1", "true", "yes")
    if isinstance(former, tuple):
        kinds = tuple(kind.strip() for kind in text.split(",") if kind.strip())
        unknown = [kind for kind in kinds if kind not in FAULTS]
        if unknown:
            raise ValueError(f"no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
        return kinds
    return type(former)(text)  # type: ignore[call-arg]


def described(options: Options) -> Iterator[str]:
    """name=value, a line each."""
    for field in fields(options):
        value = getattr(options, field.name)
        yield f"{field.name}={', '.join(value) if isinstance(value, tuple) else value}"
