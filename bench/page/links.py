"""Links of sections, written as for a page in docs/, on the page that they come to stand on. Pure."""

from __future__ import annotations

import re

_RELATIVE = re.compile(r"(\]\()(?!https?:|#|/|mailto:)")


def relocate_links(text: str, page: str) -> str:
    """The text with its links as they are from `page`, a path below docs/."""
    folder, _, _ = page.rpartition("/")
    moved = _RELATIVE.sub(rf"\1{'../' * page.count('/')}", text)
    return moved.replace(f"](../{folder}/", "](") if folder else moved
