"""`python -m tests.campaigns.linearizable --histories 1000`: are conditional appends linearizable.

A history is a fresh topic with locks and a dozen clients who append to its partitions under conditions, read,
and lag behind each other, while nodes die by kill -9 or stand still and log groups get other leaders. In the
end the topic is read: it has what was acknowledged, once, and nothing that was refused. Then porcupine looks
for an order of all operations that the rules explain (`porcupine/model.go`): every acceptance, and the reason
of every refusal, must be right at one instant between its call and its answer. Refusals that say they rest
on an estimate are counted.

`--control` plants each mistake of `lock_sabotage` into a single node; porcupine must find all of them, and
nothing where there is none.

Prints JSON; ends with 1 where a history is not linearizable or could not be judged, or a plant was not
found; with 2 without Go. Adds to docs/evidence/linearizable.json (`--no-evidence`: not), round by round;
`--resume` counts what is recorded there for this source. What failed is kept in .cache/linearizable.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import TargetFailed
from tests.campaigns import conditional_history, evidence
from tests.campaigns.brokers import raise_on_term
from tests.campaigns.conditional_rounds import Options, run_round
from tests.campaigns.lock_sabotage import PLANTS

NAME: Final = "linearizable"
ROUND: Final = 50
"""Histories of one cluster."""
CONTROL_HISTORIES: Final = 10
CONTROL_OPERATIONS: Final = 300


def control(plant: str | None, seed: int) -> dict[str, Any]:
    """How soon porcupine sees a plant."""
    options = Options(CONTROL_HISTORIES, CONTROL_OPERATIONS, seed, nodes=1, lanes=1, plant=plant)
    outcome = run_round(options)
    return {"histories": sum(outcome.verdicts.values()), "illegal": outcome.verdicts["Illegal"]}


def main(words: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.linearizable", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--operations", type=int, default=1000, help="of each history")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=3)
    parser.add_argument("--lanes", type=int, default=6, help="histories at a time")
    parser.add_argument("--seed", type=int, help="of the first round; default: drawn")
    parser.add_argument("--resume", action="store_true", help="count what is recorded for this source")
    parser.add_argument("--control", action="store_true", help="planted mistakes")
    parser.add_argument("--plant", choices=PLANTS, action="append", help="only these")
    parser.add_argument("--no-evidence", action="store_true")
    options = parser.parse_args(words)
    raise_on_term()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    try:
        conditional_history.program()
        return _controls(options, seed) if options.control else _histories(options, seed)
    except ToolchainMissing as missing:
        print(missing, file=sys.stderr)
        return 2


def _controls(options: argparse.Namespace, seed: int) -> int:
    plants = {name: control(name, seed) for name in options.plant or PLANTS}
    whole = control(None, seed)
    figures = {
        "seed": seed,
        "operations_of_a_history": CONTROL_OPERATIONS,
        "without_a_plant": whole,
        "plants": plants,
    }
    print(json.dumps(figures))
    if not options.no_evidence:
        evidence.add_run(NAME, figures)
    is_seen = all(each["illegal"] for each in plants.values())
    return 0 if is_seen and whole == {"histories": CONTROL_HISTORIES, "illegal": 0} else 1


def _histories(options: argparse.Namespace, seed: int) -> int:
    left, ended = options.histories, 0
    if options.resume:
        left -= _recorded(options.operations, options.nodes)
    while left > 0 and not ended:
        began = time.monotonic()
        wanted = Options(min(left, ROUND), options.operations, seed, options.nodes, options.lanes)
        try:
            outcome = run_round(wanted)
        except TargetFailed as failed:
            print(failed, file=sys.stderr)
            return 1
        figures = {
            "seed": seed,
            "nodes": options.nodes,
            "operations_of_a_history": options.operations,
            **outcome.figures(),
            "seconds": round(time.monotonic() - began, 1),
        }
        print(json.dumps(figures), flush=True)
        if not options.no_evidence:
            evidence.add_run(NAME, figures)
        ended = 1 if outcome.problems else 0
        left -= wanted.histories
        seed += 1
    return ended


def _recorded(operations: int, nodes: int) -> int:
    """Histories of this size that are recorded for this source."""
    source = evidence.source_digest()
    runs = [each for each in evidence.load_runs(NAME) if each["source"] == source and "verdicts" in each]
    wanted = (operations, nodes)
    return sum(
        each["verdicts"].get("Ok", 0)
        for each in runs
        if (each["operations_of_a_history"], each["nodes"]) == wanted
    )


if __name__ == "__main__":
    sys.exit(main())
