"""A client's way into its cluster: brokers are tried in turn, and one that is silent is left for the next.

Owns: how long each of several brokers may take. Invariant: together they take no longer than the client's
timeout. Does not: know what a connection is made of, or which brokers there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lockstep.kafka_client.connection import BrokerConnection, ClientError, ConnectionFailed, TimedOut

ATTEMPT_S: Final = 3.0
"""A live broker responds within that, even on a busy machine. The last one gets all that is left."""

Address = tuple[str, int]
Connect = Callable[[str, int, float], Awaitable[BrokerConnection]]


async def connect_to_first(
    addresses: Sequence[Address], connect: Connect, timeout_s: float
) -> BrokerConnection:
    """A connection to the first broker that responds. ConnectionFailed names all; TimedOut if one was silent.

    Args:
        connect: host, port, and the seconds that it may take.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    failures: list[tuple[str, ConnectionFailed]] = []
    for number, (host, port) in enumerate(addresses):
        others = len(addresses) - number - 1
        left_s = max(0.001, deadline - loop.time()) if failures else timeout_s
        try:
            return await connect(host, port, min(ATTEMPT_S, left_s / (others + 1)) if others else left_s)
        except ConnectionFailed as error:
            failures.append((f"{host}:{port}", error))
    raise _summary(failures)


def call_timeout_s(left_s: float, others: int) -> float:
    """Seconds that a broker may take to respond to a request that `others` can serve as well."""
    return min(left_s, max(ATTEMPT_S, left_s / (others + 1)))


def _summary(failures: Sequence[tuple[str, ConnectionFailed]]) -> ClientError:
    """One error for all of them, in one line."""
    if len(failures) == 1:
        return failures[0][1]
    reasons = {str(error).removeprefix(f"cannot connect to {address}: ") for address, error in failures}
    kind = TimedOut if any(isinstance(error, TimedOut) for _, error in failures) else ConnectionFailed
    if len(reasons) == 1:
        return kind(f"cannot connect to {', '.join(address for address, _ in failures)}: {reasons.pop()}")
    return kind("; ".join(str(error) for _, error in failures))
