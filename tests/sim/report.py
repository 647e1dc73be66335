"""What is printed of a run: seed and options before; faults, hash, times and the repeating command after."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from tests.sim.options import Options, described
from tests.sim.run import Outcome


def command(outcome: Outcome, overrides: Mapping[str, object]) -> str:
    """What runs the same again."""
    words = ["python", "-m", "tests.sim", "--seed", str(outcome.seed), "--workload", outcome.workload]
    if outcome.plant:
        words += ["--plant", outcome.plant]
    for name, value in overrides.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)


def before(seed: int, workload: str, options: Options) -> Iterator[str]:
    """What the seed has drawn."""
    yield f"seed {seed}, workload {workload}"
    yield "options " + "; ".join(described(options))


def after(outcome: Outcome, overrides: Mapping[str, object]) -> Iterator[str]:
    """What came of it."""
    total = sum(outcome.faults.values())
    kinds = ", ".join(f"{kind} {count}" for kind, count in outcome.faults.items())
    if outcome.joined:
        yield f"joined files {outcome.joined}"
    yield f"faults {total} of {len(outcome.faults)} kinds: {kinds}"
    yield f"trace hash = {outcome.trace_hash}"
    pace = outcome.simulated_s / max(outcome.cpu_s, 1e-9)
    yield (
        f"simulated {outcome.simulated_s:.1f} s, {outcome.events} events, in {outcome.wall_s:.2f} s "
        f"({pace:.0f} simulated seconds a second of one core)"
    )
    if outcome.rule:
        yield "the last events:"
        yield from outcome.tail
        yield f"VIOLATION {outcome.violation}"
    yield f"again: {command(outcome, overrides)}"
