"""Builds the optional C extension beside its source, where there is a C compiler: `make extension`.

Says in one line what came of it; without a compiler, or Python's headers, the broker runs as Python alone.
Uses nothing but the standard library: a wheel's build and the tests with sanitizers use it too.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "_fast_path"
SOURCE = Path("lockstep", "broker", "produce", "fast_path.c")
OPTIONS = ("-std=c11", "-O2", "-g0", "-fPIC", "-fno-strict-aliasing", "-Wall", "-Wextra")
"""No debugging information: it names the folder of the build, also where Python was built with it."""


class CannotBuild(Exception):
    """The text says why, in one line."""


def file_name() -> str:
    """The extension's, for this interpreter."""
    return f"{NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"


def build(target: Path, root: Path = ROOT, options: Sequence[str] = ()) -> Path:
    """Compile it into a folder; its path. `options`: more of the compiler's. Raises CannotBuild."""
    digest = runpy.run_path(str(root / "lockstep" / "extension.py"))["source_digest"](root / SOURCE)
    compiler = shlex.split(os.environ.get("LDSHARED") or sysconfig.get_config_var("LDSHARED") or "cc -shared")
    found, unfinished = target / file_name(), target / f"{file_name()}.{os.getpid()}"
    command = [*compiler, *OPTIONS, *options, f"-I{sysconfig.get_path('include')}"]
    command += [f'-DSOURCE_DIGEST="{digest}"', str(SOURCE), "-o", str(unfinished)]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotBuild(f"no C compiler: {compiler[0]}: {error.strerror}") from None
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [f"{compiler[0]} failed"]
        raise CannotBuild(lines[0].strip())
    os.replace(unfinished, found)  # a broker may have the former one open
    return found


def main(words: Sequence[str] | None = None) -> int:
    """The command: 0 also where nothing can be built, unless it is `--required`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--required", action="store_true", help="fail where it cannot be built")
    arguments = parser.parse_args(words)
    try:
        build(ROOT / SOURCE.parent)
    except CannotBuild as error:
        print(f"The Produce path runs as pure Python: its C extension cannot be built ({error}).")
        return int(arguments.required)
    print("The Produce path is compiled; LOCKSTEP_PURE=1 runs it as pure Python.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
