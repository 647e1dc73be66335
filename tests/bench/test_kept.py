"""Kept results: whole or not at all, none in another's place, and a word for what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import kept


def test_a_result_is_never_in_anothers_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-000000")
    paths = [kept.keep({"number": number}, tmp_path / "out", "x") for number in range(3)]
    assert [path.name for path in paths] == [
        "20260101-000000-x.json",
        "20260101-000000.1-x.json",
        "20260101-000000.2-x.json",
    ]
    assert [json.loads(path.read_text())["number"] for path in paths] == [0, 1, 2]


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    kept.write(path, "before")

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        kept.write(path, b"after")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", '{"other": 1}', "\udcff"])
def test_what_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(kept.Unreadable, match=r"a\.json is no kept result"):
        kept.read(path, "machine")
    path.write_text('{"machine": {}}')
    assert kept.read(path, "machine") == {"machine": {}}
