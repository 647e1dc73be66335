"""`lockstep quotas set|remove|list`: Kafka's client quotas, by Kafka's keys."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from lockstep.commands.options import Families, add_connection, add_json, client_of, print_json, print_table
from lockstep.failures import WrongUsage, report_client_errors

if TYPE_CHECKING:
    from lockstep.kafka_client.quotas import ClientQuotas, QuotaEntity

_PARTS: Final = {
    "user": ("user", "the user, as its principal without User: has it: alice, or CN=alice"),
    "client-id": ("client-id", "the client id"),
    "ip": ("ip", "the address of clients, for connection_creation_rate"),
}
_KEYS: Final = (
    "producer_byte_rate, consumer_byte_rate (bytes/s), request_percentage, controller_mutation_rate "
    "(partitions/s), connection_creation_rate (connections/s)"
)
_SET: Final = (
    f"Set quotas of a user, a client id, both, or an address. Keys: {_KEYS}. They are in force at once."
)

_EXAMPLE: Final = "Example: lockstep quotas set --user alice producer_byte_rate=1000000 request_percentage=50"


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "quotas",
        help="client quotas: set, remove and list them",
        description="Set, remove and list client quotas (docs/quotas.md).",
    )
    add_connection(family)
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    setting = commands.add_parser("set", help="set quotas", description=_SET, epilog=_EXAMPLE)
    _add_entity(setting)
    setting.add_argument(
        "quotas", nargs="+", type=_quota, metavar="KEY=VALUE", help="as producer_byte_rate=50000"
    )
    setting.set_defaults(run=_set)

    removal = commands.add_parser("remove", help="remove quotas")
    _add_entity(removal)
    removal.add_argument("keys", nargs="+", metavar="KEY", help="as producer_byte_rate")
    removal.set_defaults(run=_remove)

    listing = commands.add_parser("list", help="all quotas, or those whose entity has the named parts")
    _add_entity(listing)
    add_json(listing, "one object per entity and line")
    listing.set_defaults(run=_list)
    for command in (setting, removal, listing):
        add_connection(command, again=True)


def _add_entity(command: argparse.ArgumentParser) -> None:
    for option, (kind, what) in _PARTS.items():
        one = command.add_mutually_exclusive_group()
        one.add_argument(f"--{option}", metavar="NAME", help=what)
        one.add_argument(
            f"--{option}-default", action="store_true", help=f"every {kind} without a quota of its own"
        )


def _quota(text: str) -> tuple[str, float]:
    """An argument type: KEY=VALUE."""
    key, equals, value = text.partition("=")
    try:
        if not key or not equals:
            raise ValueError
        return key, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=NUMBER") from None


def _entity(options: argparse.Namespace) -> QuotaEntity:
    entity: dict[str, str | None] = {}
    for option, (kind, _) in _PARTS.items():
        name = option.replace("-", "_")
        if getattr(options, f"{name}_default"):
            entity[kind] = None
        elif getattr(options, name) is not None:
            entity[kind] = getattr(options, name)
    return entity


def _named_entity(options: argparse.Namespace) -> QuotaEntity:
    """Raises WrongUsage without one."""
    entity = _entity(options)
    if not entity:
        raise WrongUsage("whose quotas? --user, --client-id or --ip is missing, or its ...-default")
    return entity


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _alter(options: argparse.Namespace, changes: dict[str, float | None]) -> QuotaEntity:
    import asyncio

    from lockstep.kafka_client.quotas import alter_quotas

    entity = _named_entity(options)

    async def run() -> None:
        async with client_of(options) as client:
            await alter_quotas(client, entity, changes)

    with report_client_errors():
        asyncio.run(run())
    return entity


def _set(options: argparse.Namespace) -> int:
    changes: dict[str, float | None] = dict(options.quotas)
    entity = _alter(options, changes)
    for key, value in options.quotas:
        print(f"set: {key}={_number(value)} of {_text(entity)}")
    return 0


def _remove(options: argparse.Namespace) -> int:
    entity = _alter(options, dict.fromkeys(options.keys))
    for key in options.keys:
        print(f"removed: {key} of {_text(entity)}")
    return 0


def _list(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.quotas import list_quotas

    async def run() -> list[ClientQuotas]:
        async with client_of(options) as client:
            return await list_quotas(client, _entity(options))

    with report_client_errors():
        found = sorted(asyncio.run(run()), key=lambda each: _text(each.entity))
    if options.json:
        for each in found:
            print_json({"entity": dict(each.entity), "quotas": dict(each.values)})
    elif found:
        rows = [
            (_text(each.entity), key, _number(value))
            for each in found
            for key, value in sorted(each.values.items())
        ]
        print_table(("OF", "QUOTA", "VALUE"), rows)
    else:
        print("no quotas")
    return 0
