"""The first page's figures in short: from which source, and what is no figure."""

from __future__ import annotations

from bench.full.lookup import Grid
from bench.page import short
from tests.bench.full.kept_rows import rounds
from tests.bench.page.results import cells_by_title, grid_of, grid_row, ratio_row


def test_a_figure_in_short_is_the_headlines_where_that_has_it_and_names_its_source() -> None:
    one = {"partitions": 1, "producers": 16, "rate": 0}
    rates = {"lockstep": 200.0, "kafka": 100.0, "lockstep-os": 50.0, "kafka-flush": 10.0}
    rows = [grid_row(name, point=one, **rounds("requests_per_s", rate)) for name, rate in rates.items()]
    headline = {"headline": {"comparison": [ratio_row("latency16.rate.flush", 6.56)]}}
    title = "one node: requests/s, 1 partition, 16 producers"
    both, free, cross, source = cells_by_title(short.promised_table(headline, grid_of(*rows)))[title]
    assert (both, free, cross) == ("**6.56** (6.56 / 1)", "**0.50** (50 / 100)", "**2.00** (200 / 100)")
    assert source == "grid; both flush: headline"
    assert cells_by_title(short.promised_table({}, grid_of(*rows)))[title][0] == "**20.00** (200 / 10)"
    assert short.section({}, Grid(None)) == ""


def test_a_latency_of_who_did_not_keep_the_rate_is_no_figure() -> None:
    point = {"partitions": 16, "producers": 16, "rate": short.RATE}
    rows = [
        grid_row(name, "rate-1kb", point=point, **rounds("p50_ms", 0.2, 0.2, requests_per_s=rate))
        for name, rate in (("lockstep", 1999.0), ("kafka", 1990.0), ("kafka-flush", 1829.0))
    ]
    title = "one node: p50 at 2,000 requests/s, 16 partitions, ms"
    found = cells_by_title(short.promised_table({}, grid_of(*rows)))[title]
    assert found[0] == "Kafka did not keep the rate (1,999, 1,829/s)"
    assert found[2] == "**1.00** (0.2 / 0.2)"


def test_a_figure_whose_rounds_are_far_apart_is_marked_in_short_too() -> None:
    rows = [
        grid_row("lockstep", **rounds("requests_per_s", 90.0, 110.0)),
        grid_row("kafka", **rounds("requests_per_s", 50.0, 50.0)),
    ]
    title = "one node: requests/s, 16 partitions, 16 producers"
    assert cells_by_title(short.promised_table({}, grid_of(*rows)))[title][2] == "**2.00** (100 / 50) ~"


def test_the_run_with_the_most_kills_speaks_for_a_lost_leader() -> None:
    few = [
        grid_row(name, "failover", 3, point={}, **rounds("first_ack_s", 0.1, 0.2))
        for name in ("lockstep", "kafka")
    ]
    many = {"ratio": "loss.g1", "value": 0.1, "subject_values": [0.1] * 3, "baseline_values": [9.0]}
    lost = short.lost_leader({"nodes3": {"comparison": [many]}}, grid_of(*few))
    assert lost == ([0.1] * 3, [9.0], "three nodes")
    assert short.lost_leader({}, grid_of(*few)) == ([0.1, 0.2], [0.1, 0.2], "grid")
    assert short.lost_leader({}, Grid(None)) is None


def test_a_tuned_kafka_stands_beside_an_untuned_one() -> None:
    rates = {"lockstep": 300.0, "kafka-flush": 100.0, "kafka-tuned-flush": 150.0}
    rates |= {"lockstep-os": 400.0, "kafka": 500.0, "kafka-tuned": 800.0}
    rows = [grid_row(target, **rounds("requests_per_s", rate, rate)) for target, rate in rates.items()]
    (cells,) = (
        each for title, each in cells_by_title(short.tuned_table(grid_of(*rows))).items() if "one" in title
    )
    assert cells == ["3.00", "2.00", "0.80", "0.50"]
    assert short.tuned_table(grid_of(*rows[:-1])) == ""
