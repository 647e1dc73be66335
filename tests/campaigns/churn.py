"""`python -m tests.campaigns.churn --count 10000`: what comes and goes leaves nothing behind.

A broker in this process serves connections, fetch sessions, classic groups with a member each, members of one
group, producers, transactional ids, transactions, and topics under new names and under the same name; beside
it a player plays a log in memory to targets that are added and removed. Each kind comes and goes `--count`
times. What expires does so before each census: producers with a checkpoint, transactional ids by their loop.
Before and after, the campaign takes a census: how many objects of each class of the product there
are, and how many elements their collections hold. One that grows with the count is a leak. Memory
(`tracemalloc`), open descriptors and files are recorded beside it. Then the broker is stopped, another one is
started on the same directory, and the census is taken again. The kinds of `churn_security` have listeners
with logins and with TLS. Each kind is a run of its own in docs/evidence/churn.json; `--resume` leaves out the
kinds that a former run on the same source has finished.
Ends with 1 for a leak.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import tracemalloc
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from lockstep.broker.metadata.lowest_sequences import MAX_FORMER_NAMES
from lockstep.broker.server import Broker
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.player.driver.driver import PlayerDriver
from lockstep.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from lockstep.protocol.messages.api_versions import ApiVersionsRequest
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.messages.end_txn import EndTxnRequest
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lockstep.storage.log.batch_index import INDEX_COST_BYTES
from lockstep.storage.log.verified_batches import MAX_OWNERS
from tests.broker.wire import Client, batch, fetch_request, produce_request
from tests.campaigns import churn_security, evidence
from tests.player.driver.doubles import MemoryLog, MemoryStreams, MemoryTarget, route, settings, until

PRODUCT = ("lockstep.broker.", "lockstep.storage.", "lockstep.protocol.", "lockstep.player.")
COLLECTIONS = (dict, list, set, deque, bytearray)
WARM_UP = 60
"""So often each kind comes and goes before the first census: caches of a few dozen entries are full then."""
ALLOWANCE = 25
"""Growth of a class or a collection that depends on the moment: tasks that end, a batch on its way."""
INDEX_CACHE_BYTES = 65_536
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "lockstep.segment.bytes": "4194304",
    "lockstep.spare.segments": "1",
    "lockstep.tail.cache.bytes": "0",
    "lockstep.index.cache.bytes": str(INDEX_CACHE_BYTES),
    "log.flush": "os",
    "producer.id.expiration.ms": "1000",
    "transactional.id.expiration.ms": "1000",
    "max.incremental.fetch.session.cache.slots": "20",
    "group.initial.rebalance.delay.ms": "0",
}
CACHED_INDEXES = INDEX_CACHE_BYTES // INDEX_COST_BYTES
PARTITIONS = 110
"""Of the broker's own topics and of the steady one, with a few to come and go."""
BOUNDS = {
    "LowestSequences._former_names": MAX_FORMER_NAMES,
    "SegmentTable._cache": CACHED_INDEXES,
    "BatchIndex": CACHED_INDEXES + PARTITIONS,  # one for each partition in the segment that is written to
    "LogToClean": PARTITIONS,  # of each partition since the cleaner last looked
    "VerifiedRangesCache._ranges": MAX_OWNERS,
}
"""Collections that keep the newest of what went, up to a limit: by their limit."""
Kind = Callable[[Broker, Client, str], Awaitable[None]]


async def connection(broker: Broker, client: Client, name: str) -> None:
    """Open one, ask, close it."""
    other = await Client.connect(broker.port)
    await other.call(ApiVersionsRequest(client_software_name="churn", client_software_version="1"), 3)
    await other.close()


async def fetch_session(broker: Broker, client: Client, name: str) -> None:
    """Ask for a session and forget it, as a consumer does that dies; the cache may be full and give none."""
    answer = await client.call(fetch_request({"steady": {0: 0}}, session_epoch=0), 12)
    assert answer.error_code == 0


async def group(broker: Broker, client: Client, name: str) -> None:
    """A member joins a new group and leaves it; the group is deleted."""
    await _joins_and_leaves(client, name)
    deleted = await client.call(DeleteGroupsRequest(groups_names=[name]), 2)
    assert deleted.results[0].error_code == 0, deleted


async def _joins_and_leaves(client: Client, group_id: str) -> None:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joined = await client.call(request, 3)
    assert joined.error_code == 0, joined
    left = await client.call(
        LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=joined.member_id)]), 4
    )
    assert left.error_code == 0, left


async def producer(broker: Broker, client: Client, name: str) -> None:
    """A new producer id writes one batch; its state expires."""
    made = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
    assert made.error_code == 0
    data = batch(b"x", producer_id=made.producer_id, producer_epoch=made.producer_epoch, base_sequence=0)
    assert (await client.produce("steady", data)).error_code == 0


async def transactional_id(broker: Broker, client: Client, name: str) -> None:
    """A new transactional id gets a producer id; it expires."""
    wanted = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
    made = await client.call(wanted, 4)
    assert made.error_code == 0, made


async def member(broker: Broker, client: Client, name: str) -> None:
    """A member joins the one group there is and leaves it."""
    await _joins_and_leaves(client, "steady")


async def transaction(broker: Broker, client: Client, name: str) -> None:
    """A new transactional id commits a transaction of one batch; it expires."""
    asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
    made = await client.call(asked, 4)
    assert made.error_code == 0
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="steady", partitions=[0])],
    )
    (told,) = (await client.call(added, 3)).results_by_topic_v3_and_below
    assert {each.partition_error_code for each in told.results_by_partition} == {0}
    data = batch(
        b"x",
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request("steady", data)
    request.transactional_id = name
    (answer,) = (await client.call(request, 9)).responses
    assert answer.partition_responses[0].error_code == 0
    ended = EndTxnRequest(
        transactional_id=name,
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        committed=True,
    )
    assert (await client.call(ended, 3)).error_code == 0


class Player:
    """A playing of a log in memory, beside the broker."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.streams = MemoryStreams()
        self.playing = PlayerDriver(self.log, self.streams, route, settings(), 1, [], poll_s=0.05)
        self.run = asyncio.ensure_future(self.playing.run())

    async def target(self, name: str) -> None:
        """One target is added, gets an entry and is removed."""
        self.streams.targets[name] = target = MemoryTarget(name)
        self.playing.add(name, name, self.log.next_position)
        self.log.append(name)
        await until(lambda: target.applied != [])
        self.playing.remove(name)
        del self.streams.targets[name]
        self.streams.opened.clear()
        del self.log.entries[:-10]

    async def end(self) -> None:
        self.run.cancel()
        await asyncio.gather(self.run, return_exceptions=True)


_players: dict[Broker, Player] = {}


async def player_target(broker: Broker, client: Client, name: str) -> None:
    """A target of a player comes, is delivered to, and goes."""
    if broker not in _players:
        _players[broker] = Player()
    await _players[broker].target(name)


async def topic(broker: Broker, client: Client, name: str) -> None:
    """A topic of three partitions is created, written to and deleted."""
    await client.create(name, 3)
    for index in range(3):
        assert (await client.produce(name, batch(b"x" * 300), index)).error_code == 0
    deleted = await client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
    assert deleted.responses[0].error_code == 0


async def same_topic(broker: Broker, client: Client, name: str) -> None:
    """As `topic`, under the same name each time."""
    await topic(broker, client, "again")


KINDS: dict[str, Kind] = {
    "connections": connection,
    "fetch sessions": fetch_session,
    "groups": group,
    "group members": member,
    "producers": producer,
    "transactional ids": transactional_id,
    "transactions": transaction,
    "player's targets": player_target,
    "topics": topic,
    "topics of one name": same_topic,
    **churn_security.KINDS,
}


def census() -> Counter[str]:
    """Objects by class, and elements by class and attribute, of all that the product has made."""
    gc.collect()
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        if isinstance(each, type) or not str(kind.__module__).startswith(PRODUCT):
            continue
        found[kind.__name__] += 1
        for attribute in _attributes(kind, each):
            value = getattr(each, attribute, None)
            if isinstance(value, COLLECTIONS):
                found[f"{kind.__name__}.{attribute}"] += len(value)
    return found


def _attributes(kind: type, each: object) -> list[str]:
    names: list[str] = [] if not hasattr(each, "__dict__") else list(vars(each))
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return names


def grown(before: Counter[str], after: Counter[str], allowance: int) -> dict[str, list[int]]:
    """What there is more of by more than the allowance: before and after."""
    return {
        name: [before[name], count]
        for name, count in sorted(after.items())
        if count - before[name] > allowance and count > BOUNDS.get(name, 0)
    }


def _resources(directory: Path) -> dict[str, int]:
    return {
        "traced_bytes": tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "files": sum(len(names) for _, _, names in os.walk(directory)),
    }


async def _started(directory: Path, kind: str) -> tuple[Broker, Client]:
    more = churn_security.SETTINGS if kind in churn_security.KINDS else {}
    broker = Broker(from_texts({**SETTINGS, **more, "log.dirs": str(directory)}))
    await broker.start()
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    return broker, await Client.connect(broker.port)


async def _coordinators_serve(client: Client) -> None:
    """Transactional ids have a topic, and their coordinators are there."""
    await client.call(FindCoordinatorRequest(key="steady", key_type=1), 1)
    asked = InitProducerIdRequest(transactional_id="steady", transaction_timeout_ms=10_000)
    for _ in range(1000):
        if (await client.call(asked, 4)).error_code == 0:
            return
        await asyncio.sleep(0.03)
    raise AssertionError("no coordinator of transactions serves")


async def _ended(broker: Broker, client: Client) -> None:
    player = _players.pop(broker, None)
    if player is not None:
        await player.end()
    await client.close()
    await broker.stop()


async def _settled(broker: Broker, client: Client) -> None:
    """The turns that a broker takes every few minutes, now: what expires does, each log gets checkpoints, and
    the cleaner has been."""
    await asyncio.sleep(1.2)
    await broker.assembly.transaction_expiration.remove_expired()
    assert (await client.produce("steady", batch(b"x"))).error_code == 0  # the log's time goes on
    await asyncio.sleep(0.3)
    for each in broker.assembly.cluster.groups.values():
        await each.committed()
        assert await each.sealer.run(60)
    async with asyncio.timeout(600):
        while broker.assembly.compaction._is_running:  # noqa: ASYNC110 a pass of its own would be counted
            await asyncio.sleep(0.1)
    await broker.compact()
    for each in broker.assembly.cluster.groups.values():
        each.log.prepare_now()
    await asyncio.sleep(0.1)


async def churn(kind: str, count: int, directory: Path) -> dict[str, Any]:
    """One kind comes and goes: figures, with what has grown under `grown` and `grown_after_restart`."""
    work = KINDS[kind]
    broker, client = await _started(directory, kind)
    try:
        await client.create("steady")
        await _coordinators_serve(client)
        for at in range(WARM_UP):
            await work(broker, client, f"warm-{at}")
        await _settled(broker, client)
        before, resources = census(), _resources(directory)
        for at in range(count):
            await work(broker, client, f"name-{at}")
        await _settled(broker, client)
        after, resources_after = census(), _resources(directory)
    finally:
        await _ended(broker, client)
    del broker, client
    broker, client = await _started(directory, kind)
    try:
        await _settled(broker, client)
        restarted, resources_restarted = census(), _resources(directory)
    finally:
        await _ended(broker, client)
    return {
        "kind": kind,
        "count": count,
        "before": resources,
        "after": resources_after,
        "restarted": resources_restarted,
        "grown": grown(before, after, ALLOWANCE),
        "grown_after_restart": grown(before, restarted, ALLOWANCE),
    }


def problems(figures: dict[str, Any]) -> list[str]:
    """What a run found to grow."""
    found = [
        f"{when}: {name} was {counts[0]}, is {counts[1]}"
        for when, key in (("running", "grown"), ("restarted", "grown_after_restart"))
        for name, counts in figures[key].items()
    ]
    for when in ("after", "restarted"):
        for name in ("descriptors", "files"):
            if figures[when][name] - figures["before"][name] > ALLOWANCE:
                found.append(f"{when}: {name} were {figures['before'][name]}, are {figures[when][name]}")
    return found


def _finished(count: int) -> set[str]:
    source = evidence.source_digest()
    return {
        run["kind"]
        for run in evidence.load_runs("churn")
        if run["source"] == source and run["count"] >= count and not run["problems"]
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.churn", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    done = _finished(arguments.count) if arguments.resume else set()
    failed = False
    tracemalloc.start()
    for kind in [each for each in arguments.kind or KINDS if each not in done]:
        with tempfile.TemporaryDirectory(prefix="lockstep-churn-") as directory:
            figures = asyncio.run(churn(kind, arguments.count, Path(directory)))
        figures["problems"] = problems(figures)
        failed = failed or bool(figures["problems"])
        print(json.dumps(figures, indent=2), flush=True)
        if not arguments.no_evidence:
            evidence.add_run("churn", figures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
