"""Times as text."""

from __future__ import annotations

import pytest

from lockstep.protocol.utc_time import utc_time
from tests.support.cases import each_case


@each_case(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_859_546_288, "2026-11-28T09:52:26.288Z"),
        (1_795_859_546_000, "2026-11-28T09:52:26.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (-62_135_596_800_001, "-62135596800001"),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
    ],
)
def test_a_time_is_shown_in_utc(timestamp_ms: int, text: str) -> None:
    assert utc_time(timestamp_ms) == text


def test_the_zone_of_the_machine_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert utc_time(1_795_859_546_288) == "2026-11-28T09:52:26.288Z"
