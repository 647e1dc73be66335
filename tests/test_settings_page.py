"""docs/settings.md is what the declarations of the settings make of it."""

from __future__ import annotations

from lockstep.broker.settings.config import PROPERTIES
from lockstep.broker.settings.properties import Kind, Property
from lockstep.broker.settings.topic_config import TOPIC_PROPERTIES
from tests.settings_page import PAGE, is_own, page, values


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.settings_page"


def test_the_page_has_each_setting_once() -> None:
    lines = [line.split("|")[1].strip() for line in page().splitlines() if line.startswith("| `")]
    assert lines.count("`lockstep.segment.bytes`") == 1
    assert len(lines) == len(PROPERTIES) + len(TOPIC_PROPERTIES)


def test_each_number_has_a_unit_and_each_setting_a_meaning() -> None:
    for _, declared in [*PROPERTIES.values(), *TOPIC_PROPERTIES.values()]:
        is_number = declared.kind in (Kind.SHORT, Kind.INT, Kind.LONG, Kind.DOUBLE)
        assert is_number == (declared.unit_name != ""), declared.name
        assert declared.doc.endswith("."), declared.name


def test_values_and_owners() -> None:
    assert values(Property("a", Kind.LONG, 1, "", minimum=-1, maximum=70_000)) == "long from -1 to 70,000"
    assert values(Property("a", Kind.DOUBLE, 1.0, "", maximum=0.5)) == "double to 0.5"
    assert values(Property("a", Kind.STRING, "x", "", choices=("x", "y"))) == "`x`, `y`"
    assert is_own("lockstep.locks") and is_own("log.flush") and not is_own("log.flush.interval.ms")
