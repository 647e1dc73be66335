"""`lockstep topics list|describe|create|alter|delete`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from lockstep.commands.options import (
    Families,
    add_connection,
    add_json,
    client_of,
    pair,
    print_json,
    print_table,
    whole_number,
)
from lockstep.failures import report_client_errors

if TYPE_CHECKING:
    from lockstep.kafka_client.client import Client, TopicMetadata

_TOPIC_CONFIG = 1
"""Kafka's DescribeConfigs source for a value that the topic itself sets."""


_ALTER = (
    "Give a topic more partitions. Stop all writers of a topic with locks (docs/locks.md) first: keys "
    "move, and locks do not. Settings: `lockstep configs alter`."
)

_ABOUT = "list, describe, create, alter and delete topics"


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser("topics", help=_ABOUT, description=f"{_ABOUT.capitalize()}.")
    add_connection(family)
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="the topics of the cluster")
    listing.add_argument("--internal", action="store_true", help="also the cluster's own topics")
    add_json(listing, "one object per topic and line")
    listing.set_defaults(run=_list)

    describe = commands.add_parser("describe", help="partitions, offsets and settings of topics")
    describe.add_argument("topic", nargs="+", help="its name")
    describe.add_argument("--all-configs", action="store_true", help="also settings that have their default")
    add_json(describe, "one object per topic and line")
    describe.set_defaults(run=_describe)

    create = commands.add_parser("create", help="create a topic")
    create.add_argument("topic", help="its name")
    create.add_argument(
        "-p", "--partitions", type=whole_number, metavar="N", help="how many (default: the broker's)"
    )
    create.add_argument(
        "-r",
        "--replication",
        "--replication-factor",
        type=whole_number,
        metavar="N",
        help="rejected above 3 and above the number of nodes; else without effect: each partition has the "
        "replicas of its log group, three where there are three nodes",
    )
    create.add_argument(
        "-c",
        "--config",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the topic, retention.ms=3600000 for one; may be repeated",
    )
    create.add_argument("--if-not-exists", action="store_true", help="no error if the topic exists")
    add_json(create, "one object")
    create.set_defaults(run=_create)

    alter = commands.add_parser("alter", help="give a topic more partitions", description=_ALTER)
    alter.add_argument("topic", help="its name")
    alter.add_argument(
        "-p", "--partitions", type=whole_number, metavar="N", required=True, help="how many in all"
    )
    add_json(alter, "one object")
    alter.set_defaults(run=_alter)

    delete = commands.add_parser("delete", help="delete topics with all their records")
    delete.add_argument("topic", nargs="+", help="its name")
    delete.add_argument("--if-exists", action="store_true", help="no error if a topic does not exist")
    add_json(delete, "one object per topic and line")
    delete.set_defaults(run=_delete)

    for command in (listing, describe, create, alter, delete):
        add_connection(command, again=True)


def _list(options: argparse.Namespace) -> int:
    import asyncio

    async def run() -> None:
        async with client_of(options) as client:
            topics = [topic for topic in await client.topics() if options.internal or not topic.is_internal]
        if options.json:
            for topic in topics:
                print_json(_summary(topic))
        elif topics:
            print_table(
                ("TOPIC", "PARTITIONS", "REPLICAS"),
                [(topic.name, len(topic.partitions), _replicas(topic)) for topic in topics],
            )
        else:
            print("no topics")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _describe(options: argparse.Namespace) -> int:
    import asyncio

    async def run() -> None:
        async with client_of(options) as client:
            for number, name in enumerate(options.topic):
                described = await client.retry_while(partial(_describe_one, client, name))
                if options.json:
                    print_json(described)
                else:
                    _show(described, number > 0, options.all_configs)

    with report_client_errors():
        asyncio.run(run())
    return 0


def _create(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.connection import BrokerError
    from lockstep.protocol.errors import ErrorCode

    async def run() -> None:
        async with client_of(options) as client:
            created = True
            try:
                topic = await client.create_topic(
                    options.topic,
                    partitions=-1 if options.partitions is None else options.partitions,
                    replication=-1 if options.replication is None else options.replication,
                    configs=dict(options.config),
                )
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not options.if_not_exists:
                    raise
                created = False
                topic = await client.topic(options.topic)
        if options.json:
            print_json({**_summary(topic), "created": created})
        elif created:
            print(f"created {topic.name} with {_count(len(topic.partitions), 'partition')}")
        else:
            print(f"{topic.name} was there already, with {_count(len(topic.partitions), 'partition')}")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _alter(options: argparse.Namespace) -> int:
    import asyncio

    async def run() -> None:
        async with client_of(options) as client:
            topic, warning = await client.grow_topic(options.topic, options.partitions)
        if warning:
            print(f"lockstep: {warning}", file=sys.stderr)
        if options.json:
            print_json(_summary(topic))
        else:
            print(f"{topic.name} has {_count(len(topic.partitions), 'partition')} now")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _delete(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.connection import BrokerError
    from lockstep.protocol.errors import ErrorCode

    async def run() -> None:
        async with client_of(options) as client:
            for name in options.topic:
                deleted = True
                try:
                    await client.delete_topic(name)
                except BrokerError as error:
                    if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not options.if_exists:
                        raise
                    deleted = False
                if options.json:
                    print_json({"topic": name, "deleted": deleted})
                else:
                    print(f"deleted {name}" if deleted else f"{name} was not there")

    with report_client_errors():
        asyncio.run(run())
    return 0


async def _describe_one(client: Client, name: str) -> dict[str, object]:
    from lockstep.kafka_client.client import EARLIEST, LATEST

    topic = await client.topic(name)
    indexes = [partition.index for partition in topic.partitions]
    first = await client.offsets(topic, indexes, EARLIEST)
    end = await client.offsets(topic, indexes, LATEST)
    configs = await client.topic_configs(name)
    return {
        **_summary(topic),
        "partition_details": [
            {
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "first_offset": first[partition.index],
                "end_offset": end[partition.index],
            }
            for partition in topic.partitions
        ],
        "configs": {
            config.name: {"value": config.value, "set": config.config_source == _TOPIC_CONFIG}
            for config in sorted(configs, key=lambda config: config.name)
        },
    }


def _show(described: dict[str, object], after_another: bool, all_configs: bool) -> None:
    if after_another:
        print()
    print(f"topic {described['topic']}   id {described['topic_id']}")
    configs = described["configs"]
    assert isinstance(configs, dict)
    chosen = [(name, config) for name, config in configs.items() if all_configs or config["set"]]
    for name, config in chosen:
        print(f"  {name}={config['value']}" + ("" if config["set"] else "   (default)"))
    rows = described["partition_details"]
    assert isinstance(rows, list)
    print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "FIRST OFFSET", "END OFFSET"),
        [
            (
                row["partition"],
                row["leader"],
                row["leader_epoch"],
                ",".join(map(str, row["replicas"])),
                ",".join(map(str, row["in_sync"])),
                row["first_offset"],
                row["end_offset"],
            )
            for row in rows
        ],
    )


def _summary(topic: TopicMetadata) -> dict[str, object]:
    from lockstep.protocol.ids import format_uuid

    return {
        "topic": topic.name,
        "topic_id": format_uuid(topic.topic_id),  # as lockstep-topic-id has to have it
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
    }


def _replicas(topic: TopicMetadata) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
