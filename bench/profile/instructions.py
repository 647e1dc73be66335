"""`python -m bench.profile.instructions`: instructions of the broker a Produce request, counted by callgrind.

Other work on the machine changes a time and not a count, so two trees, or two settings, can be compared while
the machine is busy. Closed-loop producers send one message of 1 KB a request to one partition, without
flushes; only what the broker runs in user mode between the first request and the last response is counted,
all threads together. Each variant is a broker of its own, in turns. Does not do: system calls, caches, or
anything about time: a broker under valgrind is some fifty times slower, so that more requests wait for one
another than in a normal run. Exit status: 0; 1 without valgrind, or for an unexpected response.

Variants: `pure` and `compiled`, without and with the C extension of the Produce path; `acls`, which is
`compiled` with an authorizer and `--acls` bindings of other topics beside the one that allows the producers.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tabulate import tabulate

from bench.exit_status import EXIT_FAILED, log_progress
from bench.profile.first_read import run_job
from bench.settings import RECORD_BYTES
from compat_tests.targets import LockstepTarget

TOPIC: Final = "counted"
VARIANTS: Final = ("pure", "compiled", "acls")
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACLS_A_REQUEST: Final = 1000
TOTALS: Final = re.compile(r"^totals: (\d+)", re.MULTILINE)


def under_callgrind(variant: str, out: Path, tree: Path | None) -> LockstepTarget:
    """A broker that counts nothing before its start signal."""
    tool = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}")
    settings = {"log.flush": "os"}
    if variant == "acls":
        settings |= {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    environment = {"LOCKSTEP_PURE": "1" if variant == "pure" else ""}
    if tree is not None:
        environment["PYTHONPATH"] = str(tree)
    return LockstepTarget(
        settings,
        command=[*tool, sys.executable, "-m", "lockstep"],
        environment=environment,
        ready_timeout_s=300,
    )


def create_acls(bootstrap: str, others: int) -> None:
    """The binding that allows the producers, and `others` of as many topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for name in (TOPIC, *(f"other-{number}" for number in range(others)))
    ]
    for first in range(0, len(bindings), ACLS_A_REQUEST):
        some = admin.create_acls(bindings[first : first + ACLS_A_REQUEST], request_timeout=300)
        for future in some.values():
            future.result()


def create_topic(bootstrap: str) -> None:
    """One partition."""
    words = ("topics", "create", TOPIC, "--partitions", "1", "--bootstrap-server", bootstrap)
    subprocess.run([sys.executable, "-m", "lockstep", *words], check=True, capture_output=True)


@contextlib.contextmanager
def count_instructions(pid: int) -> Iterator[None]:
    """Has callgrind count meanwhile."""
    for number, state in enumerate(("on", "off")):
        if number:
            yield
        subprocess.run(["callgrind_control", "-i", state, str(pid)], check=True, capture_output=True)


def measure(variant: str, given: argparse.Namespace) -> float:
    """Instructions a request."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        with under_callgrind(variant, out, given.baseline_tree) as broker:
            create_topic(broker.bootstrap)
            if variant == "acls":
                create_acls(broker.bootstrap, given.acls)
            loop = {
                "job": "closed_loop",
                "topic": TOPIC,
                "partitions": 1,
                "record_bytes": RECORD_BYTES,
                "records": 1,
                "spread": "turns",
                "producers": given.producers,
                "warmup_s": 0,
            }
            run_job(broker.port, **loop, seconds=given.seconds / 2)
            with count_instructions(broker.pid):
                requests = run_job(broker.port, **loop, seconds=given.seconds)["total_requests"]
            broker.stop()
        found = TOTALS.search(out.read_text())
    if found is None:
        raise SystemExit(f"{out.name} has no totals")
    return int(found[1]) / int(requests)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile.instructions", description=__doc__)
    parser.add_argument("variants", nargs="*", choices=VARIANTS, default=["pure", "compiled"])
    parser.add_argument("--producers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10, help="of the counted load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--acls", type=int, default=10_000)
    parser.add_argument("--baseline-tree", type=Path, help="count Lockstep of this source tree")
    given = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        log_progress("valgrind is not installed")
        return EXIT_FAILED
    counts: dict[str, list[float]] = {variant: [] for variant in given.variants}
    for number in range(given.rounds):
        for variant in list(counts) if number % 2 else reversed(counts):
            counts[variant].append(measure(variant, given))
            log_progress(f"{variant}: {counts[variant][-1]:,.0f} instructions a request")
    first = statistics.median(next(iter(counts.values())))
    rows = [
        (variant, f"{statistics.median(values):,.0f}", f"{min(values):,.0f} to {max(values):,.0f}",
         f"{statistics.median(values) / first:.3f}")
        for variant, values in counts.items()
    ]  # fmt: skip
    print(tabulate(rows, headers=("variant", "instructions a request", "lowest to highest", "to the first")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
