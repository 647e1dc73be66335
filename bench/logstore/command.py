"""`python -m bench logstore`: seed 001's figures 7a to 7d, and pipeline depths, measured here."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, ClassVar

from bench.logstore.experiments import FULL, NAMES, QUICK, Axes, perform, plan
from bench.logstore.replicas import STREAM_BYTES_PER_S
from bench.logstore.tables import summary
from bench.progress import log_progress
from bench.runner import KEPT, PICTURE, POLICY, SECONDS, Measurement, Options
from bench.sessions.session import Session
from bench.settings import FLUSH, OS


class Logstore(Measurement[None, Session]):
    """Seed 001's figures 7a to 7d, and pipeline depths: the kept JSON has every run's figures."""

    name = "logstore"
    options: ClassVar[Options] = {
        "experiment": {"nargs": "*", "choices": [*NAMES, "all"], "default": "all", "help": "default: all"},
        **KEPT,
        **SECONDS,
        **POLICY,
        **PICTURE,
    }
    plots = "bench.page.plots.logstore"

    def choose_sizes(self, sizes: Any) -> Axes:
        axes = QUICK if self.chosen.quick else FULL
        return replace(axes, seconds=self.chosen.seconds) if self.chosen.seconds else axes

    def perform(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Runs, not sessions: a store of its own processes serves those that follow one another."""
        chosen = self.chosen.experiment
        names = frozenset(NAMES if "all" in chosen else chosen)
        runs = plan(self.sizes, names, tuple(self.chosen.policy or (FLUSH, OS)))
        log_progress(f"{len(runs)} runs")
        measured: list[dict[str, Any]] = [
            {
                "experiment": run.experiment,
                "store": asdict(run.store),
                "load": asdict(run.load),
                "figures": figures,
            }
            for run, figures in perform(runs, self.parent, self.sizes.prime_bytes)
        ]
        return measured, [str(each["figures"]["error"]) for each in measured if "error" in each["figures"]]

    def figures(self, measured: Any) -> dict[str, Any]:
        return {"axes": asdict(self.sizes), "stream_bytes_per_s": STREAM_BYTES_PER_S, "runs": measured}

    def kept_sizes(self) -> dict[str, Any]:
        return {"name": self.sizes.name}

    def table(self, result: dict[str, Any]) -> str:
        return summary(result)
