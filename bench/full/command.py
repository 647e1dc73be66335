"""`python -m bench full`: the whole grid from workload files, a row a cell, until nothing remains.

Owns: the command line, visits and the order of sessions in each, and the report of the remaining cells. A
visit is one workload on one number of nodes: fresh brokers, one alive at a time, rounds mirrored (ABBA), only
cells that have no row; its rows are written when its last round is over, so a run that is ended loses one
visit at most. A target that cannot be started here is a named skip: its cells remain. Rows of quick runs
never stand beside these. A table is of one machine: one that was begun on another is begun again. Exit
status: 0; 1 while a chosen cell's row is a failure (it has the error, and is measured again with `--again`)
or a table could not be begun again; 2 for words that cannot be met.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench import argument_types
from bench.baselines.targets import BROKERS, TARGETS, Broker, session_of
from bench.exit_status import EXIT_FAILED, log_progress, report_failures
from bench.figures.origins import MixedMachines
from bench.full.cells import DIRECTORY, BadWorkload, Cell, Workload, cells_of, read_all
from bench.full.rows import Rows, failures_of
from bench.full.work import AnySession, measure
from bench.kept import LOCAL_RESULTS
from bench.kinds.headline import ONE_FULL, ONE_QUICK, THREE_FULL
from bench.machine import memory
from bench.machine.device import NoBlockDevice
from bench.machine.facts import Origin, machine_facts
from bench.sessions.children import run_child
from bench.sessions.jobs import FAILURES, Block, RoundFailed
from bench.settings import NODES, Sizes
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.probe import HOST, answers
from compat_tests.targets import ROOT

RESULTS = ROOT / "bench" / "results" / "full"
REBALANCES = 3
"""Of the kind "groups", in each round."""


@dataclass(frozen=True)
class Visit:
    """One workload on one number of nodes: the cells that have no row yet."""

    workload: Workload
    nodes: int
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        return f"{self.workload.name} on {self.nodes} node(s), {len(self.cells)} cells"


class Measured:
    """The results of a visit: blocks by cell, and failures; writes the rows."""

    def __init__(self, rows: Rows, facts: dict[str, Any], rounds: int) -> None:
        self.rows = rows
        self.failed_cells: set[str] = set()
        """By name; what is wrong with each is in its row."""
        self._facts = facts
        self._rounds = rounds
        self._blocks: dict[str, list[Block]] = {}

    def found(self, cell: Cell, block: Block) -> None:
        """One round's block of a cell; an unproven one is an error, and the last one makes the row."""
        if not block.get("proven", True):
            self.failed(cell, f"not proven durable: {block['flushes_needed']} flushes are needed at least")
            return
        blocks = self._blocks.setdefault(cell.name, [])
        blocks.append(block)
        if len(blocks) == self._rounds:
            self.rows.write(cell, self._facts, blocks)

    def has_row(self, cell: Cell) -> bool:
        """True if all of its rounds are there."""
        return len(self._blocks.get(cell.name, ())) == self._rounds

    def failed(self, cell: Cell, error: str) -> None:
        """It is not measured any more in this visit; what was wrong first is its row."""
        if cell.name not in self.failed_cells:
            self.failed_cells.add(cell.name)
            self.rows.write(cell, self._facts, [], error)


def visits_of(workloads: Sequence[Workload], rows: Rows, again: bool) -> list[Visit]:
    """The remaining visits, in order."""
    found = []
    for workload in workloads:
        for nodes in workload.nodes:
            missing = tuple(cell for cell in cells_of(workload, nodes) if rows.is_missing(cell, again))
            if missing:
                found.append(Visit(workload, nodes, missing))
    return found


def plan(cells: Sequence[Cell], rounds: int) -> list[tuple[int, Broker]]:
    """(round, broker) of each session, each second round mirrored."""
    targets = {cell.target for cell in cells}
    one = [broker for broker in BROKERS if targets & set(broker.targets.values())]
    return [(number, each) for number in range(rounds) for each in (one if number % 2 == 0 else one[::-1])]


def available(visit: Visit) -> Visit:
    """The visit without the cells of targets that cannot be started here; prints which, and the reasons."""
    if visit.workload.kind == "command":
        return visit
    absent = {broker.name: broker.missing() for _, broker in plan(visit.cells, 1)}
    for name, why in absent.items():
        if why:
            log_progress(f"  SKIPPED {name}: {why}")
    here = tuple(cell for cell in visit.cells if not absent[TARGETS[cell.target].name])
    return replace(visit, cells=here)


def on_one_machine(visit: Visit, rows: Rows, machine: dict[str, Any]) -> Visit:
    """The visit, and with it all of its table that was measured on another machine: that is forgotten.

    Raises MixedMachines where some of it is not to be measured now.
    """
    cells_of_other_machines = rows.cells_of_other_machines(visit.workload.name, visit.nodes, machine)
    if not cells_of_other_machines:
        return visit
    names = cells_of_other_machines | {cell.name for cell in visit.cells}
    cells = tuple(cell for cell in cells_of(visit.workload, visit.nodes) if cell.name in names)
    whole = available(replace(visit, cells=cells))
    if left := sorted(cells_of_other_machines - {cell.name for cell in whole.cells}):
        raise MixedMachines(
            f"{visit.workload.name}: {left[0]} was measured elsewhere, and a table is of one machine: "
            "measure all of it, or use another --out"
        )
    rows.forget(whole.cells)
    log_progress(
        f"  {visit.workload.name} was begun on another machine: "
        f"{len(cells_of_other_machines)} cells are measured again"
    )
    return whole


def run_visit(visit: Visit, rows: Rows, sizes: Sizes, parent: Path) -> None:
    """Measure every cell of it and write the rows, of failures as well."""
    origin = Origin(parent)
    if visit.workload.kind == "command":
        _run_command(visit.cells[0], rows, origin.facts, parent)
        return
    memory_kept = {} if rows.quick else memory.kept(parent)
    measured = Measured(rows, {**origin.facts, "memory_kept": memory_kept}, visit.workload.rounds)
    for number, broker in plan(visit.cells, visit.workload.rounds):
        log_progress(f"[{time.strftime('%H:%M:%S')}] {visit}: {broker.name}, round {number + 1}")
        session = session_of(broker, visit.nodes, sizes, parent)
        mine = [cell for cell in visit.cells if cell.target in broker.targets.values()]
        try:
            session.open()
            _measure_cells(session, mine, number, measured)
        except FAILURES as error:
            log_progress(f"  FAILED: {error}\n{session.log_tail()}")
            for cell in mine:
                if not measured.has_row(cell):
                    measured.failed(cell, f"{broker.name} failed: {error}")
        finally:
            session.close()
        for problem in origin.problems():
            for cell in mine:
                measured.failed(cell, problem)


def _measure_cells(session: AnySession, cells: Sequence[Cell], number: int, measured: Measured) -> None:
    policy_of = {target: policy for policy, target in session.broker.targets.items()}
    for place, cell in enumerate(cells):
        if cell.name in measured.failed_cells:
            continue
        if place and not session.broker.keeps:
            session.start_anew()

        def keep(data: bytes, cell: Cell = cell) -> dict[str, Any]:
            return measured.rows.write_raw(cell, number, data)

        try:
            measured.found(cell, measure(session, cell, policy_of[cell.target], keep))
        except RoundFailed as error:
            log_progress(f"  FAILED: {cell}: {error}")
            measured.failed(cell, str(error))
            if not answers(HOST, session.target.port, timeout_s=5.0):
                raise


def _run_command(cell: Cell, rows: Rows, facts: dict[str, Any], parent: Path) -> None:
    """One of the project's own comparisons; its row has its whole result."""
    words = [*cell.workload.command, *(["--quick"] if rows.quick else [])]
    command = [sys.executable, "-m", "bench", *words, "--directory", str(parent)]
    with tempfile.TemporaryDirectory(prefix="bench-full-") as scratch:
        log_progress(f"[{time.strftime('%H:%M:%S')}] {cell}: python -m bench {' '.join(words)}")
        memory.let_go()
        status = run_child([*command, "--out", scratch], ROOT)
        kept = sorted(Path(scratch).glob("*.json"))
        if not kept:
            error = f"python -m bench {cell.workload.command[0]} ended with {status} and no result"
            rows.write(cell, facts, [], error)
            return
        result = json.loads(kept[-1].read_text())
    figures = {row["ratio"]: row["value"] for row in result.get("comparison", []) if row["value"]}
    missed = [row["ratio"] for row in result.get("comparison", []) if row.get("met") is False]
    block = {"name": str(cell), "figures": figures, "proven": True, "missed": missed, "result": result}
    failures = [str(failure) for failure in result.get("failures", [])]
    if not failures and status == EXIT_FAILED:
        failures = [f"python -m bench {cell.workload.command[0]} ended with {status}"]
    block["failures"] = failures
    rows.write(cell, facts, [block])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench full", description=__doc__)
    parser.add_argument("--list", action="store_true", help="what there is and what remains; measure nothing")
    parser.add_argument("--limit", type=argument_types.limit, help="end after so many visits")
    parser.add_argument("--only", action="append", metavar="WORKLOAD", help="default: all")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--nodes", type=int, choices=(1, NODES), action="append", help="default: all")
    parser.add_argument("--again", action="store_true", help="cells that failed before, too")
    parser.add_argument("--quick", action="store_true", help="hardly any warm-up: whether it works")
    parser.add_argument(
        "--workloads",
        type=argument_types.existing_directory,
        default=DIRECTORY,
        help="directory of the files",
    )
    argument_types.add_directories(parser, None, "of the rows; quick runs have one of their own")
    return parser


def _select_workloads(options: argparse.Namespace) -> list[Workload]:
    """The workloads as the command line narrows them. BadWorkload."""
    found = read_all(options.workloads)
    if not found:
        raise BadWorkload(f"no workload in {options.workloads}")
    if unknown := sorted(set(options.only or ()) - {workload.name for workload in found}):
        raise BadWorkload(f"--only {', '.join(unknown)}: no such workload; see --list")
    chosen = []
    for workload in found:
        if options.only and workload.name not in options.only:
            continue
        if options.target and workload.kind == "command":
            continue  # a whole comparison has its own sides
        nodes = tuple(each for each in workload.nodes if not options.nodes or each in options.nodes)
        targets = tuple(each for each in workload.targets if not options.target or each in options.target)
        if nodes and targets:
            chosen.append(replace(workload, nodes=nodes, targets=targets))
    return chosen


def main(arguments: Sequence[str]) -> int:
    """List or measure; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    rows = Rows(options.out or (LOCAL_RESULTS / "full-quick" if options.quick else RESULTS), options.quick)
    try:
        workloads = _select_workloads(options)
    except BadWorkload as error:
        parser.error(str(error))
    if options.list:
        print(list_visits(workloads, rows))
        return 0
    parent = argument_types.directory_of(options)
    visits = visits_of(workloads, rows, options.again)
    done = left_out = 0
    for visit in visits:
        if options.limit is not None and done >= options.limit:
            break
        here = available(visit)
        if not here.cells:
            continue
        sizes = ONE_QUICK if options.quick else ONE_FULL if visit.nodes == 1 else THREE_FULL
        sizes = replace(sizes, rebalances=REBALANCES)  # the headline has none
        try:
            here = on_one_machine(here, rows, machine_facts(parent))
            run_visit(here, rows, sizes, parent)
        except MixedMachines as error:
            log_progress(f"  SKIPPED {error}")
            left_out = EXIT_FAILED
        except (NoBlockDevice, ToolchainMissing) as error:
            log_progress(f"cannot measure here: {error}")
            return EXIT_FAILED
        done += 1
        log_progress(remaining_cells(workloads, rows))
    status = report_failures(failures_among(workloads, rows))
    log_progress(f"{remaining_cells(workloads, rows)}; rows: {os.path.relpath(rows.directory)}")
    return status or left_out


def _all_cells(workloads: Sequence[Workload]) -> list[Cell]:
    return [cell for workload in workloads for nodes in workload.nodes for cell in cells_of(workload, nodes)]


def failures_among(workloads: Sequence[Workload], rows: Rows) -> list[str]:
    """The failures in the rows of these cells."""
    found = [(cell, rows.row(cell)) for cell in _all_cells(workloads)]
    return [f"{cell}: {failure}" for cell, row in found if row is not None for failure in failures_of(row)]


def remaining_cells(workloads: Sequence[Workload], rows: Rows) -> str:
    """The number of cells without a row, in a line."""
    found = [rows.row(cell) for cell in _all_cells(workloads)]
    missing = found.count(None)
    failed = sum(row is not None and bool(failures_of(row)) for row in found)
    and_failed = f", {failed} of them failed (--again)" if failed else ""
    return f"{len(found) - missing} of {len(found)} cells are there{and_failed}, {missing} remain"


def list_visits(workloads: Sequence[Workload], rows: Rows) -> str:
    """A line for each visit, and the sum."""
    lines = []
    for workload in workloads:
        for nodes in workload.nodes:
            cells = cells_of(workload, nodes)
            found = [rows.row(cell) for cell in cells]
            there = sum(row is not None for row in found)
            failed = sum(row is not None and bool(failures_of(row)) for row in found)
            lines.append([workload.name, nodes, len(cells), there, failed or "", workload.about])
    heads = ["workload", "nodes", "cells", "there", "failed", "what it is"]
    return f"{tabulate(lines, headers=heads)}\n\n{remaining_cells(workloads, rows)}"
