"""A volume that knows what is really on the disk: files and directories, each as seen and as kept.

Owns: per file the bytes the system sees, the bytes on the disk, and in order the changes since its last
flush; per directory the names likewise. `lose_power` keeps, of what was not flushed, any subset: whole
changes, or their 512-byte sectors or 4096-byte pages, so also later ones without earlier ones. Changes that
reach the same bytes keep their order, as on a disk: a sector never goes back to an older write.

The rules are those of POSIX and no kinder: a flush of a file keeps its bytes and its length, not its name; a
flush of a directory keeps its names, not their bytes nor the directory's own name. A rename is atomic. Where
one change of a name is lost, later ones of the same file's name are, too.

Pure: no clock, no thread, and chance is an argument. Has no links, times or modes, and no renames across
directories.
"""

from __future__ import annotations

import errno
import os
from dataclasses import astuple, dataclass
from itertools import pairwise
from random import Random

SECTOR_BYTES = 512
PAGE_BYTES = 4096
WHOLE = 1 << 62
LOST_SHARES = (0.0, 0.1, 0.5, 0.5, 0.9, 1.0, 1.0)
"""One is drawn per loss: how likely each piece of what was not flushed is gone."""


class File:
    """A file without its name. A change is (position, bytes), or (length, None) for another length."""

    __slots__ = ("changes", "kept", "pending", "seen")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.kept = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        self.changes = 0
        """How many there ever were; `pending` holds the last of them."""

    def change(self, position: int, data: bytes | None) -> None:
        """Takes effect for the system at once, and on the disk when flushed."""
        apply(self.seen, position, data)
        self.pending.append((position, data))
        self.changes += 1


class Directory:
    """Names. A change is the node it is about, and what becomes of which names."""

    __slots__ = ("kept", "pending", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, Node] = {}
        self.kept: dict[str, Node] = {}
        self.pending: list[tuple[Node, dict[str, Node | None]]] = []

    def change(self, node: Node, names: dict[str, Node | None]) -> None:
        """Takes effect for the system at once, and on the disk when flushed."""
        update(self.seen, names)
        self.pending.append((node, names))


Node = File | Directory


@dataclass
class Loss:
    """What a power loss found not flushed, and what it took."""

    changes: int = 0
    """Writes and changes of length that were not flushed."""
    changes_lost: int = 0
    """Of them, those of which nothing is left."""
    changes_torn: int = 0
    """Of them, those of which a part is left."""
    names: int = 0
    """Names made, changed and removed, and not flushed."""
    names_lost: int = 0

    def __add__(self, other: Loss) -> Loss:
        return Loss(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def apply(target: bytearray, position: int, data: bytes | None) -> None:
    """One change of a file's bytes; a gap before a write becomes zeros."""
    if data is None:
        del target[position:]
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    if data is not None:
        target[position : position + len(data)] = data


def update(names: dict[str, Node], changes: dict[str, Node | None]) -> None:
    """One change of a directory's names; None takes a name away."""
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Volume:
    """Paths are absolute within the volume; "/" is there and always kept. Errors are `OSError`."""

    def __init__(self) -> None:
        self.root = Directory()
        self.keeps_flushes = True
        """False: a disk that says it has flushed and has not."""

    # -- names ------------------------------------------------------------------------------------------

    def find(self, path: str) -> Node:
        """The node of this name as the system sees it."""
        node: Node = self.root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(node, Directory):
                raise _error(errno.ENOTDIR, path)
            if name not in node.seen:
                raise _error(errno.ENOENT, path)
            node = node.seen[name]
        return node

    def directory(self, path: str) -> Directory:
        """The directory of this name."""
        node = self.find(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> File:
        """The file of this name."""
        node = self.find(path)
        if not isinstance(node, File):
            raise _error(errno.EISDIR, path)
        return node

    def create(self, path: str) -> File:
        """A new, empty file; EEXIST when there is something of that name."""
        file = File()
        self._add(path, file)
        return file

    def make_dir(self, path: str) -> Directory:
        """A new, empty directory; EEXIST when there is something of that name."""
        directory = Directory()
        self._add(path, directory)
        return directory

    def unlink(self, path: str) -> None:
        """Takes a file's name away; who has it open goes on with it."""
        file = self.file(path)
        parent, name = self._parent(path)
        parent.change(file, {name: None})

    def remove_dir(self, path: str) -> None:
        """Takes an empty directory away."""
        directory = self.directory(path)
        if directory.seen:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        parent.change(directory, {name: None})

    def rename(self, old: str, new: str) -> None:
        """Within one directory (EXDEV across two); a file of the new name is replaced."""
        node = self.find(old)
        parent, old_name = self._parent(old)
        new_parent, new_name = self._parent(new)
        if parent is not new_parent:
            raise _error(errno.EXDEV, new)
        replaced = parent.seen.get(new_name)
        if isinstance(replaced, Directory) and replaced is not node:
            raise _error(errno.EISDIR, new)
        if old_name != new_name:
            parent.change(node, {old_name: None, new_name: node})

    def _add(self, path: str, node: Node) -> None:
        parent, name = self._parent(path)
        if name in parent.seen:
            raise _error(errno.EEXIST, path)
        parent.change(node, {name: node})

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self.directory(parent), name

    # -- flushes ----------------------------------------------------------------------------------------

    def flush(self, file: File, changes: int | None = None) -> None:
        """Keeps the file's bytes as they were after its first `changes` changes; None: as they are."""
        if not self.keeps_flushes:
            return
        upto = len(file.pending)
        if changes is not None:
            upto = max(0, upto - (file.changes - changes))
        for position, data in file.pending[:upto]:
            apply(file.kept, position, data)
        del file.pending[:upto]

    def flush_dir(self, directory: Directory) -> None:
        """Keeps the names in this directory."""
        if self.keeps_flushes:
            directory.kept = dict(directory.seen)
            directory.pending.clear()

    # -- loss -------------------------------------------------------------------------------------------

    def lose_power(self, random: Random) -> Loss:
        """From now on the system sees what the disk has kept, and by chance some of what was not flushed."""
        loss = Loss()
        share = random.choice(LOST_SHARES)
        grain = random.choice((SECTOR_BYTES, PAGE_BYTES, WHOLE))
        self._lose_below(self.root, random, share, grain, loss)
        return loss

    def _lose_below(self, directory: Directory, random: Random, share: float, grain: int, loss: Loss) -> None:
        gone: set[int] = set()
        for node, names in directory.pending:
            loss.names += 1
            if id(node) in gone or random.random() < share:
                gone.add(id(node))
                loss.names_lost += 1
            else:
                update(directory.kept, names)
        directory.pending.clear()
        directory.seen = dict(directory.kept)
        for name in sorted(directory.seen):
            below = directory.seen[name]
            if isinstance(below, Directory):
                self._lose_below(below, random, share, grain, loss)
            else:
                _lose_changes(below, random, share, grain, loss)


def _lose_changes(file: File, random: Random, share: float, grain: int, loss: Loss) -> None:
    for position, data in file.pending:
        pieces = [(position, data)] if data is None else _pieces(position, data, grain)
        left = [piece for piece in pieces if random.random() >= share]
        for at, part in left:
            apply(file.kept, at, part)
        loss.changes += 1
        loss.changes_lost += not left
        loss.changes_torn += 0 < len(left) < len(pieces)
    file.pending.clear()
    file.seen[:] = file.kept


def _pieces(position: int, data: bytes, grain: int) -> list[tuple[int, bytes | None]]:
    """The write cut where the file's sectors or pages end."""
    end = position + len(data)
    cuts = [position, *range((position // grain + 1) * grain, end, grain), end]
    return [(low, data[low - position : high - position]) for low, high in pairwise(cuts)]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
