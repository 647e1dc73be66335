"""`lockstep acls add|list|remove`: the ACLs of a cluster, with the options of Kafka's kafka-acls.sh."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from lockstep.commands.options import Families, add_connection, add_json, client_of, print_json, print_table
from lockstep.failures import CommandFailed, WrongUsage, report_client_errors

if TYPE_CHECKING:
    from lockstep.kafka_client.acls import Acl, AclFilter

_RESOURCES: Final = {
    "topic": ("TOPIC", "a topic"),
    "group": ("GROUP", "a consumer group"),
    "transactional-id": ("TRANSACTIONAL_ID", "a transactional id"),
    "delegation-token": ("DELEGATION_TOKEN", "a delegation token"),
    "user-principal": ("USER", "a user, as User:NAME"),
}
"""Option -> name of its AclResourceType, which the start does not import."""
_ADD: Final = (
    "Add ACLs: each principal gets each operation on each resource. --producer and --consumer are the "
    "operations of a client that writes, or reads in a group."
)
_REMOVE: Final = (
    "Remove the ACLs on the named resources: those of the named principals, hosts and operations, or of all "
    "where none is named. Asks for a confirmation before."
)


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "acls",
        help="access control lists: add, list and remove them",
        description="Add, list and remove access control lists (docs/authorization.md).",
    )
    add_connection(family)
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    adding = commands.add_parser("add", help="add ACLs", description=_ADD)
    _add_rules(adding)
    adding.set_defaults(run=_add)

    listing = commands.add_parser("list", help="the ACLs of all resources, or of those that are named")
    _add_resources(listing, ("literal", "prefixed", "match", "any"), "any")
    listing.add_argument("--principal", metavar="TYPE:NAME", help="the ACLs of this principal only")
    add_json(listing, "one object per ACL and line")
    listing.set_defaults(run=_list)

    removal = commands.add_parser("remove", help="remove ACLs", description=_REMOVE)
    _add_rules(removal)
    removal.add_argument("--force", action="store_true", help="without a confirmation")
    add_json(removal, "one object per removed ACL and line")
    removal.set_defaults(run=_remove)
    for command in (adding, listing, removal):
        add_connection(command, again=True)


def _add_resources(command: argparse.ArgumentParser, patterns: Sequence[str], default: str) -> None:
    for option, (_, what) in _RESOURCES.items():
        command.add_argument(
            f"--{option}", action="append", default=[], metavar="NAME", help=f"{what}; * is all"
        )
    command.add_argument("--cluster", action="store_true", help="the cluster itself")
    command.add_argument(
        "--resource-pattern-type",
        type=str.lower,
        choices=patterns,
        default=default,
        help="how NAME is meant: the name itself, or how names begin (default %(default)s)",
    )


def _add_rules(command: argparse.ArgumentParser) -> None:
    _add_resources(command, ("literal", "prefixed"), "literal")
    for effect in ("allow", "deny"):
        command.add_argument(
            f"--{effect}-principal", action="append", default=[], metavar="TYPE:NAME", help="as User:alice"
        )
        command.add_argument(
            f"--{effect}-host",
            action="append",
            default=[],
            metavar="HOST",
            help="an address or a network (10.0.0.0/8) of these principals; all by default",
        )
    command.add_argument(
        "--operation",
        action="append",
        default=[],
        type=_operation_name,
        metavar="OPERATION",
        help="as Read, Write, Describe, All; may be repeated",
    )
    command.add_argument("--producer", action="store_true", help="what a client that writes --topic needs")
    command.add_argument("--idempotent", action="store_true", help="with --producer, for old brokers")
    command.add_argument(
        "--consumer", action="store_true", help="what a client that reads --topic in --group needs"
    )


def _operation_name(text: str) -> str:
    """An argument type: `DescribeConfigs`, or `DESCRIBE_CONFIGS`."""
    from lockstep.protocol.acl_codes import AclOperation

    spelled = {each.name.replace("_", ""): each.name for each in AclOperation if each > AclOperation.ANY}
    name = spelled.get(text.replace("_", "").replace("-", "").upper())
    if name is None:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(spelled.values())}")
    return name


# --- what is meant ----------------------------------------------------------------------------------------

Resource = tuple[str, str]
"""The name of an AclResourceType, and the resource's own name."""


def _resources(options: argparse.Namespace) -> list[Resource]:
    from lockstep.protocol.acl_codes import CLUSTER_NAME

    found = [
        (kind, name)
        for option, (kind, _) in _RESOURCES.items()
        for name in getattr(options, option.replace("-", "_"))
    ]
    return [*found, ("CLUSTER", CLUSTER_NAME)] if options.cluster else found


def _operations_by_resource(options: argparse.Namespace) -> Iterator[tuple[Resource, list[str]]]:
    """Each resource with the names of its operations; none where none are named. Raises WrongUsage."""
    from lockstep.protocol.acl_codes import CLUSTER_NAME

    resources = _resources(options)
    if options.idempotent and not options.producer:
        raise WrongUsage("--idempotent needs --producer")
    if not (options.producer or options.consumer):
        if not resources:
            raise WrongUsage("a resource is missing: --topic, --group, --cluster or --transactional-id")
        yield from ((resource, options.operation) for resource in resources)
        return
    if options.operation:
        raise WrongUsage("--operation beside --producer or --consumer, which have operations of their own")
    if not options.topic:
        raise WrongUsage("--producer and --consumer need --topic")
    if options.consumer and not options.group:
        raise WrongUsage("--consumer needs --group")
    if options.group and not options.consumer:
        raise WrongUsage("--group is for --consumer")
    if options.transactional_id and not options.producer:
        raise WrongUsage("--transactional-id is for --producer")
    of_topic = ["DESCRIBE"]
    of_topic += ["WRITE", "CREATE"] if options.producer else []
    of_topic += ["READ"] if options.consumer else []
    of = {"TOPIC": of_topic, "GROUP": ["READ"], "TRANSACTIONAL_ID": ["WRITE", "DESCRIBE"]}
    for resource in resources:
        if resource[0] not in of:
            raise WrongUsage("--producer and --consumer are about --topic, --group and --transactional-id")
        yield resource, of[resource[0]]
    if options.idempotent:
        yield ("CLUSTER", CLUSTER_NAME), ["IDEMPOTENT_WRITE"]


def _principals(options: argparse.Namespace) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Effect, principal and hosts. Raises WrongUsage."""
    for effect in ("allow", "deny"):
        principals = getattr(options, f"{effect}_principal")
        hosts = getattr(options, f"{effect}_host")
        if hosts and not principals:
            raise WrongUsage(f"--{effect}-host needs --{effect}-principal")
        for principal in principals:
            if ":" not in principal:
                raise WrongUsage(f"{principal!r} has no type: User:{principal} may be meant")
            yield effect.upper(), principal, hosts


def _acls(options: argparse.Namespace) -> Iterator[Acl]:
    """The ACLs that are to be added. Raises WrongUsage."""
    from lockstep.kafka_client.acls import Acl
    from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType

    principals = list(_principals(options))
    if not principals:
        raise WrongUsage("--allow-principal or --deny-principal is missing")
    for (kind, name), operations in _operations_by_resource(options):
        for effect, principal, hosts in principals:
            for host in hosts or ["*"]:
                for operation in operations or ["ALL"]:
                    is_cluster = kind == "CLUSTER"
                    pattern = "LITERAL" if is_cluster else options.resource_pattern_type.upper()
                    yield Acl(
                        AclResourceType[kind],
                        name,
                        PatternType[pattern],
                        principal,
                        host,
                        AclOperation[operation],
                        AclPermissionType[effect],
                    )


def _filters(options: argparse.Namespace) -> Iterator[AclFilter]:
    """The ACLs that are to be removed. Raises WrongUsage."""
    from lockstep.kafka_client.acls import AclFilter
    from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType

    principals: list[tuple[str, str | None, Sequence[str]]] = [*_principals(options)] or [("ANY", None, ())]
    for (kind, name), operations in _operations_by_resource(options):
        pattern = "LITERAL" if kind == "CLUSTER" else options.resource_pattern_type.upper()
        for effect, principal, hosts in principals:
            for host in (*hosts,) or (None,):
                for operation in operations or ["ANY"]:
                    yield AclFilter(
                        AclResourceType[kind],
                        name,
                        PatternType[pattern],
                        principal,
                        host,
                        AclOperation[operation],
                        AclPermissionType[effect],
                    )


# --- the commands -----------------------------------------------------------------------------------------


def _add(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.acls import create_acls

    acls = list(dict.fromkeys(_acls(options)))

    async def run() -> None:
        async with client_of(options) as client:
            await create_acls(client, acls)

    with report_client_errors():
        asyncio.run(run())
    for each in acls:
        print(f"added: {each}")
    return 0


def _list(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.acls import AclFilter, list_acls
    from lockstep.protocol.acl_codes import AclResourceType, PatternType

    pattern = PatternType[options.resource_pattern_type.upper()]
    filters = [
        AclFilter(AclResourceType[kind], name, pattern, options.principal)
        for kind, name in _resources(options)
    ] or [AclFilter(principal=options.principal)]

    async def run() -> set[Acl]:
        async with client_of(options) as client:
            return {acl for each in filters for acl in await list_acls(client, each)}

    with report_client_errors():
        found = sorted(asyncio.run(run()))
    _show(found, options, "no ACLs")
    return 0


def _remove(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.kafka_client.acls import delete_acls

    filters = list(dict.fromkeys(_filters(options)))
    if not options.force:
        _confirm(filters)

    async def run() -> list[Acl]:
        async with client_of(options) as client:
            return await delete_acls(client, filters)

    with report_client_errors():
        removed = asyncio.run(run())
    if options.json:
        _show(removed, options, "")
    elif not removed:
        print("no such ACLs")
    else:
        for each in removed:
            print(f"removed: {each}")
    return 0


def _confirm(filters: Iterable[AclFilter]) -> None:
    """Raises CommandFailed unless a person confirms the removal, as kafka-acls.sh does without --force."""
    print("The ACLs that these filters mean will be removed:", file=sys.stderr)
    for each in filters:
        print(f"  {each}", file=sys.stderr)
    print("Are you sure? (y/n) ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing is removed: y confirms it, and --force does without")


def _show(acls: Iterable[Acl], options: argparse.Namespace, empty: str) -> None:
    rows = [
        {
            "resource": each.resource.name,
            "name": each.name,
            "pattern": each.pattern.name,
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation.name,
            "permission": each.permission.name,
        }
        for each in acls
    ]
    if options.json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table([name.upper() for name in rows[0]], [list(row.values()) for row in rows])
    else:
        print(empty)
