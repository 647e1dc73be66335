"""What sessions have measured, and what is told of a run, as it is kept, for tests."""

from __future__ import annotations

from typing import Any

FACTS: dict[str, Any] = {
    "started": "2026-01-01T00:00:00Z",
    "code": {"commit": "0123456789abcdef", "dirty": False},
    "machine": {
        "processor": "P",
        "cpus": 2,
        "memory_gb": 8,
        "kernel": "6",
        "disk": {"device": "vda"},
        "file_system": "e",
        "python": "3.11",
        "java": "17",
        "kafka": "4.3.1",
    },
}


def session(side: str, *blocks: tuple[str, str, dict[str, float], bool], rss: float = 0.0) -> dict[str, Any]:
    """Args: blocks: name, policy, figures and whether they are proven, of each."""
    return {
        "side": side,
        "memory": {"rss_max_mb": rss} if rss else {},
        "blocks": [
            {"name": name, "policy": policy, "figures": figures, "proven": proven}
            for name, policy, figures, proven in blocks
        ],
    }
