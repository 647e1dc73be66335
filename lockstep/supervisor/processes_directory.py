"""The directory of `lockstep serve --processes N`: its lock, the number of nodes, the nodes' directories.

Holds `.lock` (as a node's directory does), `processes.properties` (format and number), and `node-K` for each
node. Invariants: the number is on the disk before the first node starts; a directory with other data, or with
nodes that this command would leave out, is rejected and stays as it is. Does not: look into a node's
directory beyond its `meta.properties`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lockstep.broker.node.data_directory import (
    META_NAME,
    PROCESSES_NAME,
    WrongDirectory,
    describe_os_error,
    is_removed,
    lock_file,
    unlock_file,
    write_flushed,
)
from lockstep.broker.node.properties_file import parse_number, read_properties
from lockstep.protocol.printable import escape_unprintable
from lockstep.storage.types import NewerFormat

FORMAT: Final = 1


class ProcessesDirectory:
    """A locked directory. `close` unlocks it.

    Args:
        nodes: the nodes' directories within it, in order.
    Raises DirectoryInUse, WrongDirectory, NewerFormat, OSError.
    """

    def __init__(self, path: Path, nodes: Sequence[Path]) -> None:
        if path.exists() and not path.is_dir():
            raise WrongDirectory(f"{path} is a file, not a directory")
        _check_no_other_data(path)
        path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_file(path / ".lock")
        try:
            _check_number(path, nodes)
            for node in nodes:
                node.mkdir(exist_ok=True)
            text = f"format={FORMAT}\nprocesses={len(nodes)}\n"
            record = path / PROCESSES_NAME
            if not record.exists() or record.read_text(encoding="utf-8") != text:
                write_flushed(record, text)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock it."""
        unlock_file(self._lock)


def recorded_number(path: Path) -> int:
    """The number of nodes at the last start; 0 for a new directory. Raises WrongDirectory, NewerFormat."""
    record = path / PROCESSES_NAME
    try:
        fields = read_properties(record)
    except FileNotFoundError:
        return 0
    except (ValueError, OSError) as error:
        text = describe_os_error(error) if isinstance(error, OSError) else str(error)
        raise WrongDirectory(f"{record} cannot be read: {escape_unprintable(text)}") from None
    form, number = parse_number(fields.get("format", "")), parse_number(fields.get("processes", ""))
    if form is not None and form > FORMAT:
        raise NewerFormat(f"{record} has format {form}; this version of Lockstep knows up to {FORMAT}")
    if form is None or not number:
        raise WrongDirectory(f"{record} was not written by Lockstep; choose another data directory")
    return number


def _check_no_other_data(path: Path) -> None:
    """Raises WrongDirectory."""
    if (path / META_NAME).exists():
        raise WrongDirectory(
            f"{path} has the data of a broker that runs alone, which several processes do not take over: "
            "start it without --processes, or choose another data directory (--data-dir, or make "
            "serve DATA_DIR=)"
        )
    if any(path.glob(f"[0-9]*/{META_NAME}")):
        raise WrongDirectory(
            f"{path} holds the nodes of `make cluster`; choose another data directory (--data-dir)"
        )


def _check_number(path: Path, nodes: Sequence[Path]) -> None:
    """Raises WrongDirectory, NewerFormat."""
    recorded = recorded_number(path)
    if not recorded:
        if any(path.glob(f"node-*/{META_NAME}")):
            raise WrongDirectory(f"{path} has the directories of nodes, but no {PROCESSES_NAME}")
        return
    for number in range(len(nodes) + 1, recorded + 1):
        if not is_removed(nodes[0].with_name(f"node-{number}")):
            raise WrongDirectory(
                f"{path} has the data of {recorded} processes: start it with --processes {recorded}. For "
                f"fewer, run `lockstep cluster remove {recorded}` while all run, which moves the node's "
                "records to the others"
            )
    for node in nodes[:recorded]:
        if not node.is_dir():
            raise WrongDirectory(
                f"{node} is missing: the only copy of the records of its partitions is there. Bring it back, "
                "or choose another data directory (--data-dir)"
            )
