"""Counts with their nouns: `1 member`, `2 members`."""

from __future__ import annotations


def pluralize(count: int, noun: str) -> str:
    """`noun` is the singular of one whose plural ends with an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
