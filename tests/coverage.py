"""Every pure module's own mirror test takes all of its branches (`python -m tests.coverage [PREFIX ...]`).

Owns: which test mirrors a module (`storage/log/segment_scan.py`: `tests/storage/log/test_segment_scan.py`),
the measurement, and the modules that are not there yet. Each mirror test runs alone, in a process that has
imported nothing of ours before, so that no other test lends it a branch; the processes are forked from a
server that has pytest loaded, and no threads: the fork of a process with threads may wait for ever for a lock
that one held. A module without branches needs no mirror: there is nothing to decide in it, and whoever uses
it shows what it holds. No comment takes a line out of the count. Does not: say that a covered branch is a
tested one; that is for who reads the test.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import coverage
import hypothesis
import pytest

from tests import tidy

SHORT_OF = {
    "broker/groups/classic_group.py": 98,
    "protocol/compiler.py": 96,
    "protocol/records/batch.py": 98,
    "protocol/records/compression.py": 99,
}
"""Modules that are not fully covered yet: percent of lines and branches that the mirror test takes. It is
exactly what is measured, so a gain is kept: who brings one higher raises it here, or strikes it off at 100.
To lower one is a change of this file. storage/ has none and gets none."""

PRELOADED = ("pytest_asyncio.plugin", "pytest_timeout", "hypothesis.strategies", "_hypothesis_pytestplugin")
"""What every run of pytest here needs: imported once, before the processes are forked."""

PASSED_OVER = {
    "protocol/compiler.py": "not test_every_prefix_and_every_tail and not test_noise_raises_nothing_but",
}
"""Tests of a mirror that would take a minute here, as pytest's -k says it; the others take every branch."""

EXCLUDED = r"^\s*if TYPE_CHECKING:"
"""The only code that is not meant to run."""


@dataclass(frozen=True)
class Measured:
    """One module under its mirror test."""

    module: str
    mirror: str
    """The test's path, empty where there is none."""
    branches: int
    missing: tuple[str, ...]
    """Branches as "from->to" (to: a line, or "exit"), and lines that never ran."""
    percent: int
    """Of lines and branches, rounded down: 100 is all of them."""
    failure: str
    """What pytest said, where the mirror test does not pass."""
    least: int = 100

    @property
    def proven(self) -> bool:
        nothing_to_prove = not self.mirror and not self.branches
        return not self.failure and (nothing_to_prove or self.percent >= self.least)


def pure_modules(root: Path, pure: Sequence[str] = tidy.PURE) -> list[str]:
    """The modules that tidy calls pure, as paths from the root; a folder stands for all that is in it."""
    found: set[str] = set()
    for name in pure:
        paths = (root / name).rglob("*.py") if name.endswith("/") else [root / name]
        found |= {path.relative_to(root).as_posix() for path in paths}
    return sorted(found)


def mirror_of(module: str) -> str:
    """The mirror test's path; a package's `__init__` has one with the package's name."""
    path = Path(module)
    if path.name == "__init__.py":
        path = path.parent
    return (Path("tests") / path.parent / f"test_{path.stem}.py").as_posix()


def measure(root: Path, module: str) -> Measured:
    """Run a module's mirror test, alone, under branch coverage. To be called in a process of its own."""
    os.chdir(root)
    sys.path.insert(0, str(root))
    # A branch that only luck takes is not covered: few examples, always the same.
    hypothesis.settings.register_profile(
        "few", max_examples=10, derandomize=True, database=None, deadline=None
    )
    hypothesis.settings.load_profile("few")
    mirror = mirror_of(module)
    measurement = coverage.Coverage(
        branch=True, data_file=None, include=[str(root / module)], config_file=False, messages=False
    )
    measurement.clear_exclude()
    measurement.clear_exclude("partial")
    measurement.exclude(EXCLUDED)
    failure = ""
    if (root / mirror).exists():
        measurement.start()
        failure = _passes(mirror, PASSED_OVER.get(module, ""))
        measurement.stop()
    else:
        mirror = ""
    measurement.get_data().add_arcs({str(root / module): set()})  # counted where nothing ran, too
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        measurement.json_report([str(root / module)], outfile=report.name)
        (each,) = json.load(report)["files"].values()
    summary = each["summary"]
    missing = [f"{a}->{b if b > 0 else 'exit'}" for a, b in each["missing_branches"]]
    missing += [f"line {line}" for line in each["missing_lines"]]
    percent, least = int(summary["percent_covered"]), SHORT_OF.get(module, 100)
    return Measured(module, mirror, summary["num_branches"], tuple(missing), percent, failure, least)


def _passes(mirror: str, wanted: str) -> str:
    """Run one test file; what pytest printed, where it does not pass."""
    arguments = ["-q", "-x", "--assert=plain", "--confcutdir=tests", "-m", "not java", "-k", wanted, mirror]
    arguments += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        os.dup2(output.fileno(), 1)  # this process has nothing else to say there
        os.dup2(output.fileno(), 2)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = pytest.main(arguments)
        output.seek(0)
        return output.read() or f"pytest's exit status is {status}" if status else ""


def measure_all(root: Path, modules: Sequence[str], processes: int) -> list[Measured]:
    """Each module in a fresh process, so many at a time; in the modules' order."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *PRELOADED])
    with context.Pool(processes, maxtasksperchild=1) as pool:
        return pool.starmap(measure, [(root, module) for module in modules], chunksize=1)


def complaints(measured: Measured) -> list[str]:
    """What is wrong with one module's coverage, in words."""
    found = []
    if measured.failure:
        found.append(f"{measured.module}: {measured.mirror} does not pass:\n{measured.failure}")
    elif not measured.proven:
        why = measured.mirror or f"no {mirror_of(measured.module)}"
        found.append(f"{measured.module}: {measured.percent} % of {measured.least} % ({why})")
    elif measured.least < measured.percent == 100:
        found.append(f"{measured.module}: fully covered; strike it off SHORT_OF")
    elif measured.least < measured.percent:
        found.append(f"{measured.module}: {measured.percent} %; raise its {measured.least} % in SHORT_OF")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per module; the exit status says whether one is below what it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__.partition("\n")[0])
    parser.add_argument("prefixes", nargs="*", metavar="PREFIX", help="only modules whose path begins so")
    parser.add_argument("--json", action="store_true", help="one object per module, in a list")
    parser.add_argument("--quiet", action="store_true", help="only what is wrong, and a last line")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    prefixes = tuple(options.prefixes) or ("",)
    modules = [name for name in pure_modules(tidy.ROOT) if name.startswith(prefixes)]
    if not modules:
        parser.error("no pure module begins so")
    results = measure_all(tidy.ROOT, modules, options.processes)
    wrong = [line for each in results for line in complaints(each)]
    if options.json:
        print(json.dumps([asdict(each) | {"proven": each.proven} for each in results], indent=1))
        print("\n".join(wrong), file=sys.stderr)
    else:
        _print(results, wrong, options.quiet)
    return 1 if wrong else 0


def _print(results: Sequence[Measured], wrong: Sequence[str], quiet: bool) -> None:
    if not quiet:
        width = max(len(each.module) for each in results)
        print(f"{'module':{width}}  branches  percent  missing")
        for each in results:
            said = " ".join(each.missing) if each.mirror else "no mirror test"
            if not each.branches and not each.mirror:
                said = "no branches, " + said
            print(f"{each.module:{width}}  {each.branches:8}  {each.percent:7}  {said}".rstrip())
    for line in wrong:
        print(line)
    with_branches = [each for each in results if each.branches]
    full = sum(each.percent == 100 for each in with_branches)
    branches = sum(each.branches for each in results)
    print(
        f"{full} of {len(with_branches)} modules with {branches} branches fully covered by their mirror tests"
    )


if __name__ == "__main__":
    sys.exit(main())
