"""Any requests, waits and changes leave the same with the fast path of Fetch as without it."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstep.protocol.records.control import ControlKind, build
from tests.broker.fetch.fetch_rig import TOPICS, FetchNode, Pair, request, transactional, write
from tests.broker.wire import batch

VERSIONS = range(4, 19)
LATEST = -1
"""In place of an offset: the high watermark."""
OFFSETS = st.sampled_from([0, 0, 1, 1, 2, 3, 5, 9, LATEST, LATEST, LATEST])
PLACES = st.tuples(st.sampled_from([*TOPICS] * 6 + ["nope"]), st.sampled_from([0, 0, 0, 1, 1, 7]), OFFSETS)


@st.composite
def fetches(draw: st.DrawFn) -> dict[str, Any]:
    """A request that may be good, and go on in a session."""
    return {
        "version": draw(st.sampled_from([*VERSIONS, *[12] * 8, *[13] * 8, *[11] * 4])),
        "session": draw(
            st.sampled_from(["none"] * 4 + ["new", "on", "on", "on", "on", "on", "wrong", "unknown"])
        ),
        "wanted": draw(st.lists(PLACES, max_size=3)),
        "forgotten": draw(st.sampled_from([()] * 8 + [(("one", 0),)])),
        "fields": {
            "max_wait_ms": draw(st.sampled_from([0, 0, 60_000])),
            "min_bytes": draw(st.sampled_from([1] * 6 + [0, 2, 300])),
            "isolation_level": draw(st.sampled_from([0, 0, 1])),
            "rack_id": draw(st.sampled_from([""] * 5 + ["r"])),
            "max_bytes": draw(st.sampled_from([1 << 20, 1 << 20, 100, 0])),
            "leader_epoch": draw(st.sampled_from([-1] * 6 + [0, 1, 2])),
        },
        "damage": draw(
            st.none() | st.none() | st.none() | st.tuples(st.integers(0, 120), st.integers(0, 255))
        ),
        "correlation_id": draw(st.integers(0, 1000)),
    }


def made(pair: Pair, what: dict[str, Any]) -> bytes:
    """The bytes of a request, with what the nodes know by now."""
    number, epoch = 0, -1
    open_sessions = list(pair.slow.sessions._sessions.values())
    version = what["version"] if what["version"] >= 7 or what["session"] == "none" else 12
    if what["session"] == "new":
        epoch = 0
    elif what["session"] == "unknown":
        number, epoch = 77, 1
    elif open_sessions and what["session"] != "none":
        number, epoch = open_sessions[-1].session_id, open_sessions[-1].epoch + (what["session"] == "wrong")
        version = max(version, 13) if open_sessions[-1].uses_topic_ids else min(version, 12)
    wanted = []
    for name, index, offset in what["wanted"]:
        partition = pair.slow.cluster.partition(name, index)
        end = 0 if partition is None else partition.log.high_watermark
        wanted.append((name, index, end if offset == LATEST else offset))
    wanted.sort()
    fields = dict(what["fields"])
    if version < 11:
        fields.pop("rack_id")
    if version < 9:
        fields.pop("leader_epoch")
    if version < 7:
        number, epoch = 0, -1
    data = request(
        pair, *wanted, version=version, session_id=number, session_epoch=epoch,
        correlation_id=what["correlation_id"],
        forgotten=what["forgotten"] if version >= 7 and number else (), **fields,
    )  # fmt: skip
    if what["damage"] is not None:
        at, value = what["damage"]
        body = bytearray(data[4:])
        if at < len(body):
            body[at] = value
        else:
            del body[at // 2 :]
        data = struct.pack(">i", len(body)) + bytes(body)
    return data


CHANGES = [
    "append", "append", "append", "transaction", "abort", "expire", "other", "delete", "lose", "cold",
    "start", "deny",
]  # fmt: skip
STEPS = st.lists(fetches() | fetches() | st.sampled_from(CHANGES), max_size=14)


def test_any_requests_leave_the_same(loop_of_pairs: tuple[asyncio.AbstractEventLoop, Pair]) -> None:
    loop, pair = loop_of_pairs

    @settings(max_examples=150)
    @given(STEPS)
    def run(steps: list[Any]) -> None:
        loop.run_until_complete(example(pair, steps))

    run()


async def example(pair: Pair, steps: list[Any]) -> None:
    """Any requests over new topics, with changes between them."""
    await pair.renew()
    before = pair.fast.taken
    await write(pair, batch(b"a"), batch(b"b" * 200))
    for step in steps:
        if isinstance(step, dict):
            pair.receive(made(pair, step))
        else:
            await change(pair, step)
        await pair.settle()
        if pair.transports[0].closed:
            pair.connect()
    for node in pair.nodes:
        node.expire()
    await pair.settle()
    event(f"the fast path took some: {pair.fast.taken > before}")


async def change(pair: Pair, what: str) -> None:
    """Something happens to both nodes."""
    if what == "append":
        await write(pair, batch(b"c" * 50), topic="two", index=1)
        await write(pair, batch(b"d"))
    elif what == "transaction":
        await write(pair, transactional())
    elif what == "abort":
        kind = ControlKind.ABORT
        await write(pair, build(kind, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5))
    elif what == "other":
        pair.connect()
    elif what == "delete" and pair.slow.group.is_leader:
        for node in pair.nodes:
            node.delete_topic("one")
        await pair.make_topic("one")
    for node in pair.nodes:
        change_node(node, what)


def change_node(node: FetchNode, what: str) -> None:
    """Something happens to one of them."""
    if what == "expire":
        node.expire()
    elif what == "deny":
        node.denied ^= {"one"}
    elif what == "lose":
        node.lead(not node.group.is_leader)
    elif what == "cold":
        node.is_cold = not node.is_cold
    elif what == "start":
        log = node.cluster.topics["one"].partitions[0].log
        log.log_start_offset = min(log.log_start_offset + 1, log.high_watermark)


@pytest.fixture
def loop_of_pairs() -> Any:
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as directory:
        pair = loop.run_until_complete(Pair(Path(directory)).open())
        yield loop, pair
        loop.run_until_complete(pair.close())
    loop.close()
