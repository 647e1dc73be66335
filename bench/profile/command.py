"""`python -m bench profile`: where the broker's time goes under the sixteen-producer load.

Owns: one Lockstep under py-spy (sampling, native frames included; the load's own figures are printed, as this
slows the broker) or under cProfile (--exact: call counts, but every Python call pays). Prints the functions
with the most time of their own and the most time with what they call; `--split` says where the time of a
group commit goes, by stage (`split`). Compares nothing.
"""

from __future__ import annotations

import argparse
import pstats
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench import argument_types
from bench.exit_status import EXIT_FAILED, log_progress
from bench.kept import LOCAL_RESULTS
from bench.profile import split, stages
from bench.sessions.blocks import PERFORMANCE_TOOL, produce
from bench.sessions.cluster import NODES
from bench.sessions.session import Session
from bench.settings import FLUSH, POLICIES, PRODUCERS, QUICK, RECORD_BYTES
from compat_tests.targets import LockstepTarget, TargetFailed

SAMPLES_PER_S = 400
_ROWS_SHOWN = 45
_OTHER_THREAD = "Thread._bootstrap "
_LINE = re.compile(r":\d+\)$")


def folded_shares(folded: str) -> tuple[Counter[str], Counter[str], int]:
    """(own samples, samples with callees, all samples) by function, from py-spy's folded stacks.

    Only the event loop's thread counts: the others mostly wait.
    """
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    samples = 0
    for stack, number in stages.stacks(folded):
        if _OTHER_THREAD in stack:
            continue
        frames = [_LINE.sub(")", frame) for frame in stack.split(";")]
        samples += number
        own[frames[-1]] += number
        for frame in set(frames):
            total[frame] += number
    return own, total, samples


def _load(session: Session, work: str, seconds: float) -> None:
    """The load to look at; the figures are printed because a profile without them says little."""
    if work == "produce":
        produce(session, session.policies[0])
        return
    producers = 1 if work == "latency1" else PRODUCERS
    topic = session.topic(session.policies[0])
    done = session.closed_loop(topic, producers, seconds=seconds, warmup_s=0.2)
    log_progress(
        f"{done['requests_per_s']:,.0f} requests/s, p50 {done['p50_ms']:.3f} ms, p99 {done['p99_ms']:.3f} ms"
    )


def _sample(session: Session, work: str, seconds: float, native: bool) -> None:
    session.open()
    with tempfile.TemporaryDirectory() as scratch:
        folded = Path(scratch) / "stacks"
        (pid,) = session.target.pids
        how = ["--rate", str(SAMPLES_PER_S), "--format", "raw", *(["--native"] if native else [])]
        sampler = split.spy(pid, seconds + 1, folded, *how)
        _load(session, work, seconds + 1)
        split.finish(sampler, folded)
        own, total, samples = folded_shares(folded.read_text())
    for title, counted in (("own time", own), ("with callees", total)):
        print(f"\n{title} ({samples} samples)")
        for name, count in counted.most_common(_ROWS_SHOWN):
            print(f"{count / samples:7.1%}  {name}")


def _exact(session: Session, work: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "profile"
        command = [sys.executable, "-m", "cProfile", "-o", str(output), "-m", "lockstep"]
        target = session.target
        assert isinstance(target, LockstepTarget)
        session.target = LockstepTarget(
            target.settings, command=command, directory=session.directory, environment=_import_path()
        )
        session.open()
        _load(session, work, seconds)
        session.target.stop()
        statistics = pstats.Stats(str(output)).strip_dirs()
        statistics.sort_stats("tottime").print_stats(_ROWS_SHOWN)


def _import_path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def main(arguments: Sequence[str]) -> int:
    """Profile and print; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench profile", description=__doc__)
    parser.add_argument("--work", choices=["latency16", "latency1", "produce"], default="latency16")
    parser.add_argument("--policy", choices=POLICIES, default=FLUSH)
    parser.add_argument("--seconds", type=argument_types.positive, default=8.0)
    parser.add_argument("--exact", action="store_true", help="cProfile: calls are counted, and cost more")
    parser.add_argument("--python-only", action="store_true", help="py-spy without native frames")
    parser.add_argument("--split", action="store_true", help="a group commit's time by stage")
    parser.add_argument("--nodes", type=int, choices=(1, NODES), action="append", help="of --split; both")
    parser.add_argument(
        "--flame",
        type=Path,
        metavar="FILE.svg",
        help="of --split: flame graphs, too, FILE-1.svg and FILE-3.svg",
    )
    argument_types.add_directories(parser, LOCAL_RESULTS, "of --split's result")
    options = parser.parse_args(arguments)
    if options.split:
        if options.work == "produce":
            parser.error("--split is of closed-loop producers: --work latency1 or latency16")
        return split.run(options)
    parent = argument_types.directory_of(options)
    session = Session("subject", "lockstep", (options.policy,), QUICK, parent)
    log_progress(f"{options.work}, {options.policy}, records of {RECORD_BYTES} bytes")
    if options.work == "produce":
        log_progress(f"load: {PERFORMANCE_TOOL}")
    try:
        if options.exact:
            _exact(session, options.work, options.seconds)
        else:
            _sample(session, options.work, options.seconds, not options.python_only)
    except TargetFailed as error:
        log_progress(f"FAILED: {error}")
        return EXIT_FAILED
    finally:
        session.close()
    return 0
