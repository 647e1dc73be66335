"""How far the workers of a running run have come, from the files they write: acknowledgements and readers.

Owns: reading new whole lines of each file as they appear. Cheap enough to be asked every half second. The
judgement is `checker.py`'s, which reads the files from the start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.torture.clients.workers import is_consumer, reader_of


class Progress:
    """Counts over some files of events; `update` reads on."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._places = dict.fromkeys(paths, 0)
        self.acknowledged = 0
        self.readers: dict[str, dict[str, int]] = {}
        """Reader to partition to the offset behind the last record it had."""

    def update(self) -> None:
        for path, place in self._places.items():
            with open(path, "rb") as file:
                file.seek(place)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._places[path] = place + len(whole)
            for line in whole.splitlines():
                self._take(line)

    def _take(self, line: bytes) -> None:
        if b'"send"' in line:
            self.acknowledged += b'"s":"ok"' in line
            return
        event = json.loads(line)
        process = event["p"]
        if not is_consumer(process):
            return
        reader = self.readers.setdefault(reader_of(process), {})
        if event["f"] == "poll":
            for part, found in event["records"].items():
                reader[part] = max(reader.get(part, 0), found[-1][0] + 1)

    def behind(self, ends: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Readers that have not had everything up to these ends, and where they are."""
        return {
            reader: {part: places.get(part, 0) for part, end in ends.items() if places.get(part, 0) < end}
            for reader, places in self.readers.items()
            if any(places.get(part, 0) < end for part, end in ends.items())
        }
