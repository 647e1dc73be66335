"""One node and three: the order of sessions, what is compared with what, and the goals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.figures.ratios import ANY, BASELINE, SUBJECT, compare
from bench.kinds import nodes3, one_node
from bench.kinds.nodes3 import Nodes3
from bench.kinds.one_node import OneNode, Planned
from bench.settings import FLUSH, OS
from tests.bench.kinds.results import made
from tests.bench.outcomes import session


def test_sessions_of_one_node_alternate_and_mirror() -> None:
    kafka = Planned(BASELINE, "kafka", (FLUSH, OS), True)
    flushing = Planned(SUBJECT, "lockstep", (FLUSH,), True)
    free = Planned(SUBJECT, "lockstep", (OS,), False)
    assert made(OneNode, "all", "--rounds", "2").plan() == [kafka, flushing, free, free, flushing, kafka]


def test_a_session_without_work_is_not_planned() -> None:
    plan = made(OneNode, "consume", "--vs", "self", "--rounds", "1").plan()
    assert [(each.side, each.policies) for each in plan] == [(BASELINE, (FLUSH,)), (SUBJECT, (FLUSH,))]
    (_, os_only) = made(OneNode, "restart", "--policy", OS, "--rounds", "1").plan()
    assert os_only == Planned(SUBJECT, "lockstep", (OS,), True)


@pytest.mark.parametrize(
    ("rows", "producers"), [({"cost"}, [1, 16, 64]), ({"cost", "partitions", "latency"}, [1, 16, 64])]
)
def test_each_number_of_producers_is_measured_once(
    rows: set[str], producers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def closed_loop(session: Any, name: str, policy: str, count: int, *_: int, **__: Any) -> None:
        if name.startswith("latency"):
            assert name == f"latency{count}"
            found.append(count)

    monkeypatch.setattr(one_node, "closed_loop", closed_loop)
    monkeypatch.setattr(one_node, "report_closed", lambda block: None)
    of_client = SimpleNamespace(policies=(OS,), measure=lambda *_, **__: {})
    one_node.run(cast(Any, of_client), frozenset(rows), with_restart=False)
    assert found == producers


def test_the_cost_of_a_request_is_compared() -> None:
    sessions = [
        session(side, ("latency64", OS, {"cpu_us": cpu_us}, True))
        for side, cpu_us in ((BASELINE, 40.0), (SUBJECT, 20.0))
    ]
    rows = {row["ratio"]: row["value"] for row in compare(sessions, [], (), one_node.RATIOS)}
    assert rows["cost64.os"] == 0.5


def test_quick_is_every_row_but_groups_and_cost_with_short_blocks() -> None:
    run = made(OneNode, "quick")
    assert run.sizes.name == "quick" and run.rows == set(one_node.ROWS) - {"groups", "cost"}
    assert run.kept_name == "quick-lockstep-vs-kafka" and run.kind == "one node"


def test_sessions_of_three_nodes_alternate_and_mirror() -> None:
    kafka = nodes3.Planned(BASELINE, "kafka", (FLUSH, OS), (1, 3))
    ours = [
        nodes3.Planned(SUBJECT, "lockstep", (policy,), (shape,)) for policy in (FLUSH, OS) for shape in (1, 3)
    ]
    assert made(Nodes3, "--rounds", "2").plan() == [kafka, *ours, *ours[::-1], kafka]


def test_every_goal_has_its_ratio_and_groups_are_not_mixed() -> None:
    for kind in (OneNode, Nodes3):
        assert {goal.ratio for goal in kind.goals} <= set(kind.ratios)
    sessions = [
        session(
            side,
            ("latency16_1", FLUSH, {"requests_per_s": one}, True),
            ("latency16_3", FLUSH, {"requests_per_s": three}, True),
            ("loss_1", ANY, {"first_ack_s": loss}, True),
        )
        for side, one, three, loss in ((BASELINE, 100.0, 50.0, 8.0), (SUBJECT, 500.0, 150.0, 0.8))
    ]
    compared = compare(sessions, [], nodes3.GOALS, nodes3.RATIOS)
    rows = {row["ratio"]: (row["value"], row.get("met")) for row in compared}
    assert rows["latency16.rate.flush.g1"] == (5.0, True)
    assert rows["latency16.rate.flush.g3"] == (3.0, False)
    assert rows["loss.g1"] == (pytest.approx(0.1), None) and rows["resume.g1"][0] == pytest.approx(0.8)
    assert "loss.g3" not in rows
