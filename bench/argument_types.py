"""The argument types of a benchmark's command line, and the words again from chosen values.

Unusable arguments are rejected before anything is measured.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

MOST_ROUNDS = 1000


def count(text: str) -> int:
    """A count: 1 and up."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 and up")
    return number


def limit(text: str) -> int:
    """A limit: 0 and up."""
    return 0 if text == "0" else count(text)


def rounds(text: str) -> int:
    """A number of sessions: few enough to end this year."""
    number = count(text)
    if number > MOST_ROUNDS:
        raise argparse.ArgumentTypeError(f"{text} rounds are more than {MOST_ROUNDS}")
    return number


def positive(text: str) -> float:
    """A duration or a rate: above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def heap(text: str) -> str:
    """A size as Java's -Xmx takes it."""
    if not re.fullmatch(r"[1-9]\d*[kKmMgG]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size as in 512M or 1G")
    return text


def add_directories(parser: argparse.ArgumentParser, out: Path | None, holds: str) -> None:
    """`--out` and `--directory`. Args: out: what `--out` is if nothing is said; holds: its words of help."""
    parser.add_argument("--out", type=results, default=out, help=f"directory {holds}")
    add_directory(parser)


def add_directory(parser: argparse.ArgumentParser) -> None:
    """`--directory`."""
    parser.add_argument("--directory", type=existing_directory, help="where data directories are made")


def directory_of(options: argparse.Namespace) -> Path:
    """The value of `--directory`, or the system's temporary directory."""
    found: Path = options.directory or Path(tempfile.gettempdir())
    return found


def existing_directory(text: str) -> Path:
    """A directory that is there, in which others can be made."""
    path = Path(text)
    if not text or not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {text}")
    try:
        Path(tempfile.mkdtemp(dir=path)).rmdir()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be written to: {error.strerror}") from error
    return path


def results(text: str) -> Path:
    """A directory for results, which need not be there yet."""
    path = Path(text)
    if not text or path.exists():
        return existing_directory(text)
    first = next(each for each in (*reversed(path.parents), path) if not each.exists())
    try:
        first.mkdir()
        first.rmdir()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be made: {error.strerror}") from error
    return path


def tree(text: str) -> Path:
    """Another source tree of this project."""
    path = Path(text)
    if not (path / "lockstep" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no source tree: it has no lockstep/__init__.py")
    return path


def words(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """The chosen options as words of a command line, but for paths, which are not kept.

    A switch that is off and whatever is empty are left out, as is what the command does not have.
    """
    found: list[str] = []
    for name in names:
        value = getattr(options, name, None)
        if value is True:
            found.append(f"--{name}")
        else:
            values = value if isinstance(value, list | tuple) else [value] if value else []
            found += [word for each in values for word in (f"--{name}", str(each))]
    return found
