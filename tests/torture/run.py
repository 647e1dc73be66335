"""The runs, their printed lines and their evidence; see `python -m tests.torture --help`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests.kafka_jars import ToolchainMissing
from tests.campaigns import evidence
from tests.campaigns.brokers import raise_on_term
from tests.torture.clients import workers
from tests.torture.faults import EVERYWHERE, SINGLE_NODE
from tests.torture.network import NotPossible
from tests.torture.session import Options, Outcome, Session, keep

NAME = "torture"
KEPT = evidence.ROOT / ".cache" / "torture"


def figures(outcome: Outcome, seconds: float) -> dict[str, Any]:
    """One run for the evidence file."""
    verdict, options = outcome.verdict, outcome.options
    return {
        "target": options.target,
        "seed": options.seed,
        "nodes": options.nodes,
        "seconds": options.seconds,
        "duration_s": round(seconds, 1),
        "workers": list(options.workers),
        "operations": {
            "sent": verdict.sent,
            "acknowledged": verdict.acknowledged,
            "failed": verdict.failed,
            "unknown": verdict.unknown,
            "unknown_read": verdict.unknown_read,
            "repeats_without_idempotence": verdict.repeats,
            "polls": verdict.polls,
            "polled_records": verdict.polled_records,
            "transactions": dict(verdict.transactions),
        },
        "faults": [
            {
                "kind": done.kind,
                "nodes": done.nodes,
                "leads": len(done.led),
                "lasted_s": round((done.ended_ns - done.began_ns) / 1e9, 2),
                "longest_silence_s": round(silence, 2),
            }
            for done, silence in zip(outcome.faults, outcome.silences_s, strict=True)
        ],
        "heal_s": round(outcome.heal_s, 2),
        "until_all_was_read_s": round(outcome.unseen_s, 2),
        "last_readers": outcome.last_readers,
        "client_errors": len(outcome.notes),
        "client_error_texts": outcome.notes[:5],
        "anomalies": dict(verdict.kinds),
        "anomaly_texts": verdict.problems[:10],
        "problems": [text[:1000] for text in outcome.problems],
    }


def report(run: dict[str, Any]) -> str:
    """The printed line of a run."""
    operations = run["operations"]
    hit = [fault["longest_silence_s"] for fault in run["faults"] if fault["leads"]]
    what = "sound" if not run["anomalies"] and not run["problems"] else "NOT SOUND"
    return (
        f"seed {run['seed']}: {what}; {operations['sent']} sent, {operations['acknowledged']} acknowledged, "
        f"{operations['unknown']} unknown, {operations['polled_records']} polled; "
        f"transactions {operations['transactions'] or 'none'}; "
        f"{len(run['faults'])} faults, longest silence after those that hit a leader {hit} s; "
        f"all read {run['until_all_was_read_s']} s after the end"
        f"{' (last: ' + ', '.join(run['last_readers']) + ')' if run['last_readers'] else ''}; "
        f"{run['duration_s']} s"
    )


def runs_on_record(nodes: int, seconds: float, chosen: Sequence[str]) -> int:
    """Sound runs of this shape, with these workers at least, recorded for this source."""
    digest = evidence.source_digest()
    return sum(
        run["source"] == digest
        and run["target"] == "lockstep"
        and run["nodes"] == nodes
        and set(chosen) <= set(run["workers"])
        and run["seconds"] >= seconds
        and not run["anomalies"]
        and not run["problems"]
        for run in evidence.load_runs(NAME)
    )


def one_run(options: Options, *, record: bool) -> Outcome:
    """One run in a fresh directory; what it left is kept when it was not sound."""
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="lockstep-torture-"))
    try:
        outcome = Session(options, directory, lambda text: print(f"  {text}", flush=True)).run()
        run = figures(outcome, time.monotonic() - began)
        print(report(run), flush=True)
        if record:
            evidence.add_run(NAME, run)
        if not outcome.sound:
            for text in [*outcome.verdict.problems[:20], *outcome.problems]:
                print(f"  {text}", flush=True)
            keep(directory, KEPT / str(options.seed))
            print(f"  kept: {(KEPT / str(options.seed)).relative_to(evidence.ROOT)}", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return outcome


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first run; default: drawn, and printed"
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--faults", default=None, help=f"default: {','.join(EVERYWHERE)}")
    parser.add_argument("--workers", default=None, help=f"default: {','.join(workers.LINE_UP)}")
    parser.add_argument(
        "--transactions", action="store_true", help="transactional producers among the workers"
    )
    parser.add_argument("--rate", type=float, default=40.0, help="records/s of each producer")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker settings")
    parser.add_argument("--target", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument("--resume", action="store_true", help="count runs recorded for this source")
    parser.add_argument("--no-evidence", action="store_true")
    parser.add_argument("--keep-going", action="store_true", help="go on after a run that was not sound")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """The exit status is 1 when any run was not sound, 2 when this machine cannot do it."""
    arguments = _arguments(words)
    raise_on_term()
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    line_up = workers.TRANSACTIONAL if arguments.transactions else workers.LINE_UP
    chosen = line_up if arguments.workers is None else tuple(arguments.workers.split(","))
    done = runs_on_record(arguments.nodes, arguments.seconds, chosen) if arguments.resume else 0
    default = SINGLE_NODE if arguments.nodes == 1 else EVERYWHERE
    faults = tuple(default if arguments.faults is None else filter(None, arguments.faults.split(",")))
    print(f"torture: seed {seed}, {arguments.runs} runs wanted, {done} on record", flush=True)
    sound = True
    for number in range(arguments.runs - done):
        options = Options(
            nodes=arguments.nodes,
            seconds=arguments.seconds,
            seed=seed + number,
            faults=faults,
            workers=chosen,
            rate=arguments.rate,
            settings=dict(word.split("=", 1) for word in arguments.set),
            target=arguments.target,
        )
        try:
            outcome = one_run(options, record=not arguments.no_evidence)
        except (NotPossible, ToolchainMissing) as missing:
            print(f"not possible here: {missing}", file=sys.stderr)
            return 2
        sound &= outcome.sound
        if not sound and not arguments.keep_going:
            break
    return 0 if sound else 1
