"""`python -m bench locks`: what a lock costs, beside the same record on a topic without locks.

Owns: the blocks: one node, one closed-loop producer (`bench.load.locks`), in turns on a topic with
`lockstep.locks=true` and on one without; the broker's CPU per write beside the latencies. A ratio is that of
medians over the rounds; one above `--most` is missed. No other broker is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tabulate import tabulate

from bench import argument_types
from bench.exit_status import log_progress
from bench.figures.ratios import medians
from bench.runner import RUN, Measurement, Options, mirror_rounds
from bench.sessions.jobs import Block
from bench.sessions.session import LockstepSession
from bench.settings import FLUSH

MODES = {"plain": "ignore", "locked": "true"}
"""By name of the block: the topic's `lockstep.locks`."""
RATIOS = ("p50_ms", "broker_cpu_us")


class LocksSession(LockstepSession):
    """One node, and topics of one mode at a time."""

    mode = "ignore"

    def _topic_config(self, policy: str) -> dict[str, str]:
        return {"lockstep.locks": self.mode}

    def measure_mode(self, name: str) -> None:
        """One block."""
        self.mode = MODES[name]
        window = {"seconds": self.sizes.latency_s, "warmup_s": self.sizes.latency_warmup_s}

        def work(topic: str) -> Block:
            result = self.job("locked_writes", topic=topic, **window)
            return {**result, "writes": result["total_requests"]}

        block = self.measure(name, FLUSH, work, max_outstanding=1)
        block["figures"]["broker_cpu_us"] = block["broker_cpu_s"] / block["writes"] * 1e6
        log_progress(f"  {name:8} p50 {block['figures']['p50_ms']:.3f} ms")


class Locks(Measurement[tuple[str, ...], LocksSession]):
    """The cost of a lock, beside the same record on a topic without locks."""

    name = "locks"
    options: ClassVar[Options] = {
        **RUN,
        "--most": {"type": argument_types.positive, "default": 1.3, "help": "what both ratios may be"},
    }

    def plan(self) -> Sequence[tuple[str, ...]]:
        return [tuple(each) for each in mirror_rounds([[*MODES], [*MODES][::-1]], -(-self.sizes.rounds // 2))]

    def session(self, planned: tuple[str, ...]) -> LocksSession:
        return LocksSession(self.sizes, self.parent)

    def measure(self, planned: tuple[str, ...], session: LocksSession) -> None:
        session.start()
        for name in planned:
            session.measure_mode(name)

    def figures(self, measured: Any) -> dict[str, Any]:
        """A row for each mode, and the locked one's over the plain one's."""
        blocks = [block for session in measured for block in session["blocks"] if block["proven"]]
        found = {name: medians(each["figures"] for each in blocks if each["name"] == name) for name in MODES}
        rows: list[dict[str, Any]] = [{"mode": name, **each} for name, each in found.items() if each]
        if len(rows) < len(MODES):
            return {"rows": rows, "sessions": measured, "failures": ["not both modes were measured"]}
        ratio = {name: found["locked"][name] / found["plain"][name] for name in RATIOS}
        return {"rows": [*rows, {"mode": "ratio", **ratio}], "sessions": measured}

    def missed_goals(self, result: dict[str, Any]) -> list[str]:
        ratios = {name: result["rows"][-1][name] for name in RATIOS}
        most = self.chosen.most
        return [f"{name} is {each:.2f}, wanted <= {most:g}" for name, each in ratios.items() if each > most]

    def table(self, result: dict[str, Any]) -> str:
        names = ("p50_ms", "p99_ms", "broker_cpu_us")
        rows = [
            [row["mode"], *(f"{row[name]:.3f}" if name in row else "" for name in names)]
            for row in result["rows"]
        ]
        return tabulate(rows, headers=["topic", *names], disable_numparse=True)
