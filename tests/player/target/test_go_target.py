"""What is the Go target's own: its dump, and one process at a time over its store."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.player.target.programs import GoTarget, running
from tests.player.target.wire import part, player_end, records

pytestmark = pytest.mark.timeout(900)
"""The first case may have to build the program."""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[GoTarget]:
    with running(GoTarget, tmp_path) as started:
        yield started


def test_the_dump_has_a_line_for_each_record(target: GoTarget) -> None:
    with player_end(target.address) as player:
        player.hello("a/b/0", (1, 1), 7)
        assert player.greeted() == 6
        player.batch(6, part(8, records(7, [(b"key", b"value"), (None, b"")])), part(9))
        assert player.acknowledged() == 9
        player.batch(9, part(10, records(10, [(b"", None)]), 0))
        assert player.acknowledged() == 10
    assert target.stop() == 0
    assert target.dumped() == [
        {"log_id": "a/b/0", "position": 8, "offset": 7, "key": "a2V5", "value": "dmFsdWU="},
        {"log_id": "a/b/0", "position": 8, "offset": 8, "key": None, "value": ""},
        {"log_id": "a/b/0", "position": 10, "offset": 10, "key": "", "value": None, "partition": 0},
    ]


def test_its_store_is_open_in_one_process(target: GoTarget) -> None:
    with player_end(target.address) as player:
        player.heartbeat()
        player.end()  # it is up
    with pytest.raises(subprocess.CalledProcessError) as failed:
        target.dumped()
    assert failed.value.returncode == 1
    assert "another process has it open" in failed.value.stderr


@pytest.mark.parametrize(
    "options", [[], ["-dump"], ["-store", "x"], ["-store", "x", "-dump", "-listen", "y"]]
)
def test_wrong_usage(target: GoTarget, options: list[str]) -> None:
    command = [str(target.program), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "-store" in done.stderr
