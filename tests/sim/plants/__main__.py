"""`python -m tests.sim.plants`: every plant, seed after seed, until a check reports it.

The same seed is then run without the plant: what is reported must be the plant's doing. Writes
`docs/evidence/plants.json` when all were run. Exit status 1 where one was not caught.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.sim.faces import Plant
from tests.sim.plants import PLANTS
from tests.sim.run import run_seed

MOST_SEEDS = 1000
BROKEN = ("TypeError", "AttributeError", "NameError", "UnboundLocalError")
"""What a plant that does not fit the product any more falls over: that is no catch."""
EVIDENCE = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "plants.json"


def caught(plant: Plant, first_seed: int, most_seeds: int) -> dict[str, object]:
    """Run a plant until it is caught; what that took."""
    started = time.perf_counter()
    found: dict[str, object] = {"plant": plant.name, "what": plant.what, "source": plant.source}
    for count in range(1, most_seeds + 1):
        outcome = run_seed(first_seed + count - 1, plant=plant)
        if any(word in outcome.violation for word in BROKEN):
            raise RuntimeError(f"plant {plant.name} does not fit any more: {outcome.violation}")
        if outcome.rule and (not plant.rules or outcome.rule in plant.rules):
            found.update(
                caught=True,
                seeds=count,
                seed=outcome.seed,
                workload=outcome.workload,
                rule=outcome.rule,
                told=outcome.violation.splitlines()[0][:200],
            )
            without = run_seed(outcome.seed, workload=plant.workload, overrides=plant.overrides)
            found["without_the_plant"] = without.rule or "no violation"
            break
    else:
        found.update(caught=False, seeds=most_seeds)
    found["seconds"] = round(time.perf_counter() - started, 1)
    return found


def main() -> int:
    """See the module."""
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.sim.plants", description=about)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, help="give up after so many")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names or PLANTS:
        row = caught(PLANTS[name], arguments.seed, arguments.seeds)
        rows.append(row)
        if row["caught"]:
            told = f"{row['seeds']:5} seeds {row['seconds']:6} s  {row['rule']}"
            if row["without_the_plant"] != "no violation":
                told += f"; WITHOUT THE PLANT AS WELL: {row['without_the_plant']}"
        else:
            told = f"NOT CAUGHT in {row['seeds']} seeds, {row['seconds']} s"
        print(f"{name:30} {told}", flush=True)
    missed = [row["plant"] for row in rows if row.get("without_the_plant") != "no violation"]
    if not arguments.names:
        counts = {"plants": len(rows), "caught": len(rows) - len(missed), "first_seed": arguments.seed}
        EVIDENCE.write_text(json.dumps({**counts, "rows": rows}, indent=1) + "\n")
    print(f"{len(rows) - len(missed)} of {len(rows)} plants were caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
