"""How a run in several processes (pytest -n) is shared out.

Owns: which tests stay together, and that Ctrl-C can be tested. Tests of one file stay together; the cases of
`compat_tests` do by broker and kind of client instead, so that few brokers and drivers are started. Does
nothing else in a run of one process.
"""

from __future__ import annotations

import re
import signal
from typing import Any, ClassVar

from lockstep.native import enable_if_wanted

enable_if_wanted()  # before anything of ours is imported

from compat_tests import harness  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background passes that on
    signal.signal(signal.SIGINT, signal.default_int_handler)

_CONNECT = frozenset(f"compat_tests/test_{name}.py" for name in ("connect", "debezium", "mirror_maker"))
_PARAMETERS = re.compile(r"\[(.*)\]$")


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


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """The scheduler for whole shares; called by pytest-xdist alone."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByShare(LoadScopeScheduling):  # type: ignore[misc]
        again: ClassVar[set[str]] = set()  # tests whose process ended in them

        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid in self.again else share_of(nodeid)

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
