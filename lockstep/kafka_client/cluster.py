"""A client of a Lockstep cluster's administration: its nodes and log groups, and changes to them.

Owns: the requests of `lockstep cluster` to any node, and their repetition until the change is done. A change
continues in the cluster whether or not the caller waits. Raises BrokerError for a rejected request, TimedOut
for a change that takes longer than `wait_s`; a node that disappears meanwhile is no failure while another
bootstrap node responds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError, ClientError, ConnectionFailed, TimedOut
from lockstep.protocol.cluster_messages import LockstepClusterRequest, LockstepClusterResponse
from lockstep.protocol.errors import ErrorCode

Document = dict[str, Any]
OutOfSync = set[tuple[int, int | None]]
"""Log group and member; no member where its leader did not respond in time."""
Progress = Callable[[str], None]
"""Receives a text about what is not done yet, after a while and whenever that changes."""
POLL_SECONDS: Final = 0.5
PROGRESS_DELAY_SECONDS: Final = 1.0
"""No progress is printed before this."""
OUT_OF_SYNC_GRACE_SECONDS: Final = 3.0
"""A voter that is out of sync for this time does not keep up."""
RETRIABLE: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE)
"""Errors that end by themselves: a leader will be elected."""


async def status(client: Client) -> Document:
    """Returns nodes, groups and whether the cluster is healthy, as the node that responds knows it."""
    return await _send_command(client, {"do": "status"})


async def status_after_grace_period(client: Client) -> Document:
    """Like `status`, but a voter that is out of sync for less than the grace period does not make it
    unhealthy: under load each is now and then."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + OUT_OF_SYNC_GRACE_SECONDS
    found = await status(client)
    out_of_sync = _out_of_sync(found)
    while out_of_sync and loop.time() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        found = await status(client)
        now = _out_of_sync(found)
        out_of_sync = None if now is None else _still_out_of_sync(out_of_sync, now)
    if out_of_sync is not None:
        found["healthy"] = bool(found["groups"]) and not out_of_sync
    return found


def _out_of_sync(found: Document) -> OutOfSync | None:
    """Returns the voters out of sync, by group and member, and the groups (member None) whose leader did not
    respond in time.

    None where the cluster is unhealthy for another reason, or the node of such a voter is dead.
    """
    unwritable = any(each.get("disk_full") or each.get("write_failed") for each in found["nodes"])
    if unwritable or _is_damaged(found):
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
    """Returns the members that were out of sync both times. A group that was unknown before may have had any
    of them."""
    unknown_before, unknown_now = (
        {group for group, member in found if member is None} for found in (before, now)
    )
    return {
        each
        for each in before | now
        if (each in before or each[0] in unknown_before) and (each in now or each[0] in unknown_now)
    }


async def skip_damage(
    client: Client, topic: str, partition: int, *, force: bool = False
) -> tuple[list[Document], list[Document]]:
    """Makes reads skip the damaged ranges of a partition. Returns their offsets, by node, and the nodes with
    a copy that did not respond, each with `node` and `reason`.

    Args: force: also where another node has, or may have, the records: else that raises BrokerError.
    """
    command = {"do": "give_up", "topic": topic, "partition": partition, **({"force": True} if force else {})}
    response = await _send_command(client, command)
    return response["given_up"], response.get("unanswered", [])


async def add(
    client: Client, node_id: int, wait_s: float, on_progress: Progress = lambda text: None
) -> Document:
    """Places log groups on a registered node and waits until it votes in all of them."""
    return await _repeat_until_done(
        client,
        {"do": "add", "node": node_id},
        wait_s,
        lambda response: f"node {node_id} has not caught up with {_groups(response)}",
        on_progress=on_progress,
    )


async def remove(
    client: Client, node_id: int, wait_s: float, on_progress: Progress = lambda text: None
) -> Document:
    """Places a node's log groups on other nodes, waits until none has a replica there, and removes the
    node."""
    return await _repeat_until_done(
        client,
        {"do": "remove", "node": node_id},
        wait_s,
        lambda response: f"node {node_id} still has a part in {_groups(response)}",
        on_progress=on_progress,
        done_when=ErrorCode.INVALID_REQUEST,  # there is no such node any more: the last response was lost
    )


async def transfer(
    client: Client, group: int, node_id: int, wait_s: float, on_progress: Progress = lambda text: None
) -> Document:
    """Transfers a log group's leadership to a node, and waits until the node leads."""
    return await _repeat_until_done(
        client,
        {"do": "transfer", "group": group, "node": node_id},
        wait_s,
        lambda response: f"log group {group} is not led by node {node_id}",
        on_progress=on_progress,
    )


async def _repeat_until_done(
    client: Client,
    command: Document,
    wait_s: float,
    problem: Callable[[Document], str],
    on_progress: Progress,
    done_when: ErrorCode | None = None,
) -> Document:
    """Repeats a command until it is done. An error is raised if it is the first response; later errors only
    if they are not retriable."""
    loop = asyncio.get_running_loop()
    deadline, quiet_until, printed = loop.time() + wait_s, loop.time() + PROGRESS_DELAY_SECONDS, ""
    response: Document | None = None
    while True:
        try:
            response = await _send_command(client, command)
            if response["done"]:
                return response
        except (BrokerError, ConnectionFailed) as error:
            if response is not None and isinstance(error, BrokerError) and error.code == done_when:
                return response
            passes = isinstance(error, ConnectionFailed) or error.code in RETRIABLE
            if response is None or not passes or loop.time() >= deadline:
                raise
        if loop.time() + POLL_SECONDS >= deadline:
            raise TimedOut(
                f"{problem(response or {})} after {wait_s:g} s; "
                "the change continues: `lockstep cluster status` shows it"
            )
        if response is not None and loop.time() >= quiet_until and (text := problem(response)) != printed:
            printed = text
            on_progress(f"{text}; waiting")
        await asyncio.sleep(POLL_SECONDS)


async def _send_command(client: Client, command: Document) -> Document:
    request = LockstepClusterRequest(body=json.dumps(command).encode())
    connection = await client.any_broker()
    try:
        response = await connection.call(request, LockstepClusterResponse)
    except TimedOut:
        raise
    except ConnectionFailed as error:
        raise ConnectionFailed(f"{error}; is it a Lockstep broker of this version?") from None
    if response.error_code:
        raise BrokerError(response.error_code, "the cluster", response.error_message)
    try:
        found: Document = json.loads(bytes(response.body))
    except ValueError as error:
        raise ClientError(f"{connection} sent a malformed response: {error}") from None
    return found


def _groups(response: Document) -> str:
    numbers = response.get("waiting") or []
    return f"log group{'s'[: len(numbers) != 1]} {', '.join(map(str, numbers))}"
