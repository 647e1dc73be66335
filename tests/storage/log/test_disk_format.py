"""docs/disk_format.md says what the code packs."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from lockstep.storage import types
from lockstep.storage.log import batch_flags, format, marker, state_file
from tests.support.cases import each_case

DOCUMENT = Path(__file__).parents[3] / "docs" / "disk_format.md"
CODES = {"B": 1, "H": 2, "I": 4, "i": 4, "Q": 8, "q": 8}


def widths(packed: struct.Struct) -> list[int]:
    """Field widths of a struct, in order."""
    found = []
    for count, code in re.findall(r"(\d*)([a-zA-Z])", packed.format):
        if code in "sx":
            found.append(int(count or 1))
        else:
            found.extend([CODES[code]] * int(count or 1))
    return found


def table(name: str) -> list[tuple[int, int]]:
    """(offset, bytes) of each row of the table whose field column names it."""
    text = DOCUMENT.read_text()
    start = text.index(f"field ({name})")
    rows = text[start:].split("\n\n")[0]
    return [(int(a), int(b)) for a, b in re.findall(r"^\| (\d+) \| (\d+) \|", rows, re.MULTILINE)]


@each_case(
    ("name", "packed"),
    [
        ("segment header", format.SEGMENT),
        ("marker", marker.MARKER),
        ("frame header", format.FRAME),
        ("directory entry", types.ENTRY),
        ("state slot", state_file._SLOT),
        ("change", batch_flags._CHANGE),
    ],
)
def test_the_document_has_every_field_at_its_place(name: str, packed: struct.Struct) -> None:
    expected, at = [], 0
    for width in widths(packed):
        expected.append((at, width))
        at += width
    assert table(name) == expected and at == packed.size


def test_sizes_named_in_the_document() -> None:
    text = DOCUMENT.read_text()
    assert f"{marker.MARKER_BYTES} bytes of marker, per frame {format.FRAME_BYTES}" in text
    assert f"per batch {types.ENTRY_BYTES}" in text
