"""The broker's data directory: one broker at a time, one node's, of a format we know.

Holds `.lock` (an advisory lock, so that two brokers cannot share it), `meta.properties` (format, node id)
and `groups/N`, one directory per log group. Does not: look inside a group's directory.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

import javaproperties

from storage.log.file_system import RealFileSystem
from storage.types import NewerFormat

FORMAT: Final = 1
"""Grows when a broker of this format could not read what a later one wrote."""
_LOCK: Final = ".lock"
_META: Final = "meta.properties"


class DirectoryInUse(Exception):
    """Another broker runs on this directory."""


class WrongDirectory(Exception):
    """The directory belongs to another node, or is not a broker's."""


class DataDirectory:
    """A locked data directory. `close` unlocks it."""

    def __init__(self, path: Path, node_id: int) -> None:
        """Make it if it is missing, lock it, check whose it is.

        Raises DirectoryInUse, WrongDirectory, NewerFormat, OSError.
        """
        self.path = path
        if path.exists() and not path.is_dir():
            raise WrongDirectory(f"{path} is a file, not a directory")
        RealFileSystem().make_dir(path)
        self._lock = _locked(path / _LOCK)
        try:
            self._check(node_id)
        except BaseException:
            self.close()
            raise

    def group(self, number: int) -> Path:
        """Where a log group lives."""
        return self.path / "groups" / str(number)

    def groups(self) -> list[int]:
        """The groups that are there, in order."""
        try:
            names = os.listdir(self.path / "groups")
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def close(self) -> None:
        """Let another broker have it."""
        os.close(self._lock)

    def _check(self, node_id: int) -> None:
        meta = self.path / _META
        if not meta.exists():
            if self.groups():
                raise WrongDirectory(f"{self.path} has log groups but no {_META}")
            _write_flushed(meta, f"format={FORMAT}\nnode.id={node_id}\n")
            return
        try:
            known = javaproperties.loads(meta.read_text(encoding="utf-8"))
        except ValueError as error:
            raise WrongDirectory(f"{meta} cannot be read: {error}") from None
        if "format" not in known:
            raise WrongDirectory(f"{meta} was not written by Lockstep; choose another data directory")
        if not known["format"].isdecimal() or int(known["format"]) > FORMAT:
            raise NewerFormat(
                f"{self.path} has format {known['format']}; this version of Lockstep knows up to {FORMAT}"
            )
        if known.get("node.id") != str(node_id):
            raise WrongDirectory(
                f"{self.path} belongs to node.id={known.get('node.id')}, this is node.id={node_id}"
            )


def in_words(error: OSError) -> str:
    """What the system refused, without its number."""
    problem = (error.strerror or str(error)).lower()
    return f"{error.filename}: {problem}" if error.filename else problem


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        by = f" (process {holder})" if holder else ""
        raise DirectoryInUse(f"another Lockstep{by} runs on {path.parent}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _write_flushed(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    with open(temporary, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
