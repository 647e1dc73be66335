"""What was meant by a name that there is not."""

from __future__ import annotations

from lockstep.broker.settings.suggestions import Suggestions
from tests.support.cases import each_case

NAMES = Suggestions({"retention.ms": "retention.ms", "segment.ms": "segment.ms", "log.roll.ms": "segment.ms"})


@each_case(
    ("name", "meant"),
    [
        ("retenion.ms", "retention.ms"),
        ("retention.mss", "retention.ms"),
        ("retention_ms", "retention.ms"),
        ("retentoin.ms", "retention.ms"),
        ("Retention.MS", "retention.ms"),
        ("log.roll.ms", "segment.ms"),
        ("log.rol.ms", "segment.ms"),
        ("retention", None),
        ("", None),
        ("retention.mss", "retention.ms"),
        ("retention.msss", None),
    ],
)
def test_one_slip(name: str, meant: str | None) -> None:
    assert NAMES.suggest(name) == meant
    assert NAMES.hint(name) == ("" if meant is None else f"; did you mean {meant}?")


def test_a_whole_name_goes_before_one_that_lacks_a_character() -> None:
    names = Suggestions({"min.lag.mss": "other", "min.lag.ms": "min.lag.ms"})
    assert (names.suggest("MIN.LAG.MS"), names.suggest("min.lag.msx")) == ("min.lag.ms", "min.lag.ms")
