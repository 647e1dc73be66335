"""`python -m tests.campaigns.fuzz --inputs 1000000`: bytes that are nearly Kafka's, to all that reads them.

With `--listener` they go to a broker's handlers alone: before a login, after one, inside TLS, or to a TLS
listener as they are.

In a process of its own, by two engines one after the other (a grammar made from the message tables; atheris,
steered by coverage): request, response and header codecs, framing, record batches, compression, and the
handlers of a broker fed through its connections. What must hold: the process never ends, nothing raises but
the errors each target declares, no input takes seconds, memory is back to where it was after warm-up.
Prints its seed; `--resume` goes on where an interrupted run of the same seed and source stopped; a finding is
kept in .cache/fuzz/findings with the command that repeats it. Adds to docs/evidence/fuzz.json and ends with 1
when there is any.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.campaigns import evidence
from tests.campaigns.attacked_listeners import LISTENERS
from tests.campaigns.fuzz_worker import PLAINTEXT, current_input, write_finding

DIRECTORY: Final = evidence.ROOT / ".cache" / "fuzz"
ENGINES: Final = ("grammar", "coverage")
RSS_GROWTH_BYTES: Final = 10 << 20
WARM_SAMPLES: Final = 40
"""With fewer samples of memory than this there is no telling warm-up from growth."""
MAX_EXITS: Final = 5
FOR_EVER: Final = 10.0**9


class Engine:
    """One engine's share of a run: child processes until its inputs are fed, and what they said."""

    def __init__(self, name: str, directory: Path, seed: int, inputs: int, listener: str = PLAINTEXT) -> None:
        self.name = name
        self.listener = listener
        self.seed = seed
        self.wanted = inputs
        self.directory = directory / name
        self.next_chunk = 0
        self.exits = 0
        self.seconds = 0.0
        self.done: dict[str, Counter[str]] = {"inputs": Counter(), "accepted": Counter(), "kinds": Counter()}
        self.frames = self.answers = 0
        self.slowest_ms = 0.0
        self.rss: list[int] = []
        """Samples of the last child process."""

    @property
    def fed(self) -> int:
        return self.done["inputs"].total()

    def run(self, seconds: float, save: Any) -> None:
        """Until everything is fed, time is over, or the process ended too often. `save` keeps the state."""
        deadline = time.monotonic() + seconds
        self.directory.mkdir(parents=True, exist_ok=True)
        while self.fed < self.wanted and time.monotonic() < deadline and self.exits < MAX_EXITS:
            before = self.fed
            status = self._child(deadline - time.monotonic(), save)
            if status:
                self.exits += 1
                self.next_chunk += 1
                self._keep_last_input(status)
            elif self.fed == before:
                break
            save()

    def _child(self, seconds: float, save: Any) -> int:
        temporary = self.directory / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        command = [sys.executable, "-m", "tests.campaigns.fuzz_worker", self.name, str(self.directory)]
        command += [str(self.seed), str(self.next_chunk), str(self.wanted - self.fed), str(seconds)]
        command.append(self.listener)
        base = {name: Counter(counts) for name, counts in self.done.items()}
        frames, answers = self.frames, self.answers
        self.rss = []
        began, said_at = time.monotonic(), time.monotonic()
        with (self.directory / "log").open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=evidence.ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "TMPDIR": str(temporary), "PYTHONHASHSEED": "0"},
            )
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    said = json.loads(line)
                    for name, counts in base.items():
                        self.done[name] = counts + Counter(said[name])
                    self.next_chunk = said["next_chunk"]
                    self.frames, self.answers = frames + said["frames"], answers + said["answers"]
                    self.slowest_ms = max(self.slowest_ms, said["slowest_ms"])
                    self.rss.append(said["rss"])
                    if time.monotonic() - said_at > 10:
                        said_at = time.monotonic()
                        self._tell(began)
                        save()
                return child.wait()
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
                self.seconds += time.monotonic() - began
                shutil.rmtree(temporary, ignore_errors=True)

    def _tell(self, began: float) -> None:
        kinds = len(self.done["kinds"])
        print(
            f"  {self.name}: {self.fed:,} of {self.wanted:,} inputs, "
            f"{self.fed / (self.seconds + time.monotonic() - began):,.0f}/s, {self.rss[-1] >> 20} MiB, "
            f"{kinds} kinds of finding, {self.exits} exits",
            flush=True,
        )

    def _keep_last_input(self, status: int) -> None:
        target, data = current_input(self.directory)
        self.done["kinds"][f"{target}: the process ended with {status}"] += 1
        findings = self.directory / "findings"
        findings.mkdir(exist_ok=True)
        write_finding(findings / f"exit-{self.exits}.json", target, data, f"ended with {status}", [])

    def rss_mib(self) -> dict[str, float]:
        """Warm (median of the second and third tenth), end (of the last) and peak, of the last process."""
        samples = self.rss
        if not samples:
            return {}
        tenth = max(1, len(samples) // 10)
        figures = {"warm": median(samples[tenth : 3 * tenth] or samples), "end": median(samples[-tenth:])}
        return {name: round(size / 2**20, 1) for name, size in [*figures.items(), ("peak", max(samples))]}

    def problems(self) -> list[str]:
        """What did not hold."""
        found = [f"{self.name}: {kind} ({times} times)" for kind, times in self.done["kinds"].items()]
        rss = self.rss_mib()
        if len(self.rss) >= WARM_SAMPLES and rss["end"] - rss["warm"] > RSS_GROWTH_BYTES / 2**20:
            found.append(f"{self.name}: memory grew by {rss['end'] - rss['warm']:.1f} MiB after warm-up")
        return found

    def figures(self) -> dict[str, Any]:
        """For the evidence."""
        return {
            "inputs": self.fed,
            "targets": {
                name: {"inputs": count, "accepted": self.done["accepted"][name]}
                for name, count in sorted(self.done["inputs"].items())
            },
            "handler_frames": self.frames,
            "handler_answers": self.answers,
            "seconds": round(self.seconds, 1),
            "inputs_per_s": round(self.fed / self.seconds) if self.seconds else 0,
            "exits": self.exits,
            "unexpected": self.done["kinds"].total(),
            "slowest_ms": self.slowest_ms,
            "rss_mib": self.rss_mib(),
        }

    def state(self) -> dict[str, Any]:
        """What a resumed run needs."""
        kept = ("wanted", "next_chunk", "exits", "seconds", "frames", "answers", "slowest_ms", "done")
        return {name: getattr(self, name) for name in kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        for name, value in state.items():
            setattr(self, name, value)
        self.done = {name: Counter(counts) for name, counts in state["done"].items()}


class Run:
    """A whole run, which can be interrupted."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        inputs: int,
        engines: Sequence[str],
        listener: str = PLAINTEXT,
    ) -> None:
        self.directory = directory
        self.seed = seed
        self.listener = listener
        share = -(-inputs // len(engines))
        self.engines = [Engine(name, directory, seed, share, listener) for name in engines]

    def go(self, seconds: float = FOR_EVER) -> list[str]:
        """Feed everything; what did not hold."""
        share = seconds / len(self.engines)
        for engine in self.engines:
            engine.run(share, self.save)
        self.save()
        return [problem for engine in self.engines for problem in engine.problems()]

    def save(self) -> None:
        """Keep what `--resume` needs."""
        state = {
            "seed": self.seed,
            "source": evidence.source_digest(),
            "engines": {engine.name: engine.state() for engine in self.engines},
        }
        temporary = self.directory / "state.tmp"
        temporary.write_text(json.dumps(state))
        os.replace(temporary, self.directory / "state.json")

    def resume(self) -> bool:
        """Take over what an interrupted run of the same source left; False where there is none."""
        path = self.directory / "state.json"
        if not path.exists():
            return False
        state = json.loads(path.read_text())
        if state["source"] != evidence.source_digest():
            return False
        self.seed = state["seed"]
        for engine in self.engines:
            engine.seed = self.seed
            if engine.name in state["engines"]:
                wanted = engine.wanted
                engine.restore(state["engines"][engine.name])
                engine.wanted = wanted
        return True

    def figures(self, problems: list[str]) -> dict[str, Any]:
        """For the evidence."""
        return {
            "listener": self.listener,
            "seed": self.seed,
            "inputs": sum(engine.fed for engine in self.engines),
            "duration_s": round(sum(engine.seconds for engine in self.engines), 1),
            "engines": {engine.name: engine.figures() for engine in self.engines},
            "problems": problems,
        }


def repeat(path: Path, listener: str) -> int:
    """Run one finding again, with what came before it; 1 where it still is one."""
    from tests.campaigns import fuzz_targets
    from tests.campaigns.fuzz_broker import Handlers

    finding = json.loads(path.read_text())
    data, target = bytes.fromhex(finding["input"]), finding["target"]
    handlers = Handlers(listener)
    run = handlers.run if target == "handlers" else fuzz_targets.CODECS[target]
    status = 0
    for each in [*map(bytes.fromhex, finding["before"]), data]:
        try:
            run(each)
        except Exception:
            traceback.print_exc()
            status = 1
    handlers.close()
    print("still a finding" if status else "nothing unexpected any more", flush=True)
    return status


def continued_run(run: Run) -> dict[str, Any] | None:
    """What is on record of the run that this one goes on with."""
    source = evidence.source_digest()
    same = [
        each
        for each in evidence.load_runs("fuzz")
        if (each["seed"], each["source"], each.get("listener")) == (run.seed, source, run.listener)
    ]
    return same[-1] if same else None


def main(words: Sequence[str] | None = None) -> int:
    """The campaign as a command; 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--listener", choices=sorted(LISTENERS), default=PLAINTEXT)
    parser.add_argument("--seconds", type=float, default=FOR_EVER, help="stop after so long")
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--repeat", metavar="FINDING", help="run one finding again")
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    if arguments.repeat:
        given = Path(arguments.repeat)
        found = [given] if given.exists() else sorted(DIRECTORY.rglob(given.name))
        if not found:
            parser.error(f"there is no finding {arguments.repeat}")
        return repeat(found[0], arguments.listener)
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    engines = ENGINES if arguments.engine == "both" else (arguments.engine,)
    directory = DIRECTORY / arguments.listener
    directory.mkdir(parents=True, exist_ok=True)
    run = Run(directory, seed, arguments.inputs, engines, arguments.listener)
    resumed = arguments.resume and run.resume()
    if not resumed:
        for name in engines:
            shutil.rmtree(directory / name, ignore_errors=True)
    fed = sum(engine.fed for engine in run.engines)
    print(
        f"fuzz: {run.listener}, seed {run.seed}, {arguments.inputs:,} inputs, {fed:,} of them done already",
        flush=True,
    )
    problems = run.go(arguments.seconds)
    figures = run.figures(problems)
    print(json.dumps(figures, indent=1), flush=True)
    for problem in problems:
        print(f"FINDING {problem}", flush=True)
    if problems:
        print(f"findings and the commands that repeat them: {directory}/*/findings", flush=True)
    if not arguments.no_evidence:
        former = continued_run(run) if resumed else None
        evidence.OpenRun("fuzz", former=former).save(figures)
    if all(engine.fed >= engine.wanted for engine in run.engines):
        (directory / "state.json").unlink(missing_ok=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
