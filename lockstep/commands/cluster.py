"""`lockstep cluster status|add|remove|transfer`: the nodes of a cluster and what each holds."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from lockstep.commands.options import (
    Families,
    add_connection,
    add_json,
    client_of,
    positive_seconds,
    print_json,
    print_progress,
    print_table,
    whole_number,
)
from lockstep.failures import report_client_errors

if TYPE_CHECKING:
    from lockstep.kafka_client.client import Client

WAIT_SECONDS: Final = 600.0
"""A node's share of the log has to be copied."""

_STATUS: Final = (
    "Nodes and log groups (each holds partitions of many topics; 0 holds topics and settings), with leaders "
    "and voters: `2(lacks 5)` is five group commits behind, `2(silent)` does not answer. What a "
    "group's leader does not confirm is unknown. "
    "Exit status: 0 if every group has a leader, all its voters are in sync, every log can "
    "be written (no disk is full) and no record is damaged, 1 otherwise."
)
_ADD: Final = (
    "Place log groups on a node that runs and has registered (start it with --peers that list it and the "
    "others), and wait until it has caught up with all of them."
)
_REMOVE: Final = (
    "Place a node's log groups on the others, wait until it has no part in any, then record it as removed; "
    "its process, if one runs, logs that and ends. The node may be dead already. To replace a node, add the "
    "new one first."
)
_TRANSFER: Final = (
    "Transfer the leadership of a log group to a node that has a copy of it, and wait for that. From then "
    "on the node is the group's preferred leader."
)


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "cluster",
        help="show nodes and leaders, add and remove nodes",
        description="Show nodes, log groups and leaders; add and remove nodes (docs/cluster.md).",
    )
    add_connection(family)
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    status = commands.add_parser("status", help="nodes, log groups, leaders", description=_STATUS)
    add_json(status, "one object")
    status.set_defaults(run=_status)

    add = commands.add_parser("add", help="give a new node its share of the log groups", description=_ADD)
    add.set_defaults(run=_add)
    remove = commands.add_parser("remove", help="drain a node and remove it", description=_REMOVE)
    remove.set_defaults(run=_remove)
    transfer = commands.add_parser("transfer", help="choose a log group's leader", description=_TRANSFER)
    transfer.add_argument(
        "group", type=whole_number, metavar="GROUP", help="the log group; the leader of 0 is the controller"
    )
    transfer.set_defaults(run=_transfer)
    for command in (add, remove, transfer):
        command.add_argument("node", type=whole_number, metavar="NODE", help="the node's number")
        command.add_argument(
            "--wait",
            type=positive_seconds,
            default=WAIT_SECONDS,
            metavar="SECONDS",
            help=f"how long to wait until it is done (default {WAIT_SECONDS:g}); the cluster continues",
        )
        add_json(command, "one object")
    for command in (status, add, remove, transfer):
        add_connection(command, again=True)


def _status(options: argparse.Namespace) -> int:
    from lockstep.kafka_client import cluster

    found = _run(options, cluster.status_after_grace_period)
    if options.json:
        print_json(found)
    else:
        _show(found)
    return 0 if found["healthy"] else 1


def _add(options: argparse.Namespace) -> int:
    from lockstep.kafka_client import cluster

    done = _run(options, lambda client: cluster.add(client, options.node, options.wait, print_progress))
    numbers = ", ".join(map(str, done["groups"])) or "no log groups yet"
    return _print_done(options, f"node {options.node} has caught up; it holds log groups {numbers}")


def _remove(options: argparse.Namespace) -> int:
    from lockstep.kafka_client import cluster

    _run(options, lambda client: cluster.remove(client, options.node, options.wait, print_progress))
    return _print_done(
        options, f"node {options.node} is gone from the cluster; a process of it that runs ends by itself"
    )


def _transfer(options: argparse.Namespace) -> int:
    from lockstep.kafka_client import cluster

    _run(
        options,
        lambda client: cluster.transfer(client, options.group, options.node, options.wait, print_progress),
    )
    return _print_done(options, f"node {options.node} leads log group {options.group}")


def _run(
    options: argparse.Namespace, operation: Callable[[Client], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    import asyncio

    async def run() -> dict[str, Any]:
        async with client_of(options) as client:
            return await operation(client)

    with report_client_errors():
        return asyncio.run(run())


def _print_done(options: argparse.Namespace, text: str) -> int:
    if options.json:
        print_json({"done": True, "node": options.node})
    else:
        print(text)
    return 0


# --- tables for operators ---------------------------------------------------------------------------------


def _show(found: dict[str, Any]) -> None:
    controller = found["controller"]
    print(f"cluster {found['cluster_id'] or 'without an id yet'}, as node {found['answered_by']} knows it\n")
    print_table(
        ("NODE", "ALIVE", "CLIENTS", "PEERS", "RACK", "METADATA", "HOLDS", "LEADS"),
        [
            (
                each["node"],
                _alive(each),
                " ".join(each["listeners"].values()),
                each["peer"] or "",
                each["rack"] or "",
                _metadata_role(each, controller),
                _numbers(group["group"] for group in found["groups"] if each["node"] in group["placed"]),
                _numbers(group["group"] for group in found["groups"] if each["node"] == group["leader"]),
            )
            for each in found["nodes"]
        ],
    )
    print()
    print_table(
        ("GROUP", "LEADER", "PREFERRED", "TERM", "COMMITTED", "VOTERS", "LEARNERS"),
        [
            (
                each["group"],
                each["leader"] if each["leader"] >= 0 else "none",
                each["preferred_leader"],
                each["term"],
                "unknown" if each["commit_index"] is None else each["commit_index"],
                _members(each["voters"]),
                _members(each["learners"]),
            )
            for each in found["groups"]
        ],
    )
    majority = found.get("waits_for_majority")
    if majority:
        reached = f"{majority['reached']} of {len(majority['voters'])}"
        here = found["answered_by"]
        print(f"\nnode {here} reaches {reached} nodes that elect the controller, too few; out of reach:")
        for each in majority["unreached"]:
            print(f"  node {each['node']} {each['why']}")
    alive = [each for each in found["nodes"] if each["alive"]]
    builds = {each["node"]: each.get("build") or "an unknown build" for each in alive}
    if len(set(builds.values())) > 1:
        print("\nthe nodes run different builds:")
        for node, build in builds.items():
            print(f"  node {node} {build}")
    _show_metadata_version(found.get("metadata_version"))
    cannot_write = _show_disks(found["nodes"])
    damage = found.get("damage", [])
    for each in damage:
        print(f"{_newline(each, damage)}node {each['node']}: {_damage(each)}")
    for each in found.get("damage_unknown", []):
        print(f"\nnode {each['node']} did not report the damage on its disk: {each['reason']}")
    if not cannot_write and not found["healthy"] and all(each["given_up"] for each in damage):
        print("\nnot every log group has a leader and all its voters in sync")


def _show_metadata_version(found: dict[str, Any] | None) -> None:
    """Prints the metadata version and what waits for which nodes; an earlier Lockstep reports None."""
    if found is None:
        return
    print(f"\nmetadata version {found['version']}")
    is_waiting = found["latest"] > found["version"]
    if is_waiting:
        features = ", ".join(found["features_to_come"])
        brings = f" ({features})" if features else ""
        print(f"version {found['latest']}{brings} comes once every node supports it; these do not:")
    for each in found["waits_for"]:
        supports = "is not connected" if each["supports"] is None else f"supports up to {each['supports']}"
        print(f"  node {each['node']} {supports}" + ("" if is_waiting else ": the others reject it"))


def _show_disks(nodes: list[dict[str, Any]]) -> bool:
    """Prints the nodes that cannot write; returns whether there are any."""
    full = [each["node"] for each in nodes if each.get("disk_full")]
    if full:
        print(f"\nno room left on the disk of node {_numbers(full)}: what it leads takes no writes")
    failing = [each["node"] for each in nodes if each.get("write_failed")]
    if failing:
        print(f"\nthe log of node {_numbers(failing)} cannot be written; the node's own log has the error")
    return bool(full or failing)


def _newline(each: dict[str, Any], damage: list[dict[str, Any]]) -> str:
    return "\n" if each is damage[0] else ""


def _damage(each: dict[str, Any]) -> str:
    from lockstep.broker.maintenance.damage import damage_text, remedy_text

    text = damage_text(each)
    if each["given_up"]:
        return f"{text}; consumers skip them"
    return f"{text}; {remedy_text(each)}" if "intact_on" in each else text  # an earlier Lockstep


def _alive(node: dict[str, Any]) -> str:
    if not node["alive"]:
        return "no"
    if node.get("disk_full"):
        return "disk full"
    return "writes fail" if node.get("write_failed") else "yes"


def _metadata_role(node: dict[str, Any], controller: int) -> str:
    if not node["registered"]:
        return "not registered"
    return "controller" if node["node"] == controller else str(node["metadata"])


def _members(members: list[dict[str, Any]] | None) -> str:
    """Nodes; with how many entries each has still to get where it does not keep up, if its leader knows."""
    if members is None:
        return "unknown"
    return " ".join(
        str(each["node"]) + ("" if each["in_sync"] else _lag_text(each["lag"])) for each in members
    )


def _lag_text(lag: int | None) -> str:
    if lag is None:
        return "(unknown)"
    return f"(lacks {lag})" if lag else "(silent)"


def _numbers(numbers: Any) -> str:
    return " ".join(map(str, numbers)) or "-"
