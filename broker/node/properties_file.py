"""Reading the properties files of a data directory, which may be damaged in any way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import javaproperties

from lockstep.storage.log.file_system import open_file

MAX_NUMBER: Final = 2**31 - 1
_MAX_BYTES: Final = 1 << 20


def read_properties(path: Path) -> dict[str, str]:
    """Returns a properties file's content. Raises OSError, also where it is no regular file; ValueError."""
    with open(open_file(path, os.O_RDONLY | os.O_CLOEXEC), "rb") as stream:
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    if data and not data.endswith(b"\n"):
        raise ValueError("it is cut short: its last line has no end")
    properties: dict[str, str] = javaproperties.loads(data.decode("utf-8"))
    return properties


def parse_number(text: str) -> int | None:
    """Returns a number in decimal digits; None for any other text, and for one above `MAX_NUMBER`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_NUMBER))):
        return None
    number = int(text)
    return number if number <= MAX_NUMBER else None
