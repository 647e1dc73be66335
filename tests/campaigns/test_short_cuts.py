"""A short cut of each campaign, for every test run; the whole ones are `make kill` and `make malformed`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from compat_tests import spark_driver
from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail
from compat_tests.targets import LockstepTarget
from tests.campaigns import disk_full, exactly_once, fuzz, kill9, malformed, spark_sink, streams
from tests.campaigns.attacked_listeners import LISTENERS, AttackedListener, AttackedTarget
from tests.campaigns.brokers import Brokers
from tests.campaigns.disk_full import NotPossible

pytestmark = pytest.mark.timeout(900)


def test_five_kills_under_three_kinds_of_client_lose_and_double_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.campaigns.kill9 --kills 5 --seed {seed}")
    target = LockstepTarget({"num.partitions": str(kill9.PARTITIONS)}, directory=tmp_path)
    with target:
        result = kill9.run_round(
            target,
            topic="short-cut",
            kills=5,
            seed=seed,
            clients=["confluent", "confluent:plain", "aiokafka", "kafka-python"],
            records_per_s=100,
        )
    assert result.stuck == []
    assert result.verdict.problems == []
    assert result.kills == 5
    assert result.verdict.acked > 5 * kill9.MIN_RECORDS_BETWEEN_KILLS
    assert max(result.first_ack_s) < 30


def test_consume_transform_produce_is_exact_after_two_kills(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.campaigns.exactly_once --records 1200 --kills 2 --seed {seed}")
    brokers = Brokers("lockstep", 1, {}, tmp_path)
    try:
        brokers.start()
        campaign = exactly_once.Campaign(brokers, ["confluent:2", "aio:1"], 1200, 2, seed, tmp_path)
        campaign.run()
    finally:
        brokers.close()
    assert campaign.problems == []
    assert all(pipeline.counts()[0] >= 3 for pipeline in campaign.pipelines)


def test_streams_counts_words_exactly_once_after_a_kill(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.campaigns.streams --lines 300 --kills 1 --seed {seed}")
    brokers = Brokers("lockstep", 1, {}, tmp_path)
    try:
        brokers.start()
        campaign = streams.Campaign(brokers, 300, 1, seed, tmp_path)
        campaign.run()
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
        return
    finally:
        brokers.close()
    assert campaign.problems == []
    assert campaign.updates > 100


def test_two_thousand_malformed_frames_disturb_nobody(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.campaigns.malformed --frames 2000 --seed {seed}")
    settings = {"lockstep.tail.cache.bytes": "1048576"}  # filled during warm-up, so it is no growth
    with LockstepTarget(settings, directory=tmp_path) as target:
        campaign, figures = malformed.run(target, 2000, seed)
    assert campaign.problems == []
    assert figures["outcomes"]["answer"] > 200
    assert figures["outcomes"]["closed"] > 200
    assert figures["steady_client"]["records"] > 20


@pytest.mark.parametrize("name", sorted(set(LISTENERS) - {AttackedListener.name}))
def test_malformed_frames_before_and_after_a_login_and_to_tls(tmp_path: Path, name: str) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.campaigns.malformed --frames 500 --seed {seed} --listener {name}")
    listener = LISTENERS[name]()
    with AttackedTarget(listener, tmp_path, lockstep_tail_cache_bytes="1048576") as target:
        campaign, figures = malformed.run(target, 500, seed, listener=listener)
    assert campaign.problems == []
    answered = figures["outcomes"].get("answer", 0)
    assert answered == 0 if name == "no-tls" else answered > 20
    assert figures["outcomes"]["closed"] > 50
    assert figures["steady_client"]["records"] > 5


def test_a_full_disk_refuses_writes_serves_reads_and_recovers() -> None:
    try:
        figures = disk_full.run("tmpfs", seed=1)
    except NotPossible as reason:
        skip_or_fail(str(reason))
        return
    assert figures["problems"] == []
    assert figures["records_before_full"] > 20


@pytest.mark.parametrize(("engine", "inputs"), [("grammar", 7_500), ("coverage", 400)])
def test_fuzzed_inputs_raise_nothing_unexpected(tmp_path: Path, engine: str, inputs: int) -> None:
    seed = random.SystemRandom().randrange(2**31)
    words = f"--inputs {inputs} --engine {engine} --seed {seed}"
    print(f"repeat with: python -m tests.campaigns.fuzz {words}")
    run = fuzz.Run(tmp_path, seed, inputs, [engine])
    assert run.go() == []
    figures = run.figures([])["engines"][engine]
    assert figures["inputs"] == inputs
    assert figures["exits"] == 0
    assert all(figures["targets"][target]["accepted"] > 5 for target in ("request", "response", "handlers"))
    assert figures["handler_answers"] > min(100, inputs // 8)


@pytest.mark.parametrize("listener", ["before-login", "after-login", "inside-tls", "no-tls"])
def test_fuzzed_inputs_to_a_secured_listener_raise_nothing_unexpected(tmp_path: Path, listener: str) -> None:
    seed = random.SystemRandom().randrange(2**31)
    words = f"--inputs 1500 --engine grammar --seed {seed} --listener {listener}"
    print(f"repeat with: python -m tests.campaigns.fuzz {words}")
    run = fuzz.Run(tmp_path, seed, 1500, ["grammar"], listener)
    assert run.go() == []
    figures = run.figures([])["engines"]["grammar"]
    assert (figures["exits"], list(figures["targets"])) == (0, ["handlers"])
    assert figures["handler_frames"] > 1500
    assert figures["handler_answers"] > 100 or listener == "no-tls"


def test_the_sink_for_spark_doubles_nothing_after_two_kills(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(
        f"repeat with: python -m tests.campaigns.spark_sink --kills 2 --per-kill 100 --nodes 1 --seed {seed}"
    )
    try:
        spark_driver.installed()
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
    brokers = Brokers("lockstep", 1, {}, tmp_path / "brokers")
    directory = tmp_path / "spark"
    directory.mkdir()
    try:
        brokers.start()
        campaign = spark_sink.Campaign(brokers, "lockstep", 2, 100, seed, directory, [spark_sink.LOCAL])
        campaign.run()
    finally:
        brokers.close()
    assert campaign.problems == []
    assert campaign.figures["records"] >= 300
    assert sum(campaign.killed.values()) >= 1
