"""One seed: which workload and options it means, its run, and what came of it."""

from __future__ import annotations

import importlib
import importlib.util
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from lockstep.storage import snapshot_transfer
from tests.sim.checks import standard_checks
from tests.sim.faces import Plant, Violation, Workload
from tests.sim.options import Options, draw, override
from tests.sim.plain import PlainWorkload
from tests.sim.trace import Trace
from tests.sim.workloads import WORKLOADS
from tests.sim.world import World, buried

TAIL_LINES = 60


@dataclass
class Outcome:
    """What one run showed."""

    seed: int
    workload: str
    options: Options
    plant: str = ""
    trace_hash: str = ""
    events: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Seconds of one core: what the pace is measured by on a machine that does other things as well."""
    faults: dict[str, int] = field(default_factory=dict)
    joined: int = 0
    """Files that were joined into others."""
    rule: str = ""
    """The rule that was broken; empty where none was."""
    violation: str = ""
    tail: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def workloads() -> dict[str, type[Workload]]:
    """All there are, by name."""
    return {**WORKLOADS, PlainWorkload.name: PlainWorkload}


def plants() -> dict[str, Plant]:
    """All there are, by name."""
    if importlib.util.find_spec("tests.sim.plants") is None:
        return {}
    found: dict[str, Plant] = importlib.import_module("tests.sim.plants").PLANTS
    return found


def drawn(
    seed: int, workload: str | None, overrides: Mapping[str, object], plant: Plant | None
) -> tuple[type[Workload], Options]:
    """What a seed means: the drawn, then what workload and plant fix, then what the caller says."""
    random = Random(f"{seed}/options")
    known = workloads()
    drawable = sorted(name for name in known if name != PlainWorkload.name) or [PlainWorkload.name]
    name = random.choice(drawable)
    options = draw(random)
    name = workload or (plant.workload if plant is not None else None) or name
    if name not in known:
        raise ValueError(f"no workload {name!r}; there are {', '.join(sorted(known))}")
    kind = known[name]
    options = override(options, kind.overrides)
    if plant is not None:
        options = override(options, plant.overrides)
    return kind, override(options, overrides)


def run_seed(
    seed: int,
    workload: str | None = None,
    overrides: Mapping[str, object] | None = None,
    plant: Plant | None = None,
    show: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed to its end or its first violation. `show` is called with every line of the trace."""
    kind, options = drawn(seed, workload, overrides or {}, plant)
    outcome = Outcome(seed, kind.name, options, plant.name if plant is not None else "")
    started, started_cpu = time.perf_counter(), time.process_time()
    chunks = patch.object(snapshot_transfer, "CHUNK_BYTES", options.chunk_bytes)
    with plant.apply() if plant is not None else nullcontext(), buried(), chunks:
        _run(outcome, kind, Trace(show))
    outcome.wall_s = time.perf_counter() - started
    outcome.cpu_s = time.process_time() - started_cpu
    return outcome


def _run(outcome: Outcome, kind: type[Workload], trace: Trace) -> None:
    """Run the world of an outcome and fill in what it showed."""
    world: World | None = None
    try:
        world = World(outcome.seed, outcome.options, kind, standard_checks, trace)
        world.run()
    except Violation as violation:
        outcome.rule, outcome.violation = violation.rule, _told(violation)
    except Exception:  # a check or the world itself is at fault; the campaign goes on
        outcome.rule, outcome.violation = "the simulator runs", traceback.format_exc().rstrip()
    if outcome.rule:
        outcome.tail = trace.tail(TAIL_LINES)
    outcome.trace_hash = trace.hexdigest()
    outcome.events = trace.count
    if world is not None:
        outcome.simulated_s = world.now_s
        outcome.joined = world.joined
        outcome.faults = {name: count for name, count in sorted(world.nemesis.counts.items()) if count}


def _told(violation: Violation) -> str:
    cause = violation.__cause__
    if cause is None:
        return str(violation)
    return f"{violation}\n" + "".join(traceback.format_exception(cause)).rstrip()
