"""The first SCRAM users: those of `lockstep.scram.users` that are not stored when the controller starts.

Owns: the form of the setting, which is that of Kafka's `kafka-storage format --add-scram`, and when they are
recorded. Invariant: a user that is stored is not changed. Does not: check a login
(`broker/security/scram.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.security.scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BYTES,
    salt_password,
    salted_credential,
)
from lockstep.broker.security.scram_users import MAX_NAME_CHARACTERS, ScramChange
from lockstep.broker.settings.properties import ConfigError

log = logging.getLogger("lockstep.security")

SETTING: Final = "lockstep.scram.users"
POLL_INTERVAL_SECONDS: Final = 0.2
_USER: Final = re.compile(r"\s*(?P<mechanism>[A-Z0-9-]+)=\[(?P<options>[^\]]*)\]\s*(?:,|$)")
_NUMBER: Final = re.compile("[0-9]{1,9}")
_OPTIONS: Final = frozenset({"name", "password", "iterations"})


@dataclass(frozen=True)
class InitialUser:
    """One user of the setting."""

    mechanism: str
    name: str
    password: str = field(repr=False)
    iterations: int


def parse_initial_users(text: str) -> tuple[InitialUser, ...]:
    """The users of the setting. Raises ConfigError, which shows no password."""
    users: list[InitialUser] = []
    position = 0
    while position < len(text):
        parsed = _USER.match(text, position)
        if parsed is None:
            raise _error("not of the form SCRAM-SHA-512=[name=NAME,password=PASSWORD]")
        position = parsed.end()
        pairs = [each.partition("=") for each in parsed["options"].split(",")]
        options = {name.strip(): value for name, _, value in pairs}
        if parsed["mechanism"] not in MECHANISMS:
            raise _error(f"{parsed['mechanism']} is none of {', '.join(MECHANISMS)}")
        if not options.get("name") or not options.get("password") or not options.keys() <= _OPTIONS:
            raise _error(f"user {len(users) + 1} needs name=, password= and at most iterations= besides")
        if len(options) < len(pairs):
            raise _error(f"user {len(users) + 1} has an option twice")
        if len(options["name"]) > MAX_NAME_CHARACTERS:
            raise _error(f"the name of user {len(users) + 1} is longer than {MAX_NAME_CHARACTERS} characters")
        iterations = options.get("iterations", str(MIN_ITERATIONS))
        if not _NUMBER.fullmatch(iterations) or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise _error(f"iterations of user {len(users) + 1}: from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        if any((each.mechanism, each.name) == (parsed["mechanism"], options["name"]) for each in users):
            raise _error(f"{parsed['mechanism']} of {options['name']} is there twice")
        users.append(InitialUser(parsed["mechanism"], options["name"], options["password"], int(iterations)))
    return tuple(users)


def _error(problem: str) -> ConfigError:
    return ConfigError(SETTING, "[hidden]", problem)


async def add_initial_users(
    users: Sequence[InitialUser],
    is_controller: Callable[[], bool],
    stored: Callable[[], Collection[tuple[str, str]]],
    record: Callable[[Sequence[ScramChange]], Awaitable[None]],
) -> None:
    """Record the users that are not stored, once this node is the controller; until then it checks again."""
    problem = ""
    while True:
        missing = [each for each in users if (each.mechanism, each.name) not in stored()]
        if not missing:
            return
        if is_controller():
            try:
                await record([_change(each) for each in missing])
            except RequestError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("users of %s cannot be stored yet: %s", SETTING, problem)
            else:
                log.info("stored users of %s: %s", SETTING, ", ".join(each.name for each in missing))
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


def _change(user: InitialUser) -> ScramChange:
    mechanism, salt = MECHANISMS[user.mechanism], os.urandom(SALT_BYTES)
    salted = salt_password(mechanism, user.password, salt, user.iterations)
    return ScramChange(user.mechanism, user.name, salted_credential(mechanism, salt, salted, user.iterations))
