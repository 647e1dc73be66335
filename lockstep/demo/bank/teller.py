"""A process that transfers at random: `python -m lockstep.demo.bank.teller BOOTSTRAP TOPIC SEED ACCOUNT...`.

It continues until its standard input ends, so it does not outlive its parent. Its first line (`READY`)
reports its start, its last one the outcomes of its transfers (`TransferOutcomes`).
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from lockstep.demo.bank.books import BankError, open_books
from lockstep.demo.bank.ledger import Ledger
from lockstep.demo.bank.operations import BankTransfer
from lockstep.kafka_client.connection import ClientError
from lockstep.transactions import Expired, RefusedForGood, TransactionClient, TransactionError

READY: Final = "ready"
CONCURRENT_TRANSFERS: Final = 4
"""The number of transfers under way."""
MAX_TRANSFER_CENTS: Final = 500
_TIMEOUT_S: Final = 60.0
"""The timeout of one transfer: a broker may be restarted meanwhile."""
_PAUSE_S: Final = 0.02
"""The pause after a transfer that failed."""


class TransferOutcomes(NamedTuple):
    """The outcomes of a teller's transfers."""

    acknowledged: int = 0
    declined: int = 0
    refused: int = 0
    """Attempts that lost against a concurrent transaction."""
    unknown: int = 0
    """Transfers with an unknown outcome."""
    failed: int = 0

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())

    @classmethod
    def parse(cls, line: str) -> Self:
        """Raises ValueError."""
        pairs = [word.partition("=") for word in line.split()]
        if [name for name, _, _ in pairs] != list(cls._fields):
            raise ValueError(f"not a teller's outcomes: {line!r}")
        return cls(*(int(value) for _, _, value in pairs))

    def plus(self, other: TransferOutcomes) -> TransferOutcomes:
        return TransferOutcomes(*(one + two for one, two in zip(self, other, strict=True)))


async def transfers(
    client: TransactionClient,
    ledger: Ledger,
    accounts: Sequence[int],
    rng: random.Random,
    stop: asyncio.Event,
) -> TransferOutcomes:
    """One after the other until `stop`, one at least. Raises RefusedForGood: the next one would be, too."""
    outcomes = TransferOutcomes()
    while outcomes == TransferOutcomes() or not stop.is_set():
        payer, payee = rng.sample(accounts, 2)
        transfer = BankTransfer(ledger, payer, payee, rng.randint(1, MAX_TRANSFER_CENTS))
        try:
            appended = await client.execute(transfer, timeout_s=_TIMEOUT_S)
            one = TransferOutcomes(acknowledged=1) if appended else TransferOutcomes(declined=1)
        except RefusedForGood:
            raise
        except TransactionError as error:
            is_open = isinstance(error, Expired) and not error.is_known
            one = TransferOutcomes(unknown=1) if is_open else TransferOutcomes(failed=1)
            print(error, file=sys.stderr)
        outcomes = outcomes.plus(one._replace(refused=transfer.refusals))
        if not one.acknowledged:
            await asyncio.sleep(_PAUSE_S)
    return outcomes


async def _serve(bootstrap: str, topic: str, seed: int, accounts: Sequence[int]) -> TransferOutcomes:
    stop = asyncio.Event()
    ledger = Ledger()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: _PipeClosed(stop), sys.stdin)
    async with open_books(bootstrap, topic, ledger) as client:
        print(READY, flush=True)
        outcomes = await asyncio.gather(
            *(
                transfers(client, ledger, accounts, random.Random(seed + each), stop)
                for each in range(CONCURRENT_TRANSFERS)
            )
        )
    transport.close()
    total = TransferOutcomes()
    for each in outcomes:
        total = total.plus(each)
    return total


class _PipeClosed(asyncio.Protocol):
    """Sets an event when the other end of the pipe is closed."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()


def main(arguments: Sequence[str]) -> int:
    """Ctrl-C is for the parent, which then closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bootstrap, topic, seed, *accounts = arguments
    try:
        outcomes = asyncio.run(_serve(bootstrap, topic, int(seed), [int(each) for each in accounts]))
    except (BankError, ClientError, TransactionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(outcomes, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
