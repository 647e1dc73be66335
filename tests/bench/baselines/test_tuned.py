"""The settings of the tuned Kafka."""

from __future__ import annotations

from bench.baselines import tuned


def test_every_tuned_setting_has_its_reason_and_threads_follow_the_cores() -> None:
    assert all(setting.why for setting in tuned.settings())
    assert tuned.properties(8)["num.network.threads"] == "8"
    assert tuned.properties(1)["num.network.threads"] == "2"
    assert "num.io.threads" not in tuned.properties(2), "each waits for a flush: fewer flush fewer at once"
