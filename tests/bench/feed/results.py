"""What sessions of the feed have measured, for tests."""

from __future__ import annotations

from typing import Any

from bench.settings import FLUSH


def feed_sessions(*blocks: tuple[int, float, float]) -> list[dict[str, Any]]:
    return [
        {
            "side": "subject",
            "memory": {},
            "blocks": [
                {
                    "name": f"feed{body_bytes}",
                    "policy": FLUSH,
                    "proven": True,
                    "figures": {
                        "client_us": client_us,
                        "broker_us": broker_us,
                        "batch_bytes": 200 + body_bytes,
                        "project_us": 30.0,
                        "transactions_per_s": 1e6 / client_us,
                    },
                }
                for body_bytes, client_us, broker_us in blocks
            ],
        }
    ]
