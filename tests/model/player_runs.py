"""What TLC is asked of LogPlayer: safety with faults, liveness once they stop, a planted mistake per rule.

The bounds of liveness are smaller: TLC keeps the whole graph for it.
"""

from __future__ import annotations

from dataclasses import replace

from tests.model.planted import PlantedMistake, change, planted
from tests.model.tlc import Configuration

INVARIANTS = (
    "AppliedInOrderOnce",
    "StreamBringsWhatIsDue",
    "OlderStreamsAreOver",
    "AckedIsStored",
    "QueueIsWhatItsStateSays",
    "NewestIsNotStopped",
)
PROPERTIES = ("AcksGoForward", "TermsNeverBack")
LIVENESS = ("AllIsDelivered",)


def player(**changed: object) -> Configuration:
    """LogPlayer: one target, all of whose entries are its own, and one stream that is cut."""
    constants: dict[str, str] = {
        "Length": "2",
        "Routes": "{{1, 2}}",
        "MaxPlayers": "1",
        "MaxProcesses": "1",
        "MaxTerm": "2",
        "MaxCuts": "1",
        "MaxBatch": "2",
        "MaxWindow": "2",
        "MaxNormal": "2",
        "MaxCatchup": "2",
        "MaxFeed": "1",
        "Dummies": "FALSE",
        "Others": "FALSE",
        "Fenced": "TRUE",
        "Reduced": "TRUE",
        "Plant": '""',
    }
    change(constants, changed)
    return Configuration("LogPlayer", constants, INVARIANTS, PROPERTIES)


def lively(**changed: object) -> Configuration:
    """The same, with fairness: faults are counted, so they stop, and then all is delivered."""
    return replace(player(**changed), invariants=(), properties=LIVENESS, specification="FairSpec")


PLAYER_DAY: dict[str, Configuration] = {
    "player: streams cut twice": player(MaxCuts=2, MaxTerm=3, Length=3, Routes="{{1, 2, 3}, {2}}"),
    "player: processes and players replaced": player(MaxProcesses=2, MaxPlayers=3, MaxTerm=3),
    "player: other targets": player(MaxPlayers=2, Others=True, Routes="{{1, 2}, {2}}"),
    "player: dummies": player(Length=3, Routes="{{1}, {2, 3}}", Dummies=True, MaxProcesses=2, MaxTerm=3),
    "player: overflow": player(
        Length=4,
        Routes="{{1, 2, 3, 4}}",
        MaxNormal=1,
        MaxCatchup=1,
        MaxWindow=1,
        MaxProcesses=2,
        MaxTerm=4,
    ),
    "player: every order of steps": player(MaxProcesses=2, Reduced=False),
    "player: every order of steps, two players": player(MaxPlayers=2, Reduced=False),
    "player: all is delivered": lively(MaxPlayers=2, MaxProcesses=2, MaxTerm=3),
    "player: all is delivered, overflow": lively(
        Length=4, Routes="{{1, 2, 3, 4}}", MaxNormal=1, MaxCatchup=1, MaxWindow=1, MaxTerm=4
    ),
}

PLAYER_NIGHT: dict[str, Configuration] = {
    "player: streams cut, processes and players replaced": player(
        MaxCuts=2, MaxProcesses=3, MaxPlayers=2, MaxTerm=4, Routes="{{1, 2}, {2}}"
    ),
    "player: other targets, dummies": player(
        Length=3,
        Routes="{{1}, {3}, {1, 2}, {2, 3}, {1, 2, 3}}",
        MaxPlayers=2,
        Others=True,
        Dummies=True,
        MaxFeed=2,
    ),
    "player: overflow": player(
        Length=5, Routes="{{1, 2, 3, 4, 5}}", MaxNormal=1, MaxCatchup=1, MaxWindow=2, MaxCuts=2, MaxTerm=4
    ),
    "player: every order of steps": player(
        MaxProcesses=2, MaxPlayers=2, MaxTerm=2, Routes="{{1, 2}}", Reduced=False
    ),
    "player: all is delivered": lively(
        Length=3,
        Routes="{{1, 2, 3}, {2}}",
        MaxPlayers=2,
        MaxProcesses=2,
        MaxTerm=4,
        MaxNormal=1,
        Dummies=True,
    ),
}

WITHOUT_TERMS = "without_terms"
"""No mistake but a constant: nobody looks at terms."""

_BRINGS = ("StreamBringsWhatIsDue",)
_MISTAKES: tuple[tuple[str, tuple[str, ...], dict[str, object]], ...] = (
    ("term_not_checked", ("NewestIsNotStopped",), {}),
    ("read_without_term", _BRINGS, {"Others": True}),
    ("target_term_not_checked", ("OlderStreamsAreOver",), {}),
    ("transaction_without_terms", ("AppliedInOrderOnce",), {"MaxProcesses": 2}),
    ("any_hello", ("TermsNeverBack",), {"MaxPlayers": 2}),
    ("ack_before_store", ("AckedIsStored",), {}),
    ("dummy_not_stored", ("AckedIsStored",), {"Routes": "{{1}}"}),
    ("start_early", _BRINGS, {}),
    ("start_late", _BRINGS, {}),
    ("end_early", _BRINGS, {}),
    ("end_late", _BRINGS, {}),
    ("end_read_before_rf", _BRINGS, {}),
    ("end_not_extended", _BRINGS, {"Length": 4, "Routes": "{{1, 2, 3, 4}}", "MaxNormal": 1}),
    ("dummy_overtakes", _BRINGS, {"Dummies": True}),
    ("late_ack", ("AcksGoForward",), {}),
    ("suspend_keeps", ("QueueIsWhatItsStateSays",), {}),
    ("popped_not_written", _BRINGS, {"Length": 3, "Routes": "{{1, 2, 3}}", "MaxWindow": 3}),
    ("stored_sent_again", _BRINGS, {"Others": True, "MaxPlayers": 2}),
    ("normal_too_soon", ("QueueIsWhatItsStateSays",), {}),
    (
        "quiet_on_top",
        ("QueueIsWhatItsStateSays",),
        {"Length": 3, "Routes": "{{1, 2}}", "MaxNormal": 1, "Dummies": True},
    ),
)
PLAYER_PLANTS: dict[str, PlantedMistake] = {
    WITHOUT_TERMS: planted(player(Fenced=False, MaxProcesses=2), ("AppliedInOrderOnce",)),
    "window_not_reopened": planted(
        lively(Plant='"window_not_reopened"', MaxWindow=1, MaxCuts=0), ("AllIsDelivered",)
    ),
} | {name: planted(player(Plant=f'"{name}"', **changed), breaks) for name, breaks, changed in _MISTAKES}
