"""The data directory of one broker: the lock, the checks at the start, and what is recorded about the node.

Holds `.lock` (an advisory lock, so that two brokers cannot share it, with the process's id while it is
held), `meta.properties` (format, node id, the node's part in its cluster) and `groups/N`, one directory per
log group, in which `owner.properties` names the data directory; `groups/N.gone` is the rest of a removed one.
Does not: look at anything else inside a group's directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.metadata_version import LATEST_VERSION, unsupported_text
from lockstep.broker.node.first_start import ClusterPart
from lockstep.broker.node.properties_file import parse_number, read_properties
from lockstep.protocol.printable import escape_unprintable
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.types import NewerFormat

FORMAT: Final = 1
"""The format of a directory without a recorded metadata version."""
VERSIONED_FORMAT: Final = 2
"""The format once a metadata version is recorded: earlier brokers cannot read what is written after that."""
_LOCK: Final = ".lock"
META_NAME: Final = "meta.properties"
PROCESSES_NAME: Final = "processes.properties"
"""A file of the directory with all nodes of `lockstep serve --processes` (`lockstep/supervisor`)."""
_PART: Final = "part"
_REGISTERED: Final = "registered"
_CLUSTER: Final = "cluster.id"
_METADATA_VERSION: Final = "metadata.version"
_REMOVED: Final = "removed"
_DIRECTORY: Final = "directory.id"
"""A random id: a node with another data directory does not have this one's votes and records."""
_OWNER: Final = "owner.properties"
_GONE: Final = ".gone"
_NOT_ALLOWED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
ALONE: Final = "alone"
_PARTS: Final = ("", ALONE, *(each.value for each in ClusterPart))
"""A node's parts as they are recorded."""
MAX_SHOWN: Final = 40
"""Characters of a damaged value that an error shows."""


class DirectoryInUse(Exception):
    """Another broker runs on this directory."""


class WrongDirectory(Exception):
    """The directory belongs to another node, is not a broker's, or may not be written by this user."""


class DataDirectory:
    """A locked data directory. `close` unlocks it."""

    def __init__(self, path: Path, node_id: int, *, alone: bool = True) -> None:
        """Create it if it is missing, lock it, check its node id and whether it is of a single node.

        Raises DirectoryInUse, WrongDirectory, NewerFormat, OSError.
        """
        self.path = path
        self._record_lock = threading.Lock()  # records are written by threads beside the event loop
        try:
            if path.exists() and not path.is_dir():
                raise WrongDirectory(f"{path} is a file, not a directory")
            _check_no_nodes_below(path)
            RealFileSystem().make_dir(path)
            self._lock = lock_file(path / _LOCK)
        except OSError as error:
            problem = "is not writable for this user" if error.errno in _NOT_ALLOWED else "cannot be used"
            raise WrongDirectory(
                f"the data directory {path} {problem} ({describe_os_error(error)}): see --data-dir, log.dirs"
            ) from None
        self._properties: dict[str, str] = {}
        try:
            self._check(node_id, alone)
        except BaseException:
            self.close()
            raise
        for removed in (path / "groups").glob(f"*{_GONE}"):  # the broker stopped before it deleted them
            shutil.rmtree(removed, ignore_errors=True)

    def group(self, group_id: int) -> Path:
        """The directory of a log group."""
        return self.path / "groups" / str(group_id)

    def groups(self) -> list[int]:
        """The groups that are there, in order."""
        try:
            names = os.listdir(self.path / "groups")
        except FileNotFoundError:
            return []
        numbers = {name: parse_number(name) for name in names}
        return sorted(
            number for name, number in numbers.items() if number is not None and name == str(number)
        )

    def record_owner(self, group_id: int) -> None:
        """Record in a log group's directory that it is of this data directory, durably. On a full disk the
        error is ignored, and the next start records it."""
        owner = self.group(group_id) / _OWNER
        directory_id = self._properties.get(_DIRECTORY)
        if directory_id is not None and not _owner_of(owner):
            with suppress(OSError):
                write_flushed(owner, f"node.id={self._properties['node.id']}\n{_DIRECTORY}={directory_id}\n")

    def mark_removed(self, group_id: int) -> Path | None:
        """Mark a log group's directory as removed, durably; returns the directory to delete, at any time and
        in any order, or None for none. Raises OSError."""
        removed = self.path / "groups" / f"{group_id}{_GONE}"
        shutil.rmtree(removed, ignore_errors=True)
        try:
            os.rename(self.group(group_id), removed)
        except FileNotFoundError:
            return None
        _fsync_directory(removed.parent)
        return removed

    def close(self) -> None:
        """Unlock it."""
        unlock_file(self._lock)

    @property
    def part(self) -> str:
        """The node's part in its cluster of several; "" before it has one."""
        return self._properties.get(_PART, "")

    @property
    def is_registered(self) -> bool:
        """True once the cluster has registered the node."""
        return _REGISTERED in self._properties

    def record_part(self, part: str) -> None:
        """Record the node's part, durably. Raises OSError."""
        self._record({_PART: part})

    def record_registered(self) -> None:
        """Record that the cluster has registered the node, durably. Raises OSError."""
        if not self.is_registered:
            self._record({_REGISTERED: "true"})

    @property
    def cluster_id(self) -> str | None:
        """The cluster of several that the node is part of; None before it knows one."""
        return self._properties.get(_CLUSTER)

    def record_cluster(self, cluster_id: str) -> None:
        """Record the cluster's id, durably. Raises OSError."""
        if self.cluster_id != cluster_id:
            self._record({_CLUSTER: cluster_id})

    @property
    def metadata_version(self) -> int:
        """The metadata version of the cluster, as this node knew it last; 0 where none was recorded."""
        return int(self._properties.get(_METADATA_VERSION, "0"))

    def record_metadata_version(self, version: int) -> None:
        """Record the metadata version, durably: a broker that does not support it does not start from this
        directory. Raises OSError."""
        if self.metadata_version < version:
            self._record({"format": str(VERSIONED_FORMAT), _METADATA_VERSION: str(version)})

    def record_removal(self) -> None:
        """Record that the node was removed from its cluster, durably: it does not start from this directory
        again. Raises OSError."""
        self._record({_REMOVED: "true"})

    def remove_groups(self) -> None:
        """Remove the log groups of a start that failed before the node took part in its cluster."""
        shutil.rmtree(self.path / "groups", ignore_errors=True)

    def _check_owners(self, node_id: int) -> None:
        """Raises WrongDirectory where a log group is of another data directory. Older versions record no
        owner and no id: then the id that the groups name is expected."""
        expected = self._properties.get(_DIRECTORY)
        for group_id in self.groups():
            owner = _owner_of(self.group(group_id) / _OWNER)
            if not owner:
                continue
            expected = expected or owner[_DIRECTORY]
            if (owner["node.id"], owner[_DIRECTORY]) != (str(node_id), expected):
                theirs = escape_unprintable(owner["node.id"][:MAX_SHOWN])
                raise WrongDirectory(
                    f"{self.group(group_id)} is of another data directory, of node {theirs}: its votes and "
                    f"records are not those of node {node_id}, which starts here. Put its own directory "
                    f"back, or empty {self.path}: then a node of a cluster comes back as another member"
                )
        if _DIRECTORY not in self._properties:
            with suppress(OSError):  # on a full disk the next start records it
                self._record({_DIRECTORY: expected or secrets.token_hex(16)})

    def _record(self, changed: dict[str, str]) -> None:
        with self._record_lock:
            properties = {**self._properties, **changed}
            write_flushed(
                self.path / META_NAME, "".join(f"{name}={text}\n" for name, text in properties.items())
            )
            self._properties = properties

    def _check(self, node_id: int, alone: bool) -> None:
        meta = self.path / META_NAME
        if not meta.exists():
            if self.groups():
                raise WrongDirectory(f"{self.path} has log groups but no {META_NAME}")
            self._properties = {"format": str(FORMAT), "node.id": str(node_id)}
            self._properties[_DIRECTORY] = secrets.token_hex(16)
            self._record({_PART: ALONE if alone else ""})
            return
        properties = self._read(meta)
        if properties.get("node.id") != str(node_id):
            raise WrongDirectory(
                f"{self.path} belongs to node.id={escape_unprintable(str(properties.get('node.id')))}, "
                f"this is node.id={node_id}"
            )
        if _REMOVED in properties:
            raise WrongDirectory(
                f"{self.path} belongs to node {node_id}, which was removed from the cluster; with an "
                "empty data directory it can come back"
            )
        self._properties = properties
        was_alone = properties[_PART] == ALONE
        if alone and not was_alone:
            raise WrongDirectory(
                f"{self.path} belongs to node {node_id} of a cluster, and lockstep.peers is missing: start "
                "it with the --peers that it had (`make cluster` starts its own nodes), or choose another "
                "data directory (--data-dir, or make serve DATA_DIR=)"
            )
        if not alone and was_alone and self.groups():
            raise WrongDirectory(
                f"{self.path} belongs to a node that was alone; a cluster does not take its log over: start "
                "with another data directory (--data-dir), or without --peers"
            )
        self._check_groups(node_id, alone)
        self._check_owners(node_id)
        if not alone and was_alone:
            self._record({_PART: ""})

    def _read(self, meta: Path) -> dict[str, str]:
        """Returns the properties. Raises WrongDirectory, NewerFormat, OSError."""
        try:
            properties = read_properties(meta)
        except ValueError as error:
            raise WrongDirectory(f"{meta} cannot be read: {escape_unprintable(str(error))}") from None
        if "format" not in properties:
            raise WrongDirectory(f"{meta} was not written by Lockstep; choose another data directory")
        form = _number(meta, properties, "format")
        if form > VERSIONED_FORMAT:
            raise NewerFormat(
                f"{self.path} has format {form}; this version of Lockstep knows up to {VERSIONED_FORMAT}"
            )
        version = _number(meta, properties, _METADATA_VERSION, "0")
        if version > LATEST_VERSION:
            raise NewerFormat(f"{self.path}: {unsupported_text(version, LATEST_VERSION)}")
        if "node.id" not in properties or properties.get(_PART) not in _PARTS:
            raise _unreadable(meta, "node.id" if "node.id" not in properties else _PART, properties)
        return properties

    def _check_groups(self, node_id: int, alone: bool) -> None:
        """Raises WrongDirectory where the log groups of a node that has taken part were lost: without its
        votes and records it would start as another node."""
        groups, properties = self.groups(), self._properties
        if METADATA_GROUP in groups or not self.part:
            return
        if not groups and not any(each in properties for each in (_REGISTERED, _CLUSTER, _METADATA_VERSION)):
            # The broker stopped while it joined: a failed write of its part may have reached the disk.
            if not alone and self.part != ALONE:
                self._record({_PART: ""})
            return
        lost = self.group(METADATA_GROUP) if groups else self.path / "groups"
        if self.part == ALONE:
            raise WrongDirectory(
                f"{lost} is lost, which has the records of this broker: put it back (a volume that is not "
                f"mounted, for one), or empty {self.path}, and a new broker begins there without them"
            )
        raise WrongDirectory(
            f"{lost} is lost, which has the votes and records of node {node_id} of a cluster: put it back (a "
            f"volume that is not mounted, for one), or empty {self.path}: then the node comes back as "
            "another member, and other nodes send it what they have"
        )


def _number(meta: Path, properties: dict[str, str], name: str, default: str = "") -> int:
    """Returns a number of the directory's properties. Raises WrongDirectory."""
    number = parse_number(properties.get(name, default))
    if number is None:
        raise _unreadable(meta, name, properties)
    return number


def _unreadable(meta: Path, name: str, properties: dict[str, str]) -> WrongDirectory:
    value = properties.get(name)
    text = f"{name} is missing" if value is None else f"{name}={value[:MAX_SHOWN]}"
    return WrongDirectory(
        f"{meta} is damaged ({escape_unprintable(text)}): put it back from a copy, or choose another data "
        "directory (--data-dir)"
    )


def describe_os_error(error: OSError) -> str:
    """The text of a system error, without its number."""
    problem = (error.strerror or str(error)).lower()
    return f"{error.filename}: {problem}" if error.filename else problem


def is_removed(path: Path) -> bool:
    """Returns whether a directory's node was removed from its cluster; False where it cannot be read."""
    try:
        return _REMOVED in read_properties(path / META_NAME)
    except (OSError, ValueError):
        return False


def recorded_cluster(path: Path) -> str | None:
    """The cluster that a directory's node is of; None where it knows none, or cannot be read."""
    try:
        return read_properties(path / META_NAME).get(_CLUSTER)
    except (OSError, ValueError):
        return None


def _owner_of(path: Path) -> dict[str, str]:
    """Returns a log group's owner as it is recorded; empty for none, also where it cannot be read."""
    try:
        owner = read_properties(path)
    except (OSError, ValueError):
        return {}
    return owner if "node.id" in owner and _DIRECTORY in owner else {}


def _check_no_nodes_below(path: Path) -> None:
    """Raises WrongDirectory where the path has the data directories of a cluster's nodes below it."""
    if (path / META_NAME).exists():
        return
    if (path / PROCESSES_NAME).exists():
        raise WrongDirectory(
            f"{path} holds the nodes of `lockstep serve --processes`: start it with the --processes that it "
            "had, or choose another data directory (--data-dir, or make serve DATA_DIR=)"
        )
    nodes = sorted(each.parent.name for each in path.glob(f"[0-9]*/{META_NAME}"))
    if nodes:
        names = ", ".join(f"{path.name}/{node}" for node in nodes)
        raise WrongDirectory(
            f"{path} holds the nodes of a cluster ({names}): run `make cluster DATA_DIR={path}`, or choose "
            "another data directory (--data-dir, or make serve DATA_DIR=)"
        )


def lock_file(path: Path) -> int:
    """Locks the `.lock` of a directory; returns its descriptor. Raises DirectoryInUse, OSError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = escape_unprintable(os.read(lock, 32).decode(errors="replace").strip())
        os.close(lock)
        by = f" (process {holder})" if holder else ""
        raise DirectoryInUse(f"another Lockstep{by} runs on {path.parent}") from None
    except OSError as error:  # no directory in use: a file system without locks, for one
        os.close(lock)
        raise OSError(error.errno, f"cannot lock: {error.strerror}", str(path)) from error
    with suppress(OSError):  # it is for operators only, and the disk may be full
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def unlock_file(lock: int) -> None:
    """Unlocks it. The process's id is removed first: another process may get the same one later."""
    with suppress(OSError):
        os.ftruncate(lock, 0)
    os.close(lock)


def write_flushed(path: Path, text: str, mode: int = 0o666) -> None:
    """Replaces a file by one with this text, durably. Raises OSError.

    Args: mode: its permissions, of which the process's mask takes some.
    """
    temporary = path.with_suffix(".new")
    try:
        temporary.unlink(missing_ok=True)  # it may have other permissions
        with open(
            temporary, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)
        ) as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        _fsync_directory(path.parent)
    except OSError as error:
        if error.filename is None:  # a write's error names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _fsync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
