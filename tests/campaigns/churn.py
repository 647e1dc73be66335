"""`python -m tests.campaigns.churn --count 10000`: what comes and goes leaves nothing behind.

A broker in this process serves connections, fetch sessions, classic groups with a member each, producers,
transactional ids, and topics under new names and under the same name; each kind comes and goes `--count`
times. Before and after, the campaign takes a census: how many objects of each class of the product there
are, and how many elements their collections hold. One that grows with the count is a leak. Memory
(`tracemalloc`), open descriptors and files are recorded beside it. Then the broker is stopped, another one is
started on the same directory, and the census is taken again. Each kind is a run of its own in
docs/evidence/churn.json; `--resume` leaves out the kinds that a former run on the same source has finished.
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

from broker.first_sequences import MAX_FORMER_NAMES
from broker.server import Broker
from broker.settings.config import from_texts
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.wire import Client, batch, fetch_request
from tests.campaigns import evidence

PRODUCT = ("broker.", "storage.", "protocol.")
COLLECTIONS = (dict, list, set, deque, bytearray)
WARM_UP = 60
"""So often each kind comes and goes before the first census: caches of a few dozen entries are full then."""
ALLOWANCE = 25
"""Growth of a class or a collection that depends on the moment: tasks that end, a batch on its way."""
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "lockstep.segment.bytes": "4194304",
    "lockstep.spare.segments": "1",
    "lockstep.tail.cache.bytes": "0",
    "log.flush": "os",
    "producer.id.expiration.ms": "1000",
    "transactional.id.expiration.ms": "1000",
    "max.incremental.fetch.session.cache.slots": "20",
    "group.initial.rebalance.delay.ms": "0",
}
BOUNDS = {"FirstSequences._former_names": MAX_FORMER_NAMES}
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
    request = JoinGroupRequest(
        group_id=name,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joined = await client.call(request, 3)
    assert joined.error_code == 0, joined
    left = await client.call(
        LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=joined.member_id)]), 4
    )
    assert left.error_code == 0, left
    deleted = await client.call(DeleteGroupsRequest(groups_names=[name]), 2)
    assert deleted.results[0].error_code == 0, deleted


async def producer(broker: Broker, client: Client, name: str) -> None:
    """A new producer id writes one batch; its state expires."""
    made = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
    assert made.error_code == 0
    data = batch(b"x", producer_id=made.producer_id, producer_epoch=made.producer_epoch, base_sequence=0)
    assert (await client.produce("steady", data)).error_code == 0


async def transactional_id(broker: Broker, client: Client, name: str) -> None:
    """A new transactional id gets a producer id; it expires."""
    wanted = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
    assert (await client.call(wanted, 4)).error_code == 0


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
    "producers": producer,
    "transactional ids": transactional_id,
    "topics": topic,
    "topics of one name": same_topic,
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


async def _started(directory: Path) -> tuple[Broker, Client]:
    broker = Broker(from_texts({**SETTINGS, "log.dirs": str(directory)}))
    await broker.start()
    await broker.services.consumer_groups.ready()
    return broker, await Client.connect(broker.port)


async def _ended(broker: Broker, client: Client) -> None:
    await client.close()
    await broker.stop()


async def _settled(broker: Broker, expires: Callable[[Broker], None]) -> None:
    """What expires has had its time, and each log a checkpoint."""
    await asyncio.sleep(1.2)
    expires(broker)
    await asyncio.sleep(0.3)


def _expire(broker: Broker) -> None:
    """The turns that a broker takes every few minutes, now."""
    for each in broker.services.cluster.groups.values():
        each.log.prepare_now()


async def churn(kind: str, count: int, directory: Path) -> dict[str, Any]:
    """One kind comes and goes: figures, with what has grown under `grown` and `grown_after_restart`."""
    work = KINDS[kind]
    broker, client = await _started(directory)
    try:
        await client.create("steady")
        for at in range(WARM_UP):
            await work(broker, client, f"warm-{at}")
        await _settled(broker, _expire)
        before, resources = census(), _resources(directory)
        for at in range(count):
            await work(broker, client, f"name-{at}")
        await _settled(broker, _expire)
        after, resources_after = census(), _resources(directory)
    finally:
        await _ended(broker, client)
    del broker, client
    broker, client = await _started(directory)
    try:
        await _settled(broker, _expire)
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
    for name in ("descriptors", "files"):
        if figures["after"][name] - figures["before"][name] > ALLOWANCE:
            found.append(f"{name} were {figures['before'][name]}, are {figures['after'][name]}")
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
