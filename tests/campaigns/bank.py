"""`python -m tests.campaigns.bank --seconds 600 --every 20`: the demo bank, while brokers die.

`python -m lockstep.demo.bank` runs unattended against three nodes; one of them is killed with kill -9 every
so often and started again. The bank reads its books from the beginning of the topic before and after, and
judges itself; here its exit status and its last line are held to that. Prints JSON; ends with 1 where
something is not as it must be; adds to docs/evidence/bank.json.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from compat_tests.targets import ROOT
from tests.campaigns import evidence
from tests.campaigns.brokers import Brokers, raise_on_term

NAME: Final = "bank"
LAST_LINE: Final = re.compile(r"transfers=(\d+) before=(\d+) after=(\d+)")
PATIENCE_S: Final = 120.0
"""For the books to be made and audited, beside the time that was asked for."""


def judged(status: int, output: str) -> tuple[dict[str, Any], list[str]]:
    """What the bank's last line says, and what is wrong with it."""
    lines = output.strip().splitlines()
    found = LAST_LINE.fullmatch(lines[-1]) if lines else None
    if found is None:
        return {}, [f"ended with {status} and without its last line: {output[-500:]!r}"]
    transfers, before, after = map(int, found.groups())
    problems = [] if status == 0 else [f"ended with {status}"]
    if before != after:
        problems.append(f"{before} became {after}")
    if not transfers:
        problems.append("nothing was transferred")
    return {"transfers": transfers, "before": before, "after": after}, problems


def run(seconds: float, every_s: float, processes: int, seed: int) -> dict[str, Any]:
    """Figures, `problems` among them."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="lockstep-bank-") as name:
        brokers = Brokers("lockstep", 3, {}, Path(name))
        try:
            brokers.start()
            words = ["-b", brokers.bootstrap, "--seconds", str(seconds), "--processes", str(processes)]
            bank = subprocess.Popen(
                [sys.executable, "-m", "lockstep.demo.bank", *words],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                began = time.monotonic()
                while bank.poll() is None and time.monotonic() - began < seconds:
                    time.sleep(min(every_s, max(0.0, began + seconds - time.monotonic())))
                    if time.monotonic() - began < seconds:
                        brokers.kill(rng)
                output, _ = bank.communicate(timeout=PATIENCE_S)
            finally:
                bank.kill()
        finally:
            brokers.close()
        figures, problems = judged(bank.returncode, output)
        told = {"seconds": seconds, "processes": processes, "seed": seed, "kills": brokers.kills}
        return {**told, **figures, "problems": problems}


def main(words: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.bank", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between kills")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, help="default: drawn, and printed")
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    raise_on_term()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**31)
    done = run(arguments.seconds, arguments.every, arguments.processes, seed)
    print(json.dumps(done), flush=True)
    if not arguments.no_evidence:
        evidence.add_run(NAME, done)
    return 1 if done["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
