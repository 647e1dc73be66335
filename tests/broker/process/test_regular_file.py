"""What is no regular file is an error at once, also where it took a file's place a moment ago."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockstep.broker.process import regular_file
from lockstep.broker.process.regular_file import NotRegularFile, open_regular
from tests.support.cases import check_each


def test_what_is_no_regular_file_is_named(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)

    def check(path: str | Path, kind: str) -> None:
        with pytest.raises(NotRegularFile) as told:
            open_regular(str(path), os.O_RDONLY)
        assert told.value.strerror == f"{kind}, no regular file"

    check_each(
        [
            (pipe, "a pipe (FIFO)"),
            (link, "a pipe (FIFO)"),
            (tmp_path, "a directory"),
            ("/dev/zero", "a device"),
        ],
        check,
    )
    with pytest.raises(FileNotFoundError):
        open_regular(str(tmp_path / "none"), os.O_RDONLY)


def test_a_pipe_that_took_the_place_of_a_file_does_not_wait_for_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regular_file, "check_regular", lambda path: None)
    os.mkfifo(tmp_path / "pipe")
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(NotRegularFile):
        open_regular(str(tmp_path / "pipe"), os.O_RDONLY)
    assert os.listdir("/proc/self/fd") == descriptors


def test_a_file_is_made_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with open(path, "wb", opener=open_regular) as stream:
        stream.write(b"x")
    with open(path, "rb", opener=open_regular) as stream:
        assert stream.read() == b"x"
