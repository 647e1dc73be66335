"""What is checked in is what the generator makes of the proto."""

from __future__ import annotations

from pathlib import Path

from tests.player.generate import NAMES, ROOT, generate


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    generate(tmp_path)
    made = tmp_path / "player" / "generated"
    assert sorted(path.name for path in made.iterdir()) == sorted(NAMES)
    for name in NAMES:
        assert (made / name).read_bytes() == (ROOT / "player" / "generated" / name).read_bytes(), name
