"""What is planned comes from the seed alone; what is begun is undone; a cut link cuts what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import each_case
from tests.torture import faults
from tests.torture.cluster import Cluster
from tests.torture.faults import EVERYWHERE, KINDS, LEADER, Injector, Planned, plan
from tests.torture.gaps import Acknowledgements
from tests.torture.history import History
from tests.torture.network import NotPossible


class Silent:
    """A network that only notes its cuts."""

    def __init__(self) -> None:
        self.cuts: set[tuple[str, str]] = set()

    def cut(self, source: str, destination: str) -> None:
        self.cuts.add((source, destination))

    def heal(self, source: str, destination: str) -> None:
        self.cuts.remove((source, destination))


class PaperNode:
    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.host = f"n{node_id}"
        self.did: list[str] = []
        self.disk = None
        self.throttle = None

    def __getattr__(self, name: str) -> object:
        return lambda: self.did.append(name)


class PaperCluster(Cluster):
    """No process, no namespace: only what faults ask for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.directory = Path()
        self.nodes = {number: PaperNode(number) for number in range(1, size + 1)}  # type: ignore[misc]
        self.network = Silent()  # type: ignore[assignment]

    def leaders(self, topic: str, node_id: int | None = None) -> dict[int, int]:
        return {0: 2, 1: 3, 2: 2}


def test_the_same_seed_plans_the_same_and_another_seed_something_else() -> None:
    assert plan(7, EVERYWHERE, 3, 60) == plan(7, EVERYWHERE, 3, 60)
    assert plan(7, EVERYWHERE, 3, 60) != plan(8, EVERYWHERE, 3, 60)


def test_a_fault_comes_every_ten_seconds_and_ends_before_the_next() -> None:
    for seed in range(50):
        planned = plan(seed, EVERYWHERE, 3, 60)
        assert len(planned) == 6
        for number, each in enumerate(planned):
            assert number * 10 < each.at_s and each.at_s + each.lasts_s < number * 10 + 10
            assert each.target in (LEADER, 1, 2, 3)
            assert str(each)


def test_every_kind_comes_before_any_comes_twice() -> None:
    kinds = [each.kind for each in plan(3, EVERYWHERE, 3, 10 * len(EVERYWHERE))]
    assert sorted(kinds) == sorted(EVERYWHERE)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="meteor"):
        plan(1, ["kill", "meteor"], 3, 60)


@each_case(
    ("kind", "cut"),
    [
        ("partition", {("n2", "n1"), ("n1", "n2"), ("n2", "n3"), ("n3", "n2")}),
        ("link", {("n2", "n3"), ("n3", "n2")}),
        ("deaf", {("n1", "n2"), ("n3", "n2")}),
        ("mute", {("n2", "n1"), ("n2", "n3")}),
    ],
)
def test_what_is_cut_while_it_lasts_and_healed_after(kind: str, cut: set[tuple[str, str]]) -> None:
    cluster = PaperCluster(3)
    during: list[set[tuple[str, str]]] = []
    injector = Injector(cluster, "t", lambda _: None)
    injector.inject(Planned(0, kind, LEADER, 1, 1), lambda _: during.append({*cluster.network.cuts}))
    assert during == [cut]
    assert cluster.network.cuts == set()
    assert injector.done[0].nodes == [2] and injector.done[0].leader
    assert injector.done[0].led == ["t-0", "t-2"]


def test_a_fault_is_undone_when_waiting_for_it_was_interrupted() -> None:
    cluster = PaperCluster(3)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Injector(cluster, "t", lambda _: None).inject(Planned(0, "pause", 1, 1, 0), interrupted)
    assert cluster.nodes[1].did == ["pause", "resume"]  # type: ignore[attr-defined]


def test_a_ring_leaves_each_of_five_a_majority_of_its_own() -> None:
    cluster = PaperCluster(5)
    begin, undo, _ = KINDS["ring"](cluster, 1, 42)
    begin()
    seen = {
        frozenset(other for other in range(1, 6) if (f"n{node}", f"n{other}") not in cluster.network.cuts)
        for node in range(1, 6)
    }
    assert len(seen) == 5 and {len(each) for each in seen} == {3}
    undo()
    assert cluster.network.cuts == set()


def test_what_cannot_be_done_is_refused_by_name() -> None:
    with pytest.raises(NotPossible, match="lockstep cluster"):
        KINDS["membership"](PaperCluster(3), 1, 0)
    with pytest.raises(NotPossible, match="five"):
        KINDS["ring"](PaperCluster(3), 1, 0)
    with pytest.raises(NotPossible, match="disk"):
        KINDS["disk-full"](PaperCluster(3), 1, 0)
    assert set(faults.SINGLE_NODE) < set(KINDS) and set(EVERYWHERE) < set(KINDS)


def test_the_longest_gap_is_that_of_the_requested_partitions() -> None:
    history = History()
    history.add({"p": "p", "t": 0, "f": "producer", "idempotent": True})
    for number, (part, at_s) in enumerate((("t-0", 1), ("t-0", 4), ("t-0", 5), ("t-1", 2), ("t-0", 9))):
        value = f"p.{number}"
        history.add({"p": "p", "t": 0, "f": "send", "s": "invoke", "part": part, "key": "", "v": value})
        history.add({"p": "p", "t": at_s * 10**9, "f": "send", "s": "ok", "v": value, "offset": number})
    acknowledged = Acknowledgements(history)
    assert acknowledged.longest_silence_s(["t-0"], 0, 6 * 10**9) == 3
    assert acknowledged.longest_silence_s(["t-0", "t-1"], 0, 6 * 10**9) == 4
    assert acknowledged.longest_silence_s(["t-2"], 10**9, 3 * 10**9) == 2
    assert acknowledged.longest_silence_s([], 0, 10**9) == 0
