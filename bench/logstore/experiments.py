"""The experiments of seed 001's figure 7: what varies and what is kept.

Owns: the values on every axis. The seed states neither its payload sizes nor a flush policy: sizes around
those that it names (1 KB, 4 KB), both policies. A generator of (experiment, labels, figures) per run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bench.exit_status import log_progress
from bench.logstore.replicas import RUN_TIMEOUT_S, STREAM_BYTES_PER_S, Figures, Load, Replicas, Store
from bench.logstore.tables import summary
from bench.runner import KEPT, POLICY, SECONDS, Measurement, Options
from bench.sessions.jobs import RoundFailed
from bench.sessions.session import Session
from bench.settings import FLUSH, OS

NAMES = ("7a", "7b", "7c", "7d")
PRIMED = ("7b", "7c")
REPEATS = 1


@dataclass(frozen=True)
class Axes:
    """The sizes of the experiments."""

    name: str
    payload_bytes: tuple[int, ...]
    seconds: float
    warmup_s: float
    volume_bytes: int
    """7a: payload per run."""
    volume_rate_bytes: int
    """7a: how fast it is offered; slow enough that neither store falls behind."""
    batch: int
    """Payloads in a request, where they do not vary."""
    batches: tuple[int, ...]
    rates: tuple[int, ...]
    replicas: tuple[int, ...]
    prime_bytes: int
    """Written before 7b and 7c, so that segments are recycled, as in a store that has run for long."""
    batch_rate: int = 10_000
    replicas_rate: int = 32_000


FULL = Axes(
    name="full",
    payload_bytes=(128, 512, 1024, 4096),
    seconds=6.0,
    warmup_s=2.0,
    volume_bytes=512 << 20,
    volume_rate_bytes=20_000_000,
    batch=32,
    batches=(1, 2, 4, 8, 16, 32, 64, 128),
    rates=(1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000),
    replicas=(1, 3, 5),
    prime_bytes=640 << 20,
)

QUICK = Axes(
    name="quick",
    payload_bytes=(1024, 4096),
    seconds=1.0,
    warmup_s=0.5,
    volume_bytes=16 << 20,
    volume_rate_bytes=10_000_000,
    batch=32,
    batches=(1, 32),
    rates=(1_000, 32_000),
    replicas=(1, 3),
    prime_bytes=0,
)
"""Sizes that show that it works, not how fast it is."""


@dataclass(frozen=True)
class Run:
    """One client's run against one store."""

    experiment: str
    store: Store
    load: Load


def plan(axes: Axes, names: frozenset[str], policies: tuple[str, ...]) -> list[Run]:
    """Every run; those against the same store follow one another."""
    runs: list[Run] = []
    for policy in policies:
        store = Store(flush=policy == FLUSH)
        for make in (_7a, _7b, _7c, _7d):
            runs += [run for run in make(axes, store) if run.experiment in names]
    return runs


def _steady(axes: Axes, payload_bytes: int, batch: int, rate: float) -> Load:
    return Load(payload_bytes, batch, rate, axes.seconds, axes.warmup_s)


def _7a(axes: Axes, store: Store) -> Iterator[Run]:
    for size in axes.payload_bytes:
        rate = axes.volume_rate_bytes / size
        requests = axes.volume_bytes // (size * axes.batch)
        load = Load(size, axes.batch, rate, 10 * axes.volume_bytes / axes.volume_rate_bytes, 0.0, requests)
        for naive in (False, True):
            yield Run("7a", replace(store, naive=naive, recycle=False), load)


def _7b(axes: Axes, store: Store) -> Iterator[Run]:
    for size in axes.payload_bytes:
        for batch in axes.batches:
            yield Run("7b", store, _steady(axes, size, batch, axes.batch_rate))


def _7c(axes: Axes, store: Store) -> Iterator[Run]:
    for size in axes.payload_bytes:
        for rate in axes.rates:
            yield Run("7c", store, _steady(axes, size, axes.batch, rate))


def _7d(axes: Axes, store: Store) -> Iterator[Run]:
    for replicas in axes.replicas:
        for size in axes.payload_bytes:
            load = _steady(axes, size, axes.batch, axes.replicas_rate)
            yield Run("7d", replace(store, replicas=replicas), load)


def perform(runs: list[Run], parent: Path, prime_bytes: int) -> Iterator[tuple[Run, Figures]]:
    """Each run's figures, or {"error": ...}; a store serves all runs that follow one another.

    In 7a every run has a store of its own: what it occupies is what is measured.
    """
    place = 0
    while place < len(runs):
        store = runs[place].store
        end = place + 1
        while store.recycle and end < len(runs) and runs[end].store == store:
            end += 1
        primed = prime_bytes if runs[place].experiment in PRIMED else 0
        yield from _with_store(store, runs[place:end], parent, primed)
        place = end


def priming_load(total_bytes: int) -> Load:
    """A load without a rate."""
    return Load(4096, 32, 1e6, RUN_TIMEOUT_S / 2, 0.0, total_bytes // (4096 * 32))


def _with_store(
    store: Store, runs: list[Run], parent: Path, prime_bytes: int
) -> Iterator[tuple[Run, Figures]]:
    """A run that fails (its leader was lost, mostly) is repeated once, against a fresh store."""
    done = failed = 0
    while done < len(runs):
        try:
            with Replicas(store, parent) as replicas:
                if prime_bytes:
                    replicas.run(priming_load(prime_bytes))
                while done < len(runs):
                    run = runs[done]
                    figures = {**replicas.run(run.load), "repeated": failed}
                    _print_figures(run, figures)
                    done, failed = done + 1, 0
                    yield run, figures
        except RoundFailed as error:
            log_progress(f"  FAILED: {error}")
            failed += 1
            if failed > REPEATS:
                done, failed = done + 1, 0
                yield runs[done - 1], {"error": str(error)}


def _print_figures(run: Run, figures: Figures) -> None:
    store, load = run.store, run.load
    words = [run.experiment, f"{store.replicas} replicas", "flush" if store.flush else "os"]
    words += ["naive"] * store.naive
    late = f", p50 {figures['p50_ms']:.2f} ms" if "p50_ms" in figures else ""
    log_progress(
        f"  {' '.join(words)}: {load.payload_bytes} B x {load.batch} at {load.rate:,.0f}/s: "
        f"{figures['payloads_per_s']:,.0f}/s, {figures['mb_per_s']:.1f} MB/s{late}, "
        f"leader {figures['cpu_share']['leader']:.0%}, client {figures['cpu_share']['client']:.0%} of a CPU"
    )


class Logstore(Measurement[None, Session]):
    """Seed 001's figures 7a to 7d: the kept JSON has every run's figures."""

    name = "logstore"
    options: ClassVar[Options] = {
        "experiment": {"nargs": "*", "choices": [*NAMES, "all"], "default": "all", "help": "default: all"},
        **KEPT,
        **SECONDS,
        **POLICY,
    }

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
