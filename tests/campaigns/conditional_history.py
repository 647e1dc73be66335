"""What clients did to a topic with locks, and how it ended: what `porcupine/` judges.

Owns: `Operation`, the broker's line as fields, the comparison with what the log has in the end, the file that
the judge reads, and calling the judge. The log tells of every batch whose answer nobody heard: it is there,
or it never was. So the judge is only asked about known outcomes.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from compat_tests.go_driver import built
from tests.campaigns.locks import Asked

_MODULE: Final = Path(__file__).resolve().parent / "porcupine"
_LINE: Final = re.compile(r"LOCKSTEP_REFUSED (?P<fields>[^()]*)")
_NUMBERS: Final = ("record", "hwm", "expected", "conflict_offset", "last_stable_offset")


class Conditions(Asked):
    """One record's, where the other partition is one of several."""

    elsewhere_partition = 0


class Operation:
    """One append or read of one client; `number` is unique in its history. Times in ns of one clock."""

    def __init__(self, number: int, client: int, partition: int, asked: Sequence[Conditions] = ()) -> None:
        self.number = number
        self.client = client
        self.partition = partition
        self.asked = asked
        """Of an append: its records' conditions."""
        self.call_ns = 0
        self.return_ns: int | None = None
        """None: nobody heard how it ended."""
        self.stored: int | None = None
        self.refused: dict[str, Any] | None = None
        self.first = 0
        """Of a read: the offset it began at, and what it found from there."""
        self.values: list[bytes] = []
        self.seen: int | None = None
        """Of a read: the high watermark."""

    def value(self, place: int) -> bytes:
        """What one of its records says, and no other record."""
        return b"%d/%d" % (self.number, place)

    def document(self) -> dict[str, Any]:
        """As the judge reads it."""
        return {
            "client": self.client,
            "call": self.call_ns,
            "return": self.return_ns,
            "partition": self.partition,
            "records": [_record(each) for each in self.asked],
            "stored": self.stored,
            "refused": self.refused,
            "seen": self.seen,
        }


def _record(asked: Conditions) -> dict[str, Any]:
    found: dict[str, Any] = {
        "hwm": -1 if asked.hwm is None else asked.hwm,
        **{kind: [name.decode() for name in names] for kind, names in asked.locks.items()},
        "expected": asked.expected,
        "request": asked.request[0].decode() if asked.request else "",
    }
    if asked.elsewhere is not None:
        hwm, name = asked.elsewhere
        found["elsewhere"] = {"partition": asked.elsewhere_partition, "hwm": hwm, "read": name.decode()}
    return found


def refusal(code: int, text: str) -> dict[str, Any] | None:
    """The fields of the broker's line; None where there is none."""
    line = _LINE.search(text)
    if line is None:
        return None
    words = line["fields"].split()
    fields: dict[str, Any] = dict(word.split("=", 1) for word in words if "=" in word)
    for name in _NUMBERS:
        if name in fields:
            fields[name] = int(fields[name])
    if "lock" in fields:
        fields["lock"] = unquote(fields["lock"])
    fields["partition"] = int(fields.pop("topic-partition").rpartition("-")[2])
    return {"error": code, "exact": "exact" in words, **fields}


def settle(
    operations: Sequence[Operation], logs: Mapping[int, Sequence[bytes]]
) -> tuple[list[Operation], list[str]]:
    """Those whose outcome is known once the log was read, and what is in the log against what was said.

    Args: logs: the records' values, by partition and offset.
    """
    places: dict[bytes, list[tuple[int, int]]] = {}
    for partition, values in logs.items():
        for offset, value in enumerate(values):
            places.setdefault(value, []).append((partition, offset))
    known, problems = [], []
    for each in operations:
        found = [places.pop(each.value(place), []) for place in range(len(each.asked))]
        if each.asked and each.stored is None and each.refused is None and any(found):
            each.stored = found[0][0][1] if found[0] else -1
        if each.stored is not None:
            wanted = [[(each.partition, each.stored + place)] for place in range(len(each.asked))]
            if found != wanted:
                problems.append(
                    f"operation {each.number} was stored at {each.stored}, the log has it at {found}"
                )
        elif any(found):
            problems.append(f"operation {each.number} was refused, the log has it at {found}")
        if each.values != list(logs[each.partition][each.first : each.first + len(each.values)]):
            problems.append(f"operation {each.number} read from {each.first} on what is not there any more")
        if each.stored is not None or each.refused is not None or each.seen is not None:
            known.append(each)
    problems += [f"nobody wrote {value!r}, which is at {at}" for value, at in places.items()]
    return known, problems


def write(path: Path, operations: Sequence[Operation]) -> None:
    """For the judge."""
    path.write_text(json.dumps({"operations": [each.document() for each in operations]}))


@functools.cache
def program() -> Path:
    """The judge, built. ToolchainMissing without Go."""
    return built("porcupine", _MODULE, ".") / "porcupine"


def judge(path: Path, seconds: float = 120.0) -> dict[str, Any]:
    """What porcupine says of a history; an illegal one is drawn beside it. ToolchainMissing without Go."""
    words = [str(program()), "-seconds", str(seconds), "-html", str(path.with_suffix(".html")), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"{path.name}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
