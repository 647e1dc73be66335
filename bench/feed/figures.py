"""The figures of reading a feed, as a table. Measures nothing."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate


def table(result: dict[str, Any], style: str = "simple") -> str:
    """A row for each size of body."""
    heads = ["body bytes", "bytes on the wire", "transactions/s", "client CPU us", "broker CPU us"]
    heads += ["both, above an empty body, us", "taking the body out, us"]
    rows = [
        [
            f"{row['body_bytes']:,}",
            f"{row['batch_bytes']:,.0f}",
            f"{row['transactions_per_s']:,.0f}",
            f"{row['client_us']:.1f}",
            f"{row['broker_us']:.1f}",
            f"{row['above_us']:.1f}" if row["body_bytes"] else "",
            f"{row['project_us']:.1f}" if row["body_bytes"] else "",
        ]
        for row in result["rows"]
    ]
    return tabulate(rows, headers=heads, tablefmt=style, disable_numparse=True)
