"""The disk's own counters, and how many flushes a claim of durability needs."""

from __future__ import annotations

import pytest

from bench.machine.device import NoBlockDevice, flushes_needed, parse_counters

DISKSTATS = """\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 57092 9607 3320378 11668 8683 21026 1234296 2431 0 5188 14313 3657 13 275648 198 434 14
"""


def test_flushes_are_the_nineteenth_field() -> None:
    counters = parse_counters(DISKSTATS, "vda")
    assert (counters.flushes, counters.flush_ms) == (434, 14)
    assert (counters.writes, counters.write_bytes) == (8683, 1234296 * 512)
    with pytest.raises(NoBlockDevice, match="does not list"):
        parse_counters(DISKSTATS, "sdz")
    with pytest.raises(NoBlockDevice, match="does not count"):
        parse_counters(DISKSTATS.replace(" 434 14", ""), "vda")


def test_one_producer_needs_a_flush_for_every_write() -> None:
    assert flushes_needed(1000, 1) == pytest.approx(950)
    assert flushes_needed(1600, 16) == pytest.approx(95)
