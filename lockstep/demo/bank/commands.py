"""The commands that a person types: parsing and execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lockstep.demo.bank.ledger import Ledger
from lockstep.demo.bank.operations import BankTransfer, Deactivation, Deposit, Operation, Withdrawal
from lockstep.transactions import BlockingTransactionClient, Expired, TransactionError

HELP: Final = """\
deposit ACCOUNT CENTS        open the account if need be
withdraw ACCOUNT CENTS
transfer PAYER PAYEE CENTS
balance ACCOUNT
deactivate ACCOUNT           permanently
total                        of all accounts
help
quit"""

_OPERATIONS: Final[dict[str, tuple[int, Callable[..., Operation]]]] = {
    "deposit": (2, Deposit),
    "withdraw": (2, Withdrawal),
    "transfer": (3, BankTransfer),
    "deactivate": (1, Deactivation),
}
"""By word: the number of arguments, and the operation."""
_QUERIES: Final = {"balance": 1, "total": 0}
_TIMEOUT_S: Final = 30.0
"""The timeout of one operation."""


def run_command(line: str, ledger: Ledger, client: BlockingTransactionClient) -> str | None:
    """The reply to a command, in one line unless more was requested; None to quit."""
    word, *rest = line.split() or [""]
    if word in ("quit", "exit"):
        return None
    if word in ("", "help"):
        return HELP if word else ""
    try:
        if word in _OPERATIONS:
            count, make = _OPERATIONS[word]
            return _done(make(ledger, *_numbers(word, rest, count)), client)
        if word in _QUERIES:
            numbers = _numbers(word, rest, _QUERIES[word])
            client.caught_up(_TIMEOUT_S)
            return _balance(ledger, numbers[0]) if numbers else f"total {ledger.cents}"
    except ValueError as error:
        return f"error: {error}"
    except Expired as error:
        outcome = "it was not done" if error.is_known else "it is not known yet whether it was done"
        return f"error: {outcome}: {error}"
    except TimeoutError:
        return "error: nothing could be read in time"
    except TransactionError as error:
        return f"error: {error}"
    return f"error: there is no command {word!r}; try help"


def _done(operation: Operation, client: BlockingTransactionClient) -> str:
    appended = client.execute(operation, timeout_s=_TIMEOUT_S)
    if appended is None:
        return f"declined: {operation.declined}"
    positions = ", ".join(f"{partition}/{offset}" for partition, offset in appended.offsets.items())
    again = f", after {appended.tries} tries" if appended.tries > 1 else ""
    return f"done at {positions}{again}; {_balance(operation.ledger, operation.account)}"


def _balance(ledger: Ledger, number: int) -> str:
    account = ledger.accounts.get(number)
    if account is None:
        raise ValueError(f"there is no account {number}")
    return f"account {number} has {account.cents}" + ("" if account.is_active else ", not active")


def _numbers(word: str, texts: list[str], count: int) -> list[int]:
    if len(texts) != count:
        raise ValueError(f"{word} takes {count or 'no'} {'number' if count == 1 else 'numbers'}; try help")
    for text in texts:
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise ValueError(f"{text!r} is not a whole number; money is in cents")
    return [int(text) for text in texts]
