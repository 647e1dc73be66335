"""`lockstep users list|set|delete`: the SCRAM users of a cluster."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from lockstep.commands.options import Families, add_connection, add_json, client_of, print_json, print_table
from lockstep.failures import CommandFailed, WrongUsage, report_client_errors

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""As in `broker/security/scram.py`, which the start does not import."""
_BOTH: Final = "both"
_SET: Final = (
    "The password is the first line of standard input, or is read from a terminal: on the command line "
    "others could read it. It is salted here; no broker gets it."
)


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser(
        "users",
        help="SCRAM users: list, set and delete them",
        description="List, set and delete the users of SCRAM logins (docs/security.md).",
    )
    add_connection(family)
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="users, with the mechanisms that they can log in by")
    add_json(listing, "one object per user and line")
    listing.set_defaults(run=_list)

    setting = commands.add_parser("set", help="set a user's password", description=_SET)
    setting.add_argument("name", help="the user's name")
    setting.add_argument(
        "--mechanism", choices=_MECHANISMS, default=_MECHANISMS[1], help="the mechanism (%(default)s)"
    )
    setting.add_argument(
        "--iterations",
        type=int,
        default=4096,
        metavar="N",
        help="4096 to 16384; more cost each login more (%(default)s)",
    )
    setting.set_defaults(run=_set)

    deletion = commands.add_parser("delete", help="delete a user's password; open connections stay")
    deletion.add_argument("name", help="the user's name")
    deletion.add_argument(
        "--mechanism", choices=(*_MECHANISMS, _BOTH), default=_BOTH, help="of one mechanism (both)"
    )
    deletion.set_defaults(run=_delete)
    for command in (listing, setting, deletion):
        add_connection(command, again=True)


def _list(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.broker.security.scram import BY_NUMBER

    async def run() -> None:
        async with client_of(options) as client:
            found = await client.scram_users()
        users = {
            user: {BY_NUMBER[number].name: iterations for number, iterations in each}
            for user, each in found.items()
        }
        if options.json:
            for user, mechanisms in users.items():
                print_json({"user": user, "mechanisms": mechanisms})
        elif users:
            rows = [
                (user, mechanism, str(iterations))
                for user, mechanisms in users.items()
                for mechanism, iterations in mechanisms.items()
            ]
            print_table(("USER", "MECHANISM", "ITERATIONS"), rows)
        else:
            print("no users")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _set(options: argparse.Namespace) -> int:
    import asyncio
    import os

    from lockstep.broker.security.scram import (
        MAX_ITERATIONS,
        MECHANISMS,
        MIN_ITERATIONS,
        SALT_BYTES,
        salt_password,
    )

    if not MIN_ITERATIONS <= options.iterations <= MAX_ITERATIONS:
        raise WrongUsage(f"--iterations {options.iterations}: from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    mechanism, salt = MECHANISMS[options.mechanism], os.urandom(SALT_BYTES)
    salted = salt_password(mechanism, _read_password(), salt, options.iterations)

    async def run() -> None:
        async with client_of(options) as client:
            await client.set_scram_user(options.name, mechanism.number, options.iterations, salt, salted)
        print(f"user {options.name}: set for {mechanism.name}")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _delete(options: argparse.Namespace) -> int:
    import asyncio

    from lockstep.broker.security.scram import BY_NUMBER

    async def run() -> None:
        async with client_of(options) as client:
            held = (await client.scram_users()).get(options.name, [])
            chosen = [number for number, _ in held if options.mechanism in (_BOTH, BY_NUMBER[number].name)]
            if not chosen:
                raise CommandFailed(f"there is no user {options.name}; `lockstep users list` shows all")
            for number in chosen:
                await client.delete_scram_user(options.name, number)
        print(f"user {options.name}: deleted")

    with report_client_errors():
        asyncio.run(run())
    return 0


def _read_password() -> str:
    """The password of standard input. Raises CommandFailed, WrongUsage."""
    if sys.stdin is None:
        raise CommandFailed("the password is read from standard input, which is closed")
    if sys.stdin.isatty():
        import getpass

        password = getpass.getpass("password: ")
        if getpass.getpass("once more: ") != password:
            raise CommandFailed("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise WrongUsage("an empty password")
    return password
