"""The rules for topic names. Source: Kafka's Topic.validate."""

from __future__ import annotations

import re
from typing import Final

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

MAX_NAME_CHARACTERS: Final = 249
"""Kafka's limit: a name, a dash and a partition number make a directory name there."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_name(name: str) -> None:
    """Kafka's rules for topic names. Raises RequestError with INVALID_TOPIC_EXCEPTION."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_CHARACTERS:
        problem = (
            f"the length of '{name[:32]}...' is longer than the max allowed length {MAX_NAME_CHARACTERS}"
        )
    elif not _NAME.fullmatch(name):
        problem = f"{name!r} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
