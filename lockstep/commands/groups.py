"""`lockstep groups list|describe|reset|delete`."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from lockstep.commands.options import (
    Families,
    add_connection,
    add_json,
    client_of,
    print_json,
    print_table,
    whole_number,
)
from lockstep.failures import CommandFailed, report_client_errors

if TYPE_CHECKING:
    from lockstep.kafka_client.client import Client
    from lockstep.kafka_client.groups import TopicPartition

_NO_MEMBERS = ("Empty", "Dead")


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "groups",
        help="list, describe, reset and delete consumer groups",
        description="List, describe, reset and delete consumer groups.",
    )
    add_connection(family)
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="the groups of the cluster")
    add_json(listing, "one object per group and line")
    listing.set_defaults(run=_list)

    describe = commands.add_parser("describe", help="members, committed offsets and lag of groups")
    describe.add_argument("group", nargs="+", help="its name")
    add_json(describe, "one object per group and line")
    describe.set_defaults(run=_describe)

    reset = commands.add_parser(
        "reset",
        help="set a group's committed offsets",
        description="Set the committed offsets of a group without members. Without --execute it only shows "
        "the change.",
    )
    reset.add_argument("group", help="its name")
    reset.add_argument("topic", nargs="+", help="TOPIC, or TOPIC:PARTITION,PARTITION")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the oldest record")
    where.add_argument("--to-latest", action="store_true", help="behind the newest record")
    where.add_argument(
        "--to-offset", type=whole_number, metavar="N", help="this offset, or the nearest existing one"
    )
    where.add_argument(
        "--to-time",
        type=_time_ms,
        metavar="TIME",
        help="the first record not older than this: 2026-01-31T12:00 (UTC without a zone), or "
        "milliseconds since 1970",
    )
    where.add_argument("--shift-by", type=int, metavar="N", help="N records forward, or back if below zero")
    reset.add_argument("--execute", action="store_true", help="make the change")
    add_json(reset, "one object per partition and line")
    reset.set_defaults(run=_reset)

    delete = commands.add_parser("delete", help="delete groups without members, and their offsets")
    delete.add_argument("group", nargs="+", help="its name")
    add_json(delete, "one object per group and line")
    delete.set_defaults(run=_delete)

    for command in (listing, describe, reset, delete):
        add_connection(command, again=True)


def _time_ms(text: str) -> int:
    """An argument type: milliseconds since 1970, or a date as ISO 8601 writes it."""
    from datetime import UTC, datetime

    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a date nor milliseconds since 1970") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _list(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.groups import list_groups

    async def run() -> None:
        async with client_of(options) as client:
            groups = await list_groups(client)
        if options.json:
            for each in groups:
                print_json({"group": each.group, "state": each.state, "protocol_type": each.protocol_type})
        elif groups:
            print_table(
                ("GROUP", "STATE", "PROTOCOL TYPE"), [(g.group, g.state, g.protocol_type) for g in groups]
            )
        else:
            print("no groups")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _describe(options: argparse.Namespace) -> int:
    import asyncio

    async def run() -> None:
        async with client_of(options) as client:
            printed = 0

            async def show(name: str) -> None:
                nonlocal printed
                described = await client.retry_while(lambda: _describe_one(client, name))
                if options.json:
                    print_json(described)
                else:
                    _show(described, printed > 0)
                printed += 1

            await _each(options.group, show)

    with report_client_errors():
        asyncio.run(run())
    return 0


async def _each(groups: list[str], act: Callable[[str], Awaitable[None]]) -> None:
    """Calls `act` for every group, also after a failure. Raises CommandFailed, which names the failures."""
    from lockstep.kafka_client.connection import BrokerError

    failures = []
    for name in groups:
        try:
            await act(name)
        except (BrokerError, CommandFailed) as error:
            failures.append(str(error))
    if failures:
        raise CommandFailed("; ".join(failures))


async def _describe_one(client: Client, name: str) -> dict[str, object]:
    from lockstep.kafka_client.groups import NO_SUCH_GROUP, committed_offsets, describe_group, end_offsets

    group = await describe_group(client, name)
    offsets: dict[TopicPartition, int | None] = dict(await committed_offsets(client, name))
    owners = {topic_partition: member for member in group.members for topic_partition in member.owned or ()}
    if group.state == "Dead" and not offsets:
        raise CommandFailed(f"group {name}: {NO_SUCH_GROUP}")
    offsets = dict(sorted({**{topic_partition: None for topic_partition in owners}, **offsets}.items()))
    ends = await end_offsets(client, {topic_partition: 0 for topic_partition in offsets})
    return {
        "group": name,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": None
                if member.owned is None
                else [list(topic_partition) for topic_partition in member.owned],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": topic_partition[0],
                "partition": topic_partition[1],
                "committed": offset,
                "end_offset": ends.get(topic_partition),
                "lag": ends[topic_partition] - offset
                if offset is not None and topic_partition in ends
                else None,
                "member_id": owners[topic_partition].member_id if topic_partition in owners else None,
            }
            for topic_partition, offset in offsets.items()
        ],
    }


def _show(described: dict[str, object], after_another: bool) -> None:
    if after_another:
        print()
    members, partitions = described["members"], described["partitions"]
    assert isinstance(members, list) and isinstance(partitions, list)
    protocol = f", {described['protocol']}" if described["protocol"] else ""
    count = "1 member" if len(members) == 1 else f"{len(members)} members"
    print(f"group {described['group']}   {described['state']}, {count}{protocol}")
    if members:
        print_table(
            ("MEMBER", "CLIENT", "HOST", "PARTITIONS"),
            [
                (
                    member["member_id"],
                    member["client_id"],
                    member["host"],
                    "?" if member["partitions"] is None else len(member["partitions"]),
                )
                for member in members
            ],
        )
    if partitions:
        keys = ("topic", "partition", "committed", "end_offset", "lag", "member_id")
        print_table(
            ("TOPIC", "PARTITION", "COMMITTED", "END OFFSET", "LAG", "MEMBER"),
            [["-" if row[key] is None else row[key] for key in keys] for row in partitions],
        )


def _reset(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.groups import commit_offsets, committed_offsets, describe_group

    async def run() -> None:
        async with client_of(options) as client:
            group = await describe_group(client, options.group)
            if group.state not in _NO_MEMBERS:
                raise CommandFailed(
                    f"group {options.group} has members ({group.state}); stop them first "
                    "(one that was killed counts until its session times out)"
                )
            before = await committed_offsets(client, options.group)
            new_offsets: dict[TopicPartition, int] = {}
            for text in options.topic:
                new_offsets.update(await _new_offsets(client, options, text, before))
            if options.execute:
                await commit_offsets(client, options.group, new_offsets)
        rows = [
            (topic, index, before.get((topic, index)), new) for (topic, index), new in new_offsets.items()
        ]
        if options.json:
            for topic, index, old, new in rows:
                print_json(
                    {"topic": topic, "partition": index, "before": old, "after": new, "done": options.execute}
                )
            return
        print_table(
            ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
            [(topic, index, "-" if old is None else old, new) for topic, index, old, new in rows],
        )
        if group.state == "Dead" and not before:
            print(f"there was no group {options.group} before")
        if not options.execute:
            print("nothing was changed; --execute does it")

    with report_client_errors():
        asyncio.run(run())
    return 0


async def _new_offsets(
    client: Client, options: argparse.Namespace, text: str, before: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The new offset of each partition that `text` names."""
    from lockstep.kafka_client.client import EARLIEST, LATEST

    name, colon, numbers = text.rpartition(":")
    topic = await client.topic(name if colon else text)
    there = [partition.index for partition in topic.partitions]
    indexes = there
    if colon:
        try:
            indexes = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise CommandFailed(f"{text!r} is not of the form TOPIC:PARTITION,PARTITION") from None
        unknown = sorted(set(indexes) - set(there))
        if unknown:
            raise CommandFailed(f"topic {topic.name} has no partition {unknown[0]}")
    first = await client.offsets(topic, indexes, EARLIEST)
    end = await client.offsets(topic, indexes, LATEST)
    if options.to_earliest:
        requested = first
    elif options.to_latest:
        requested = end
    elif options.to_time is not None:
        found = await client.offsets(topic, indexes, options.to_time)
        requested = {index: offset if offset >= 0 else end[index] for index, offset in found.items()}
    elif options.to_offset is not None:
        requested = {index: options.to_offset for index in indexes}
    else:
        missing = [index for index in indexes if (topic.name, index) not in before]
        if missing:
            raise CommandFailed(f"{topic.name}, partition {missing[0]}: nothing committed to shift from")
        requested = {index: before[topic.name, index] + options.shift_by for index in indexes}
    return {(topic.name, index): min(max(requested[index], first[index]), end[index]) for index in indexes}


def _delete(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.groups import delete_group

    async def run() -> None:
        async with client_of(options) as client:

            async def delete(name: str) -> None:
                await delete_group(client, name)
                if options.json:
                    print_json({"group": name, "deleted": True})
                else:
                    print(f"deleted {name}")

            await _each(options.group, delete)

    with report_client_errors():
        asyncio.run(run())
    return 0
