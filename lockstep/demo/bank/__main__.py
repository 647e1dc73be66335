"""`python -m lockstep.demo.bank`: reads the command line; interactive, or automatic with `--seconds`.

At the end the books are read from the beginning of the topic, and the last line has their content. Exit
status: 0 done, 1 that audit found something, nothing was transferred, or it could not continue (one line on
standard error has the reason), 2 wrong usage, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import logging
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence

from lockstep.cli import STOPPED_BY_USER
from lockstep.commands.options import positive_seconds, whole_number
from lockstep.demo.bank import automatic, commands
from lockstep.demo.bank.books import TIMEOUT_S, BankError, audit_books, make_topic
from lockstep.demo.bank.ledger import Ledger
from lockstep.kafka_client.connection import ClientError
from lockstep.testing import broker, broker_in_thread
from lockstep.transactions import BlockingTransactionClient, TransactionError

MIN_ACCOUNTS = 2


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="python -m lockstep.demo.bank",
        description="A bank whose only books are a topic. Interactive by default.",
    )
    root.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="a broker of the cluster; without it, one is started, whose data go when it ends",
    )
    root.add_argument("--topic", default="bank", help="made if it is not there (default: bank)")
    root.add_argument(
        "--partitions", type=_count, default=4, metavar="N", help="of the topic if it is made (default: 4)"
    )
    root.add_argument("--automatic", action="store_true", help="transfer at random until Ctrl-C")
    root.add_argument("--seconds", type=positive_seconds, metavar="N", help="the same, for so long")
    root.add_argument(
        "--processes", type=_count, default=2, metavar="N", help="that transfer at random (default: 2)"
    )
    root.add_argument(
        "--accounts", type=_accounts, default=8, metavar="N", help="they transfer between (default: 8)"
    )
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        if options.automatic or options.seconds is not None:
            return asyncio.run(_automatic(options))
        return _interactive(options)
    except (BankError, ClientError, TransactionError) as error:
        _print_problems([str(error)])
        return 1
    except KeyboardInterrupt:
        return STOPPED_BY_USER


async def _automatic(options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        """The next Ctrl-C does not wait for an audit."""
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, end)
    async with _brokers(options.bootstrap_server) as bootstrap:
        await make_topic(bootstrap, options.topic, options.partitions)
        outcome = await automatic.run(
            bootstrap,
            options.topic,
            accounts=options.accounts,
            processes=options.processes,
            stop=stop,
            seconds=options.seconds,
            has_table=sys.stdout.isatty(),
        )
    print(outcome.outcomes)
    _print_problems(outcome.problems)
    print(outcome, flush=True)
    return 0 if outcome.is_consistent else 1


def _interactive(options: argparse.Namespace) -> int:
    with _brokers_in_thread(options.bootstrap_server) as bootstrap:
        asyncio.run(make_topic(bootstrap, options.topic, options.partitions))
        _print_problems(asyncio.run(audit_books(bootstrap, options.topic)).problems)
        ledger = Ledger()
        with BlockingTransactionClient(bootstrap, options.topic, ledger) as client:
            try:
                client.caught_up(TIMEOUT_S)
            except TimeoutError:
                raise BankError(f"the books could not be read in {TIMEOUT_S:g} s") from None
            for line in _lines():
                text = commands.run_command(line, ledger, client)
                if text is None:
                    break
                if text:
                    print(text, flush=True)
        found = asyncio.run(audit_books(bootstrap, options.topic))
    _print_problems(found.problems)
    print(f"transfers={found.transfers} total={found.cents}", flush=True)
    return 1 if found.problems else 0


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)


def _lines() -> Iterator[str]:
    """The lines of standard input, until it ends."""
    prompt = "bank> " if sys.stdin.isatty() else ""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            yield input(prompt)


@contextlib.asynccontextmanager
async def _brokers(bootstrap: str | None) -> AsyncIterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    async with broker() as running:
        yield running.bootstrap_servers


@contextlib.contextmanager
def _brokers_in_thread(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with broker_in_thread() as running:
        yield running.bootstrap_servers


def _count(text: str) -> int:
    """An argument type: 1 or more, within reason."""
    value = whole_number(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to 1000")
    return value


def _accounts(text: str) -> int:
    """An argument type."""
    value = _count(text)
    if value < MIN_ACCOUNTS:
        raise argparse.ArgumentTypeError(f"a transfer takes {MIN_ACCOUNTS} accounts")
    return value


if __name__ == "__main__":
    sys.exit(main())
