"""`python -m tests.sim`: run seeds; exit status 1 where a rule was broken."""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys

from tests.sim import report
from tests.sim.run import drawn, plants, run_seed, workloads


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Deterministic simulation.")
    parser.add_argument("--seed", type=int, help="the first seed (drawn where it is not given)")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="so many seeds, counted up")
    parser.add_argument("--workload", choices=sorted(workloads()), help="instead of the drawn one")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fix an option")
    parser.add_argument("--plant", metavar="NAME", help="with this fault planted in the product")
    parser.add_argument("--list-plants", action="store_true")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--json", action="store_true", help="one JSON object per seed")
    return parser.parse_args()


def main() -> int:
    """See the module."""
    arguments = _arguments()
    if arguments.list_plants:
        for each in plants().values():
            print(f"{each.name:36} {each.what}")
        return 0
    overrides: dict[str, object] = dict(pair.partition("=")[::2] for pair in arguments.set)
    if arguments.plant and arguments.plant not in plants():
        print(f"no plant {arguments.plant!r}; --list-plants names them", file=sys.stderr)
        return 2
    plant = plants()[arguments.plant] if arguments.plant else None
    first = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    gc.freeze()
    broken = 0
    for seed in range(first, first + arguments.seeds):
        try:
            kind, options = drawn(seed, arguments.workload, overrides, plant)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        if not arguments.json:
            print("\n".join(report.before(seed, kind.name, options)), flush=True)
        outcome = run_seed(seed, arguments.workload, overrides, plant, print if arguments.trace else None)
        if arguments.json:
            print(json.dumps(outcome.as_json()))
        else:
            print("\n".join(report.after(outcome, overrides)), flush=True)
        broken += bool(outcome.rule)
        if plant is not None and outcome.rule:
            break
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
