"""The command of a campaign on brokers that are killed meanwhile: from its arguments to its evidence."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from compat_tests.kafka_jars import ToolchainMissing
from tests.campaigns import evidence
from tests.campaigns.brokers import Brokers, raise_on_term

KEPT_PROBLEMS = 20


class Campaign(Protocol):
    """`problems` is empty when everything held."""

    problems: list[str]

    def run(self) -> None: ...


C = TypeVar("C", bound=Campaign)


def parser(
    name: str, description: str | None, size: str, default: int, kills: int
) -> argparse.ArgumentParser:
    """Of `python -m tests.campaigns.NAME`. Args: size: what is counted, "records" for instance."""
    made = argparse.ArgumentParser(prog=f"python -m tests.campaigns.{name}", description=description)
    made.add_argument(f"--{size}", type=int, default=default)
    made.add_argument("--kills", type=int, default=kills)
    made.add_argument("--nodes", type=int, choices=[1, 3], default=1)
    made.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    made.add_argument("--target", choices=["lockstep", "kafka"], default="lockstep")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker settings")
    made.add_argument("--resume", action="store_true", help="nothing where it is recorded for this source")
    made.add_argument("--no-evidence", action="store_true")
    made.set_defaults(size=size)
    return made


def is_on_record(name: str, arguments: argparse.Namespace) -> bool:
    """Is there a sound run of this source that is as large?"""
    digest, size = evidence.source_digest(), arguments.size
    return any(
        run["source"] == digest
        and run["target"] == "lockstep"
        and run["nodes"] == arguments.nodes
        and run["exact"]
        and run[size] >= getattr(arguments, size)
        and run["kills"] >= arguments.kills
        for run in evidence.load_runs(name)
    )


def command(
    name: str,
    arguments: argparse.Namespace,
    make: Callable[[Brokers, Path], C],
    figures: Callable[[C, Brokers], dict[str, Any]],
) -> int:
    """Runs the campaign of `make`, prints and records its figures; the exit status. TargetFailed when the
    brokers do not even start."""
    raise_on_term()
    if arguments.resume and is_on_record(name, arguments):
        print(f"{name}: on record", flush=True)
        return 0
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(2**31)
    print(f"{name}: seed {arguments.seed}", flush=True)
    began = time.monotonic()
    settings = dict(word.split("=", 1) for word in arguments.set)
    with tempfile.TemporaryDirectory(prefix=f"lockstep-{name}-") as directory:
        try:
            brokers = Brokers(arguments.target, arguments.nodes, settings, Path(directory))
            campaign = _run(brokers, make, Path(directory))
        except ToolchainMissing as missing:
            print(f"not possible here: {missing}", file=sys.stderr)
            return 2
        done = {
            **{key: getattr(arguments, key) for key in ("target", "nodes", "seed", arguments.size)},
            **figures(campaign, brokers),
            "kills": brokers.kills,
            "kills_while_starting": brokers.kills_while_starting,
            "duration_s": round(time.monotonic() - began, 1),
            "exact": not campaign.problems,
            "problems": [text[:1000] for text in campaign.problems[:KEPT_PROBLEMS]],
        }
        print(done, flush=True)
        if campaign.problems:
            print(brokers.log_tail(), flush=True)
    if not arguments.no_evidence:
        evidence.add_run(name, done)
    return 1 if campaign.problems else 0


def _run(brokers: Brokers, make: Callable[[Brokers, Path], C], directory: Path) -> C:
    try:
        brokers.start()
        campaign = make(brokers, directory)
        campaign.run()
        return campaign
    finally:
        brokers.close()
