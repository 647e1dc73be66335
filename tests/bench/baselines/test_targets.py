"""The brokers that a workload can name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.baselines import targets, tuned
from bench.baselines.targets import BROKERS, TARGETS, WORDS
from bench.kinds.headline import ONE_QUICK


def test_a_broker_in_memory_is_warmed_up_by_writes_alone(tmp_path: Path) -> None:
    """tansu answers a fetch with all it has, however little is asked for."""

    class Recording(targets.OneBroker):
        jobs: tuple[str, ...] = ()

        def job(self, name: str, **words: object) -> dict[str, Any]:
            self.jobs += (name,)
            return {"total_requests": 1}

    def jobs_of(target: str) -> tuple[str, ...]:
        session = Recording(targets.TARGETS[target], ONE_QUICK, tmp_path)
        session._warm_slice("topic", 1)
        return session.jobs

    assert jobs_of("tansu") == ("closed_loop",)
    assert jobs_of("lockstep") == ("closed_loop", "fill", "read_backlog")


def test_every_target_is_described_and_kafka_serves_two_from_one_process() -> None:
    assert set(WORDS) == set(TARGETS)
    assert TARGETS["kafka"] is TARGETS["kafka-flush"] is not TARGETS["kafka-tuned"]
    assert [broker.name for broker in BROKERS if not broker.keeps] == ["tansu", "kfake"]


def test_every_tuned_setting_has_its_reason_and_threads_follow_the_cores() -> None:
    assert all(setting.why for setting in tuned.settings())
    assert tuned.properties(8)["num.network.threads"] == "8"
    assert tuned.properties(1)["num.network.threads"] == "2"
    assert "num.io.threads" not in tuned.properties(2), "each waits for a flush: fewer flush fewer at once"
