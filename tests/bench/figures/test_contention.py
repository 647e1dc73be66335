"""Who starves, and what all clients come to together."""

from __future__ import annotations

import pytest

from bench.figures.contention import LEAST_SUCCESSES, longest_allowed_s, point, starvation
from tests.bench.kinds.results import client_result
from tests.support.cases import each_case


def test_a_point_is_of_all_clients_together() -> None:
    found = point([client_result(300, 150), client_result(100, 50, longest_wait_s=0.7)], 10.0)
    assert (found["goodput_per_s"], found["refusals_per_success"]) == (40.0, 0.5)
    assert (found["least_share"], found["longest_wait_s"], found["mean_wait_s"]) == (0.5, 0.7, 0.05)
    assert found["p99_ms"] == 5.0 and starvation(found) is None


def test_a_client_with_too_few_successes_starves() -> None:
    said = starvation(point([client_result(200), client_result(200), client_result(60)], 10.0))
    assert said is not None and "39% of its share" in said


def test_a_client_that_waits_too_long_starves() -> None:
    fine = point([client_result(200), client_result(200, longest_wait_s=1.0)], 2.0)
    assert longest_allowed_s(fine) == 1.0 and starvation(fine) is None, "waits below a second are forgiven"
    said = starvation(point([client_result(200), client_result(200, longest_wait_s=1.01)], 2.0))
    assert said is not None and "waited 1.01 s" in said
    slow = point([client_result(100), client_result(100, longest_wait_s=1.9)], 10.0)
    assert longest_allowed_s(slow) == pytest.approx(2.0) and starvation(slow) is None


@each_case("successes", [0, LEAST_SUCCESSES - 1])
def test_few_successes_show_nothing(successes: int) -> None:
    said = starvation(point([client_result(successes)] * 2, 10.0))
    assert said is not None and "too few" in said
