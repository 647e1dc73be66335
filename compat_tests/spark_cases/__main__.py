"""Every case of Spark's stock source and sink: both versions, Apache Kafka, one Lockstep node and three.

    python -m compat_tests.spark_cases                            # adds to docs/evidence/spark_cases.json
    python -m compat_tests.spark_cases --resume                   # goes on where an interrupted run ended
    python -m compat_tests.spark_cases --no-evidence --spark 4.2.0 test_sink

Owns: what a run consists of and its figures: what passed, and in how many cases a broker did what Apache
Kafka did (a case whose answers differ is a failed one, see `transcript.py`). Each module runs with each
version in a process of its own, one after the other, so that a session that hangs ends with its module; what
it found stays in `.cache/compat/spark_cases` under the product's digest, for `--resume`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests import harness
from compat_tests.harness import FAILED, PASSED, Outcome
from compat_tests.spark_driver import RELEASES, SPARK_VERSION, Release
from compat_tests.targets import ROOT, KafkaTarget
from tests.campaigns.evidence import add_run, source_digest

NAME = "spark_cases"
_HERE = Path(__file__).resolve().parent
_KEPT = harness.RESULTS.parent / NAME
OUTCOMES = _KEPT / "outcomes.json"
"""Of a whole run, for `compat_tests.report --from`."""
_KAFKA = KafkaTarget.name


def counts(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Per version and broker: cases, passed, failed, and in how many it did what Kafka did."""
    told: dict[tuple[str, str], Counter[str]] = {}
    of_kafka = {
        (each.client, each.area, each.case)
        for each in outcomes
        if each.target == _KAFKA and each.result == PASSED
    }
    for each in outcomes:
        counter = told.setdefault((each.client, each.target), Counter())
        counter[each.result] += 1
        counter["cases"] += 1
        equal = (each.client, each.area, each.case) in of_kafka and each.result == PASSED
        counter["equal to Kafka"] += equal
    found: dict[str, Any] = {}
    for (client, target), counter in told.items():
        names = ("cases", PASSED, FAILED, *(() if target == _KAFKA else ("equal to Kafka",)))
        found.setdefault(client, {})[target] = {name: counter[name] for name in names}
    return found


def run(module: Path, version: str, *, resume: bool) -> list[Outcome]:
    """One module's cases with one version; the outcomes, which are kept as well."""
    kept = _KEPT / f"{source_digest()}-{version}-{module.stem}.json"
    if not (resume and kept.exists()):
        kept.unlink(missing_ok=True)
        harness.RESULTS.unlink(missing_ok=True)
        chosen = {"LOCKSTEP_SPARK_CASES": "whole", "LOCKSTEP_SPARK_VERSIONS": version}
        command = [sys.executable, "-m", "pytest", "-q", str(module.relative_to(ROOT))]
        subprocess.run(command, cwd=ROOT, env=os.environ | chosen, check=False)  # failures are outcomes
        if harness.RESULTS.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(harness.RESULTS, kept)
    return harness.load(kept)[1] if kept.exists() else []


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts, what failed, and which setting brought each version its connector."""
    failed = [
        f"{each.client}, {each.target}, {each.area}: {each.case}: {each.reason}"
        for each in outcomes
        if each.result != PASSED
    ]
    second = sum(each.tries > 1 for each in outcomes if each.result == PASSED)
    return {
        "command": f"python -m compat_tests.{NAME}",
        "connectors": {each.version: _connector(each) for each in RELEASES.values()},
        "counts": counts(outcomes),
        "failed": failed,
        "passed at the second try": second,
        "seconds": round(sum(each.seconds for each in outcomes)),
    }


def _connector(release: Release) -> str:
    """Which setting brings it, and what."""
    if release.jars is None:
        return f"spark.jars.packages: {release.packages}"
    return f"spark.jars: {', '.join(jar.name for jar in release.jars.jars())}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m compat_tests.{NAME}", description=__doc__)
    parser.add_argument("modules", nargs="*", help="names such as test_sink; default: all")
    parser.add_argument("--spark", choices=sorted(RELEASES), help="one version; default: both")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run of this code found")
    parser.add_argument("--no-evidence", action="store_true", help="write nothing under docs")
    options = parser.parse_args(words)
    wanted = [
        each for each in sorted(_HERE.glob("test_*.py")) if each.stem in (options.modules or [each.stem])
    ]
    versions = [options.spark] if options.spark else list(RELEASES)
    outcomes: list[Outcome] = []
    silent = []
    for version in versions:
        for module in wanted:
            found = run(module, version, resume=options.resume)
            outcomes += found
            silent += [] if found or _has_nothing(module, version) else [f"{module.stem} with {version}"]
    told = figures(outcomes) | {"no outcome": silent}
    print(json.dumps(told, indent=1, ensure_ascii=False))
    whole = not options.modules and not options.spark
    if whole:
        harness.save(outcomes, OUTCOMES)
    if whole and not options.no_evidence:
        add_run(NAME, told)
    return 1 if told["failed"] or silent else 0


def _has_nothing(module: Path, version: str) -> bool:
    """A module whose every case is the newest version's."""
    return version != SPARK_VERSION and 'pytestmark = pytest.mark.spark("newest")' in module.read_text()


if __name__ == "__main__":
    sys.exit(main())
