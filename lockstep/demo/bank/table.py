"""The live table, as text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.demo.bank.ledger import Ledger


def render(ledger: Ledger, seconds: float, transfers: int) -> str:
    """Accounts and totals; `transfers` since it began."""
    lines = ["account  partition         cents"]
    for number, account in sorted(ledger.accounts.items()):
        closed = "" if account.is_active else "  not active"
        lines.append(f"{number:7}  {account.partition:9}  {account.cents:12}{closed}")
    cents_in_transit = -sum(ledger.unmatched_payments.values())
    lines.append(f"{'total':>7}  {'':9}  {ledger.cents:12}  and {cents_in_transit} between partitions")
    rate = transfers / seconds if seconds > 0 else 0.0
    lines.append(f"{transfers} transfers in {seconds:.0f} s, {rate:.0f}/s")
    return "\n".join(lines)


def redraw(text: str, above: str) -> str:
    """`text` in place of what was drawn before, as a terminal takes it."""
    up = f"\x1b[{above.count(chr(10)) + 1}F\x1b[J" if above else ""
    return f"{up}{text}\n"
