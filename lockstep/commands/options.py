"""Options and output that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lockstep.failures import WrongUsage

if TYPE_CHECKING:
    from lockstep.kafka_client.client import Client, TopicMetadata
    from lockstep.kafka_client.followed_topic import FollowedTopic

Families = Any
"""The result of `add_subparsers`, whose class is private to argparse."""

BOOTSTRAP_VARIABLE = "LOCKSTEP_BOOTSTRAP"
BOOTSTRAP_OPTIONS = ("-b", "--bootstrap", "--bootstrap-server")
CONFIG_OPTION = "--command-config"
_DELETED_AFTER_S = 2.0
"""A node that was just started may not know a topic yet."""
_RESPONSE_TIMEOUT_S = 5.0
"""A live leader responds within this time, also where it has to wait for a commit."""
_REPORT_AFTER_S = 5.0
"""A command that waits longer for its first response reports that."""
POLL_INTERVAL_SECONDS = 1.0
"""The interval of checks whether the brokers respond."""
_MAX_ATTEMPTS = 6
"""The attempts within --timeout: a broker that hangs gets three kinds of requests, each twice."""


def add_connection(command: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Options for the broker's address, the client's security and the timeout.

    `again`: the command's family takes these options too; here they count only where they are given.
    """
    default = os.environ.get(BOOTSTRAP_VARIABLE, "localhost:9092")
    command.add_argument(
        *BOOTSTRAP_OPTIONS,
        metavar="HOST:PORT",
        default=argparse.SUPPRESS if again else default,
        help=f"a broker of the cluster, or several after commas (default {default}; ${BOOTSTRAP_VARIABLE})",
    )
    command.add_argument(
        CONFIG_OPTION,
        metavar="FILE",
        default=argparse.SUPPRESS if again else None,
        help="a file with Kafka's client properties of TLS and SASL, as Kafka's own tools take it",
    )
    command.add_argument(
        "--timeout",
        type=positive_seconds,
        default=argparse.SUPPRESS if again else 30.0,
        metavar="SECONDS",
        help="how long to wait for a response; produce and consume retry as long where a leader is gone "
        "(default 30)",
    )


def add_json(command: argparse.ArgumentParser, what: str) -> None:
    """Adds the option --json, for programs."""
    command.add_argument("--json", action="store_true", help=f"for programs: {what}")


def client_of(options: argparse.Namespace, *, outlives_leaders: bool = False) -> Client:
    """`outlives_leaders`: a leader that hangs is abandoned early enough for the next one to respond in
    time. Raises WrongUsage for a file of properties that cannot be used."""
    from lockstep.kafka_client.client import Client
    from lockstep.kafka_client.security import InvalidProperty, read_properties

    timeout_s = options.timeout
    if outlives_leaders:
        timeout_s = max(timeout_s / _MAX_ATTEMPTS, min(timeout_s, _RESPONSE_TIMEOUT_S))
    try:
        properties = read_properties(options.command_config) if options.command_config else None
    except InvalidProperty as error:
        raise WrongUsage(f"{CONFIG_OPTION}: {error}") from None
    try:
        return Client(
            options.bootstrap, client_id="lockstep-command", timeout_s=timeout_s, properties=properties
        )
    except InvalidProperty as error:
        raise WrongUsage(f"{options.command_config}: {error}") from None


def followed_topic(client: Client, topic: TopicMetadata) -> FollowedTopic:
    """Returns the followed topic of a command that outlives leaders."""
    from lockstep.kafka_client.followed_topic import FollowedTopic

    return FollowedTopic(client, topic, deleted_after_s=_DELETED_AFTER_S)


async def topic_of(client: Client, name: str, timeout_s: float, *, create: bool = False) -> TopicMetadata:
    """The topic that a command is about. Raises ClientError.

    Brokers that do not respond, or do not know its leaders, get requests until `timeout_s` is over. Where all
    of them reject a connection, or there is no such topic, it fails at once.
    """
    import asyncio

    from lockstep.kafka_client.connection import BrokerError, TimedOut
    from lockstep.kafka_client.retry_policy import RetryPolicy
    from lockstep.protocol.cluster_view import LEADERSHIP_ERRORS

    loop = asyncio.get_running_loop()
    report_at, deadline = loop.time() + _REPORT_AFTER_S, loop.time() + timeout_s
    tries, problem = RetryPolicy(deadline), f"{client.bootstrap} did not respond in {timeout_s:g} s"
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                return await client.topic(name, create=create)
        except TimeoutError:
            raise TimedOut(problem) from None
        except (BrokerError, TimedOut) as error:
            problem = str(error)
            if isinstance(error, BrokerError) and error.code not in LEADERSHIP_ERRORS:
                raise
            if not await tries.wait_before_retry():
                raise
            if loop.time() >= report_at:
                report_at = float("inf")
                print_progress(f"{error}; still trying")


@asynccontextmanager
async def report_silence(followed: FollowedTopic) -> AsyncIterator[None]:
    """Meanwhile prints a line on standard error each time that brokers stop responding."""
    import asyncio

    async def watch() -> None:
        is_reported = False
        while True:
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
            problem = followed.problem()
            if problem and not is_reported:
                print_progress(f"{problem}; still trying")
            is_reported = bool(problem)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


def print_progress(text: str) -> None:
    """Prints a line on standard error, for a command that takes its time."""
    print(f"lockstep: {text}", file=sys.stderr, flush=True)


def positive_seconds(text: str) -> float:
    """An argument type."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def whole_number(text: str) -> int:
    """An argument type: 0 or more."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return value


def separator(text: str) -> str:
    """An argument type: \\t and the like mean what they mean in Python."""
    found = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    if not found:
        raise ValueError(text)
    return found


def pair(text: str) -> tuple[str, str]:
    """An argument type: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def print_json(document: object) -> None:
    """One document on one line."""
    import json

    sys.stdout.write(json.dumps(document, ensure_ascii=False, separators=(", ", ": ")) + "\n")


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table: a cell is one line, whatever a client has put into it."""
    from tabulate import tabulate

    from lockstep.protocol.printable import escape_unprintable

    cells = [[escape_unprintable(str(cell)) for cell in row] for row in rows]
    print(tabulate(cells, headers=list(headers), tablefmt="plain", disable_numparse=True))


def printable(data: bytes | None) -> tuple[str, str | None]:
    """Bytes in a JSON object: ("", text) where they are UTF-8 or null, ("_base64", text) otherwise."""
    if data is None:
        return "", None
    try:
        return "", data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return "_base64", b64encode(data).decode()
