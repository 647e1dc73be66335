"""Records of the micro-benchmarks' history, for tests."""

from __future__ import annotations

from typing import Any

from bench.micro.history import record

MACHINE = {"processor": "P", "cpus": 2, "python": "3.11", "file_system": "ext4", "kernel": "6", "more": 1}


PYTHON, SHORT, LONG = "reference: attributes, a dict and ints", "CRC-32C of 1 KB", "CRC-32C of 15 KB"
"""Steps that are references."""


def record_of(commit: str, steps: dict[str, float], machine: dict[str, Any] = MACHINE) -> dict[str, Any]:
    return record(steps, machine, {"commit": commit, "dirty": False}, "2026-01-01T00:00:00Z")


def recorded(commit: str, machine: dict[str, Any] = MACHINE, **steps: float) -> dict[str, Any]:
    """The same of steps whose names are words."""
    return record_of(commit, steps, machine)
