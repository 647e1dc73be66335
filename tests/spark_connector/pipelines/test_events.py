"""What `events` says that a topic is filled with: the arguments, and whatever an older run said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from lockstep.testing import RunningBroker
from spark_connector.pipelines.event_data import TOPICS, Shape
from spark_connector.pipelines.events import EventSettings, canonical_contents, contents, run
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.progress import ProgressReporter
from tests.support.cases import each_case

SHAPE = Shape(seed=3, events=40, accounts=9)
IN_WORDS = "orders of --seed 3 --events 40 --accounts 9 --partitions 2"
FORMERLY = (
    "{} of Shape(seed=3, events=40, accounts=9, first_ms=1767225600000, span_ms=86400000), "
    "by key over 2 partitions"
)
"""As it stands in checkpoints that were made up to November 2026."""


def test_contents_are_given_by_arguments() -> None:
    assert contents("orders", SHAPE, 2) == IN_WORDS
    assert contents("orders", replace(SHAPE, first_ms=-5), 2) == (
        f"{IN_WORDS}, over 86400000 ms from -5 ms after 1970 on"
    )


def test_each_difference_is_reported() -> None:
    shapes = [SHAPE, *(replace(SHAPE, **{name: 77}) for name in vars(SHAPE))]
    said = {contents(topic, shape, count) for topic in TOPICS for shape in shapes for count in (1, 2)}
    assert len(said) == len(TOPICS) * len(shapes) * 2


@each_case("shape", [SHAPE, Shape(), Shape(seed=-1, first_ms=-5, span_ms=7)])
def test_the_output_of_older_runs_is_printed_again(shape: Shape) -> None:
    formerly = f"orders of {shape}, by key over 2 partitions"
    assert canonical_contents(formerly) == contents("orders", shape, 2)
    assert canonical_contents(FORMERLY.format("orders")) == IN_WORDS
    assert canonical_contents(IN_WORDS) == IN_WORDS
    assert canonical_contents("orders of the archive Shape(x)") == "orders of the archive Shape(x)"


def test_a_checkpoint_of_an_older_run_goes_on(running: RunningBroker, tmp_path: Path) -> None:
    prefix = f"e-{uuid4().hex[:8]}-"
    settings = EventSettings(running.bootstrap_servers, tmp_path, SHAPE, partitions=2, prefix=prefix)
    quiet = ProgressReporter("events", quiet=True)
    assert run(settings, quiet)["appended"] == 40
    for topic in TOPICS:
        path = tmp_path / f"{prefix}{topic}.claim.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"contents": FORMERLY.format(topic)}))
    assert run(settings, quiet)["resumed"] == 40
    with pytest.raises(PipelineFailed) as refused:
        run(replace(settings, shape=replace(SHAPE, events=41)), quiet)
    other = IN_WORDS.replace("40", "41")
    assert f"is being filled with {IN_WORDS}, not with {other}: name another topic" in str(refused.value)
