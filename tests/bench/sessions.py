"""What a session has measured, as it is kept, for tests."""

from __future__ import annotations

from typing import Any


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
