"""A Lockstep cluster seen from outside: its nodes and log groups, and changes to them.

Owns: what `lockstep cluster` asks of any node, and asking again until it is done. A change continues in the
cluster whether or not the caller waits. Raises BrokerError for what is rejected, TimedOut for what takes
longer than it may; a node that goes away meanwhile is no failure while another of those named answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from lockstep.client import Client
from lockstep.connection import BrokerError, ClientError, ConnectionFailed, TimedOut
from lockstep.protocol.cluster_messages import LockstepClusterRequest, LockstepClusterResponse
from lockstep.protocol.errors import ErrorCode

Document = dict[str, Any]
OutOfSync = set[tuple[int, int | None]]
"""Log group and member; no member where its leader did not answer in time."""
Progress = Callable[[str], None]
"""Is told what is not done yet, after a while and whenever that changes."""
LOOK_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 1.0
"""No progress is printed before this."""
LASTING_SECONDS: Final = 3.0
"""A voter that was never in sync for so long does not keep up."""
RETRIABLE: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE)
"""Refusals that end by themselves: somebody will be elected."""


async def status(client: Client) -> Document:
    """Nodes, groups and whether all is well, as the node that is asked knows it."""
    return await _ask(client, {"do": "status"})


async def lasting_status(client: Client) -> Document:
    """`status`, healthy also where a voter is out of sync for a moment: under load each is now and then."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LASTING_SECONDS
    found = await status(client)
    out_of_sync = _out_of_sync(found)
    while out_of_sync and loop.time() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        found = await status(client)
        now = _out_of_sync(found)
        out_of_sync = None if now is None else _still_out_of_sync(out_of_sync, now)
    if out_of_sync is not None:
        found["healthy"] = bool(found["groups"]) and not out_of_sync
    return found


def _out_of_sync(found: Document) -> OutOfSync | None:
    """Voters that lag, by group and member, and groups (member None) whose leader did not answer in time.

    None where something else is wrong, or one of them is not there.
    """
    if any(each.get("disk_full") for each in found["nodes"]) or _is_damaged(found):
        return None
    alive = {each["node"] for each in found["nodes"] if each["alive"]}
    out_of_sync: OutOfSync = set()
    for group in found["groups"]:
        late = [each for each in group["voters"] or () if not each["in_sync"]]
        if group["leader"] < 0 or any(each["node"] not in alive for each in late):
            return None
        if group["voters"] is None:
            out_of_sync.add((group["group"], None))
        out_of_sync |= {(group["group"], each["member"]) for each in late}
    return out_of_sync


def _is_damaged(found: Document) -> bool:
    return any(not each["given_up"] for each in found.get("damage", ()))


def _still_out_of_sync(before: OutOfSync, now: OutOfSync) -> OutOfSync:
    """Members that were out of sync both times. A group unknown before may have had any of them."""
    unknown_before, unknown_now = (
        {group for group, member in found if member is None} for found in (before, now)
    )
    return {
        each
        for each in before | now
        if (each in before or each[0] in unknown_before) and (each in now or each[0] in unknown_now)
    }


async def skip_damage(client: Client, topic: str, partition: int) -> tuple[list[Document], list[Document]]:
    """Give up the damaged ranges of a partition: (their offsets, by node; the nodes with a copy that did not
    answer, each with `node` and `reason`)."""
    answer = await _ask(client, {"do": "give_up", "topic": topic, "partition": partition})
    return answer["given_up"], answer.get("unanswered", [])


async def add(client: Client, node_id: int, wait_s: float, say: Progress = lambda text: None) -> Document:
    """Place log groups on a registered node and wait until it votes in all of them."""
    return await _until_done(
        client,
        {"do": "add", "node": node_id},
        wait_s,
        lambda answer: f"node {node_id} has not caught up with {_groups(answer)}",
        say=say,
    )


async def remove(client: Client, node_id: int, wait_s: float, say: Progress = lambda text: None) -> Document:
    """Place a node's log groups elsewhere, wait until none has a part there, and record it as gone."""
    return await _until_done(
        client,
        {"do": "remove", "node": node_id},
        wait_s,
        lambda answer: f"node {node_id} still has a part in {_groups(answer)}",
        say=say,
        done_when=ErrorCode.INVALID_REQUEST,  # there is no such node any more: the last response was lost
    )


async def transfer(
    client: Client, group: int, node_id: int, wait_s: float, say: Progress = lambda text: None
) -> Document:
    """Have a log group led by a node, and wait until it is."""
    return await _until_done(
        client,
        {"do": "transfer", "group": group, "node": node_id},
        wait_s,
        lambda answer: f"log group {group} is not led by node {node_id}",
        say=say,
    )


async def _until_done(
    client: Client,
    question: Document,
    wait_s: float,
    problem: Callable[[Document], str],
    say: Progress,
    done_when: ErrorCode | None = None,
) -> Document:
    """Ask until it is done. What is rejected at first is wrong; later only what does not pass is."""
    loop = asyncio.get_running_loop()
    deadline, quiet_until, printed = loop.time() + wait_s, loop.time() + QUIET_SECONDS, ""
    answer: Document | None = None
    while True:
        try:
            answer = await _ask(client, question)
            if answer["done"]:
                return answer
        except (BrokerError, ConnectionFailed) as error:
            if answer is not None and isinstance(error, BrokerError) and error.code == done_when:
                return answer
            passes = isinstance(error, ConnectionFailed) or error.code in RETRIABLE
            if answer is None or not passes or loop.time() >= deadline:
                raise
        if loop.time() + LOOK_SECONDS >= deadline:
            raise TimedOut(
                f"{problem(answer or {})} after {wait_s:g} s; it goes on: `lockstep cluster status` tells"
            )
        if answer is not None and loop.time() >= quiet_until and (text := problem(answer)) != printed:
            printed = text
            say(f"{text}; waiting")
        await asyncio.sleep(LOOK_SECONDS)


async def _ask(client: Client, question: Document) -> Document:
    request = LockstepClusterRequest(body=json.dumps(question).encode())
    connection = await client.any_broker()
    try:
        answer = await connection.call(request, LockstepClusterResponse)
    except TimedOut:
        raise
    except ConnectionFailed as error:
        raise ConnectionFailed(f"{error}; is it a Lockstep broker of this version?") from None
    if answer.error_code:
        raise BrokerError(answer.error_code, "the cluster", answer.error_message)
    try:
        found: Document = json.loads(bytes(answer.body))
    except ValueError as error:
        raise ClientError(f"{connection} sent an answer that cannot be read: {error}") from None
    return found


def _groups(answer: Document) -> str:
    numbers = answer.get("waiting") or []
    return f"log group{'s'[: len(numbers) != 1]} {', '.join(map(str, numbers))}"
