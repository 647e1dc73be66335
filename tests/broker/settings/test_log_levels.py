"""Log levels under Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from lockstep.broker.settings.log_levels import ROOT, levels, set_level


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    top, child = logging.getLogger("lockstep"), logging.getLogger("lockstep.a-test")
    before = top.level
    yield
    top.setLevel(before)
    child.setLevel(logging.NOTSET)


def test_a_logger_follows_the_topmost_until_it_has_a_level_of_its_own() -> None:
    set_level(ROOT, "WARN")
    assert (levels()[ROOT], levels()["lockstep.a-test"]) == ("WARN", "WARN")
    set_level("lockstep.a-test", "TRACE")
    assert (levels()[ROOT], levels()["lockstep.a-test"]) == ("WARN", "TRACE")
    assert logging.getLogger("lockstep.a-test").isEnabledFor(logging.DEBUG)
    set_level("lockstep.a-test", None)
    assert levels()["lockstep.a-test"] == "WARN"


def test_levels_between_those_that_have_names() -> None:
    for number, name in ((1, "TRACE"), (15, "DEBUG"), (logging.CRITICAL + 5, "FATAL")):
        logging.getLogger("lockstep.a-test").setLevel(number)
        assert levels()["lockstep.a-test"] == name


def test_other_peoples_loggers_are_not_ours() -> None:
    logging.getLogger("somebody.else")
    assert all(name == ROOT or name.startswith("lockstep.") for name in levels())
