"""Which tier a test is in, and how a run in several processes (pytest -n) is shared out.

Owns: the tiers (decision 53), which tests stay together, that Ctrl-C can be tested, and that the garbage
collector passes over the tests themselves. Tests of one file stay together; the cases of `compat_tests` do
by broker and kind of client instead, so that few brokers and drivers are started.
"""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Generator, Mapping
from typing import Any, ClassVar

import hypothesis
import pytest

from lockstep.native import enable_if_requested

enable_if_requested()  # before anything of ours is imported

from compat_tests import fork_server, harness  # noqa: E402

# An example may be held up by the other processes of a run; pytest's timeout ends what hangs.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background passes that on
    signal.signal(signal.SIGINT, signal.default_int_handler)

TIERS = ("quick", "test", "rest", "release")
"""`make test-quick` runs the first, `make test` the first two, `make test-rest` the third, test-all all."""
_QUICK = ("tests/protocol/", "tests/storage/", "tests/broker/")
_NOT_QUICK = (
    "tests/broker/bad_input/",
    "tests/broker/cluster/",
    "tests/broker/controller/test_cluster_admin.py",
    "tests/broker/controller/test_cluster_topics.py",
    "tests/broker/controller/test_reassignment.py",
    "tests/broker/membership/test_reconciler.py",
    "tests/protocol/test_against_kio.py",
    "tests/protocol/test_compiler.py",
    "tests/protocol/test_hostile.py",
    "tests/storage/log/test_crash_states.py",
    "tests/storage/log/test_join_faults.py",
    "tests/storage/test_attacks.py",
    "tests/storage/test_disk_full_release.py",
    "tests/storage/test_replication.py",
)
"""Tests that start clusters or take long, in the folders of quick ones."""

_TOOLS = ("tests/bench/", "tests/campaigns/", "tests/model/", "tests/power/", "tests/torture/")
"""Tests of the benchmarks and the campaigns themselves."""

_SECURED = tuple(
    f"compat_tests/secured/test_{name}.py" for name in ("failures", "members", "secured_tools", "word_count")
)
"""What clients do once they are in, and what they say when they are not let in."""
_OUR_CONNECTOR = "compat_tests/test_spark_"
_SPARK = ("compat_tests/spark_cases/", _OUR_CONNECTOR)
_PACKAGING = ("tests/lockstep/test_distribution.py",)
"""What a wheel and an sdist hold, and what an application sees of them."""
_CONNECT = frozenset(f"compat_tests/test_{name}.py" for name in ("connect", "debezium", "mirror_maker"))
LONG_SHARES = (
    "tests/campaigns/test_short_cuts.py",
    "spark 4.2.0",
    "compat_tests/test_spark_pages.py",
    "tests/torture/test_short_cut.py",
    "tests/protocol/test_hostile.py",
    "tests/test_readme.py",
    "tests/broker/produce/test_produce_fast_path.py",
    "compat_tests/test_spark_pipelines.py",
    "tests/sim/test_straight_commit.py",
    "tests/sim/test_world.py",
    "tests/protocol/test_compiler.py",
    "tests/protocol/test_against_kafka_java.py",
    "connect",
    "tests/sim/test_plants.py",
    "spark 4.0.0",
    "tests/power/test_campaign.py",
    "compat_tests/test_spark_sink.py",
    "tests/campaigns/test_churn.py",
    "tests/broker/bad_input/test_memory.py",
    "tests/lockstep/test_own_secured_clients.py",
    "tests/lockstep/commands/test_leaders_that_go.py",
    "tests/storage/log/test_join_faults.py",
    "tests/campaigns/test_linearizable.py",
    "tests/campaigns/test_player.py",
    "tests/campaigns/test_smoke.py",
    "tests/campaigns/test_sabotage.py",
    "tests/campaigns/test_damage.py",
    "tests/test_coverage.py",
    "tests/storage/log/test_crash_states.py",
)
"""Shares whose tests take minutes, in the order in which they begin."""
_USUAL_TEST_S = 0.3
_SPREAD = 0.7
"""Long shares begin within this part of a run: what is left at its end is short."""
_PARAMETERS = re.compile(r"\[(.*)\]$")


def tier_of(
    path: str,
    *,
    named: str | None = None,
    needs_java: bool = False,
    words: Mapping[str, object] | None = None,
) -> str:
    """The tier of a test: the one that its mark names, or else the one of its place and its parameters.

    What Apache Kafka or an older version of a client does is `rest`: it shows no property of Lockstep that
    the newest versions do not show. So are whole programs, Spark with either connector and Kafka Connect,
    most cases over secured listeners, packages, and the tests of the benchmarks and the campaigns.
    Clients from elsewhere and our connector on Apache Kafka, and an older Spark, are `release`: its own
    client judges cases.

    Args: path: of its file. named: by its mark `tier(name=...)`. needs_java: it is marked `java`.
    words: its parameters' names and values.
    """
    if named is not None:
        return named
    found = words or {}
    clients = {str(found[each]) for each in ("client", "writer") if each in found}
    is_on_kafka = found.get("target") == harness.KafkaTarget.name
    is_older_spark = found.get("spark_version", harness.SPARK_VERSION) != harness.SPARK_VERSION
    is_our_connector = path.startswith(_OUR_CONNECTOR)
    if is_older_spark or (is_on_kafka and (is_our_connector or not clients <= {harness.Java.name})):
        return "release"
    if is_on_kafka or clients & harness.SECOND_VERSIONS:
        return "rest"
    if path in _CONNECT or path.startswith((*_SPARK, *_SECURED, *_TOOLS, *_PACKAGING)):
        return "rest"
    is_quick = path.startswith(_QUICK) and not path.startswith(_NOT_QUICK) and not needs_java
    return "quick" if is_quick else "test"


def pytest_configure(config: pytest.Config) -> None:
    fork_server.use_forks()
    config.addinivalue_line("markers", f"tier(name): one of {', '.join(TIERS)}, by default as tier_of says")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test is marked with its tier, for `-m "tier(name='rest')"`."""
    for item in items:
        names = {str(mark.kwargs.get("name", "")) for mark in item.iter_markers("tier")}
        if len(names) > 1:  # pytest's -m would find it by each
            raise pytest.UsageError(f"{item.nodeid}: in two tiers, {' and '.join(sorted(names))}")
        named = next(iter(names), None)
        words = getattr(getattr(item, "callspec", None), "params", {})
        needs_java = item.get_closest_marker("java") is not None
        tier = tier_of(item.nodeid.partition("::")[0], named=named, needs_java=needs_java, words=words)
        if tier not in TIERS:
            raise pytest.UsageError(f"{item.nodeid}: no tier is called {tier!r}, only {', '.join(TIERS)}")
        if named is None:
            item.add_marker(pytest.mark.tier(name=tier))


def share_of(node_id: str) -> str:
    """The name of the share that a test belongs to."""
    path, _, _ = node_id.partition("::")
    found = _PARAMETERS.search(node_id)
    words = found[1] if found else ""
    target = max((name for name in harness.TARGETS if f"on-{name}" in words), key=len, default=None)
    if target is None or not path.startswith("compat_tests/"):
        return path
    if path.startswith("compat_tests/spark_cases/"):  # one session serves all brokers
        return f"spark {max((each for each in harness.SPARKS if each in words), default='')}"
    if path in _CONNECT:  # MirrorMaker's cases need all brokers
        return "connect"
    clients = [name for name in harness.CLIENTS if name in words]
    return f"{target} {harness.share_of(max(clients, key=len, default=''))}"


def in_turns(tests: Mapping[str, int]) -> list[str]:
    """The shares in the order in which they begin, given how many tests each has.

    Most tests first. Long shares are put between them at equal distances: several Sparks and JVMs at once
    time out, and one alone at the end leaves a processor idle.
    """
    long = [each for each in LONG_SHARES if each in tests]
    others = sorted((each for each in tests if each not in LONG_SHARES), key=lambda each: -tests[each])
    step = sum(tests[each] for each in others) * _USUAL_TEST_S * _SPREAD / max(1, len(long))
    order: list[str] = []
    due = begun = 0.0
    for each in others:
        if long and begun >= due:
            order.append(long.pop(0))
            due += step
        order.append(each)
        begun += tests[each] * _USUAL_TEST_S
    return order + long


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is collected lives as long as the run: half a million objects, 0.3 s for each full collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """The scheduler for whole shares; called by pytest-xdist alone."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByShare(LoadScopeScheduling):  # type: ignore[misc]
        is_ordered = False
        again: ClassVar[set[str]] = set()  # tests whose process ended in them

        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid in self.again else share_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            if not self.is_ordered:
                self.is_ordered = True
                for share in in_turns({name: len(tests) for name, tests in self.workqueue.items()}):
                    self.workqueue.move_to_end(share)
            super()._assign_work_unit(node)

        def remove_node(self, node: Any) -> str | None:
            """Take back the work of a process that ended; the test that it ended in is not run again yet."""
            work = self.assigned_work[node]
            unfinished = ((unit, test) for unit in work.values() for test, done in unit.items() if not done)
            unit, ended_in = next(unfinished, (None, None))
            if unit is not None:
                unit[ended_in] = True
            for share in [share for share, unit in work.items() if all(unit.values())]:
                del work[share]  # a share with nothing left would be the next process's only one
            super().remove_node(node)
            return ended_in

        def _reschedule(self, node: Any) -> None:
            """Not to a process that has not said yet which tests it finds, as where several end at once."""
            if node in self.registered_collections:
                super()._reschedule(node)

        def mark_test_pending(self, item: str) -> None:
            """A second try, in a share of its own: another process may have what was left of the test's."""
            self.again.add(item)
            self.workqueue[item] = {item: False}
            for node in self.nodes:
                self._reschedule(node)

    return ByShare(config, log)
