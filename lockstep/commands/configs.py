"""`lockstep configs describe|alter`: configurations of topics, of one broker and of all brokers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from lockstep.commands.options import (
    Families,
    add_connection,
    add_json,
    client_of,
    pair,
    print_json,
    print_table,
)
from lockstep.failures import WrongUsage, report_client_errors

if TYPE_CHECKING:
    from lockstep.protocol.config_resources import ResourceType
    from lockstep.protocol.messages.describe_configs import DescribeConfigsResourceResult

_DEFAULT: Final = 5
_SOURCES: Final = {
    1: "topic",
    2: "this broker, changed while running",
    3: "all brokers, changed while running",
    4: "this broker, at its start",
    5: "default",
    8: "group",
}
"""Where a value comes from, in words; the numbers are ConfigSource's, which the start does not import."""
_DESCRIBE: Final = (
    "The values that were set, and with --all the defaults. `broker 1` is node 1; `broker` has the changes "
    "for all nodes while they ran."
)
_ALTER: Final = (
    "A change has effect at once and survives restarts: `topic orders retention.ms=3600000`; `broker "
    "log.retention.ms=86400000` for all nodes, `broker 1 ...` for one. Configurations that are shown as "
    "fixed can only be set at a start."
)


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "configs",
        help="show and change configurations",
        description="Show and change the configurations of topics, brokers and groups.",
    )
    add_connection(family)
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    describe = commands.add_parser(
        "describe", help="the configurations, and the source of each value", description=_DESCRIBE
    )
    _add_resource(describe)
    describe.add_argument("--all", action="store_true", help="also configurations with their default")
    add_json(describe, "one object per configuration and line")
    describe.set_defaults(run=_describe)

    alter = commands.add_parser(
        "alter", help="change configurations, with effect at once", description=_ALTER
    )
    _add_resource(alter)
    alter.add_argument("setting", nargs="*", type=pair, metavar="NAME=VALUE", help="set it")
    alter.add_argument(
        "-d", "--delete", action="append", default=[], metavar="NAME", help="back to the default; repeatable"
    )
    alter.add_argument("--check", action="store_true", help="only check whether the change is possible")
    alter.set_defaults(run=_alter)

    for command in (describe, alter):
        add_connection(command, again=True)


def _add_resource(command: argparse.ArgumentParser) -> None:
    command.add_argument("kind", choices=("broker", "group", "topic"), help="whose configurations")
    command.add_argument(
        "name", nargs="?", default="", help="the topic, the group or the node's number; none: all nodes"
    )


def _describe(options: argparse.Namespace) -> int:
    import asyncio

    kind, name = _resource(options)

    async def run() -> None:
        async with client_of(options) as client:
            found = sorted(await client.configs(kind, name), key=lambda each: each.name)
        chosen = [each for each in found if options.all or each.config_source != _DEFAULT]
        if options.json:
            for each in chosen:
                print_json(_document(each))
        elif chosen:
            print_table(
                ("NAME", "VALUE", "FROM", ""),
                [
                    (each.name, _value(each), _source(each), "fixed" if each.read_only else "")
                    for each in chosen
                ],
            )
        else:
            print("nothing but defaults")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _alter(options: argparse.Namespace) -> int:
    import asyncio

    kind, name = _resource(options)
    requested = dict(options.setting)
    if not requested and not options.delete:
        raise WrongUsage("nothing to change: name NAME=VALUE or --delete NAME")

    if options.kind == "broker":
        _check_names(requested)

    async def run() -> None:
        async with client_of(options) as client:
            await client.alter_configs(kind, name, requested, options.delete, validate_only=options.check)
        what = f"{options.kind} {name}" if name else "all brokers"
        print(f"{what}: this could be done" if options.check else f"{what}: changed")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _check_names(names: Iterable[str]) -> None:
    """Raises WrongUsage for an unknown name: a broker would store it, but here it is a typing error."""
    from lockstep.broker.settings.config import PROPERTIES
    from lockstep.broker.settings.foreign_names import hint
    from lockstep.broker.settings.settings_reader import HAVE_EFFECT, is_kafka_name_without_effect
    from lockstep.broker.settings.stored_settings import STORED

    for name in names:
        if name not in PROPERTIES and name not in STORED and not is_kafka_name_without_effect(name):
            raise WrongUsage(f"neither Lockstep nor Kafka has a setting {name}{hint(name, HAVE_EFFECT)}")


def _resource(options: argparse.Namespace) -> tuple[ResourceType, str]:
    """Type and name of what is requested.

    `configs alter broker retention=1` names all brokers: what holds a "=" is no broker's number.
    """
    from lockstep.protocol.config_resources import ResourceType

    name: str = options.name
    if options.kind == "broker" and "=" in name:
        if "setting" not in options:
            raise WrongUsage(
                f"broker {name}: not a node's number; NAME=VALUE is for `lockstep configs alter`"
            )
        try:
            options.setting.insert(0, pair(name))
        except argparse.ArgumentTypeError as error:
            raise WrongUsage(str(error)) from None
        name = ""
    elif options.kind != "broker" and not name:
        raise WrongUsage(f"which {options.kind}? Its name is missing")
    return ResourceType[options.kind.upper()], name


def _value(each: DescribeConfigsResourceResult) -> str:
    return "" if each.value is None else each.value


def _source(each: DescribeConfigsResourceResult) -> str:
    return _SOURCES.get(each.config_source, str(each.config_source))


def _document(each: DescribeConfigsResourceResult) -> dict[str, object]:
    return {
        "name": each.name,
        "value": each.value,
        "source": _source(each),
        "default": each.config_source == _DEFAULT,
        "fixed": each.read_only,
    }
