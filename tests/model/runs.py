"""What TLC is asked: the exhaustive runs, in day and night bounds, and a planted mistake per rule.

Every planted mistake names the rule that must be broken by it; a mistake without a counterexample is as much
an error as a correct model with one. Bounds are as small as each mistake allows: TLC searches breadth first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.model.planted import PlantedMistake, change, planted
from tests.model.player_runs import PLAYER_DAY, PLAYER_NIGHT, PLAYER_PLANTS
from tests.model.tlc import Configuration

RAFT_INVARIANTS = (
    "ElectionSafety",
    "LogMatching",
    "LeaderCompleteness",
    "StateMachineSafety",
    "CommittedIsDurable",
    "AnsweredIsCommitted",
    "AckedIsDurable",
    "VotesAreDurable",
    "HardStateCoversLog",
    "TailFollowsLog",
)
RAFT_PROPERTIES = ("NeverBack",)
DISK_INVARIANTS = ("NoFalseAlarm",)
DISK_PROPERTIES = ("Refines", "VoteNeverBack")


def raft(**changed: object) -> Configuration:
    """SharedLogRaft: three voters, and with `joining` a fourth node, d, that replaces a. With `turns`
    only one may stand in odd terms and one in even ones, which leaves room for more terms."""
    joining = bool(changed.pop("joining", False))
    turns = bool(changed.pop("turns", False))
    servers = "{a, b, c, d}" if joining else "{a, b, c}"
    constants: dict[str, str] = {
        "Servers": servers,
        "a": "a",
        "b": "b",
        "c": "c",
        "Nobody": "Nobody",
        "OldVoters": "{a, b, c}",
        "NewVoters": "{b, c, d}" if joining else "{a, b, c}",
        "OddTerms": "{a}" if turns else servers,
        "EvenTerms": "{d}" if turns and joining else "{b}" if turns else servers,
        "MaxTerm": "2",
        "MaxLength": "2",
        "MaxCrashes": "0",
        "MaxInstalls": "0",
        "MaxChanges": "1" if joining else "0",
        "Reduced": "TRUE",
        "Plant": '""',
    }
    if joining:
        constants["d"] = "d"
    change(constants, changed)
    return Configuration(
        "SharedLogRaft",
        constants,
        RAFT_INVARIANTS,
        RAFT_PROPERTIES,
        "" if joining or turns or "OldVoters" in changed else "Symmetry",
    )


def disk(**changed: object) -> Configuration:
    """LogDisk: one node's disk."""
    constants: dict[str, str] = {
        "Cells": "7",
        "FrameCells": "1",
        "MaxWrite": "2",
        "MaxSequence": "1",
        "MaxLength": "2",
        "MaxTerm": "2",
        "MaxCrashes": "1",
        "MaxCuts": "0",
        "MaxVotes": "0",
        "MaxIdle": "0",
        "MaxInstalls": "0",
        "MaxRot": "0",
        "Kill": "FALSE",
        "Plant": '""',
    }
    change(constants, changed)
    return Configuration("LogDisk", constants, DISK_INVARIANTS, DISK_PROPERTIES)


DAY: dict[str, Configuration] = {
    "raft: two terms": raft(),
    "raft: two terms, a crash": raft(MaxLength=1, MaxCrashes=1),
    "raft: long log of one term, a crash": raft(MaxTerm=1, MaxLength=3, MaxCrashes=1),
    "raft: every order of steps": raft(MaxTerm=1, MaxLength=2, Reduced=False),
    "raft: checkpoints shipped": raft(MaxTerm=1, MaxInstalls=1, MaxCrashes=1),
    "raft: one of two voters replaced": raft(
        OldVoters="{a, b}", NewVoters="{b, c}", MaxChanges=1, MaxTerm=1, MaxLength=3
    ),
    "disk: torn writes, two crashes": disk(MaxCrashes=2, MaxCuts=1, MaxLength=3),
    "disk: payload apart from header": disk(FrameCells=2, MaxCrashes=2),
    "disk: cut, then crash": disk(MaxCuts=2, MaxTerm=3, Cells=8),
    "disk: rolls and recycled files": disk(Cells=4, MaxSequence=4, MaxLength=4, MaxWrite=1),
    "disk: shipped checkpoint": disk(MaxSequence=2, MaxInstalls=1),
    "disk: hard state between": disk(MaxVotes=1, MaxCrashes=2),
    "disk: process killed, then power": disk(Kill=True, MaxCrashes=2),
    "disk: rot": disk(MaxRot=1, MaxIdle=1),
} | PLAYER_DAY

NIGHT: dict[str, Configuration] = {
    "raft: two terms, a crash": raft(MaxCrashes=1),
    "raft: three terms": raft(MaxTerm=3),
    "raft: three terms, a crash": raft(MaxTerm=3, MaxCrashes=1),
    "raft: two terms, long log, two crashes": raft(MaxLength=3, MaxCrashes=2),
    "raft: every order of steps": raft(Reduced=False),
    "raft: checkpoints shipped": raft(MaxInstalls=1, MaxCrashes=1),
    "raft: one of three voters replaced": raft(joining=True, MaxTerm=1, MaxLength=3, turns=True),
    "raft: one of three voters replaced, another leader": raft(joining=True, MaxTerm=2, MaxLength=4),
    "disk: everything, three crashes": disk(
        Cells=6,
        MaxSequence=3,
        MaxLength=4,
        MaxTerm=3,
        MaxCrashes=3,
        MaxCuts=2,
        MaxVotes=1,
        MaxIdle=1,
        MaxInstalls=1,
        Kill=True,
    ),
    "disk: payload apart, rolls and cuts": disk(
        FrameCells=2, Cells=8, MaxSequence=3, MaxLength=4, MaxTerm=3, MaxCrashes=2, MaxCuts=1
    ),
    "disk: rot": disk(Cells=6, MaxSequence=3, MaxLength=4, MaxCrashes=2, MaxCuts=1, MaxRot=1, MaxIdle=1),
} | PLAYER_NIGHT


def _raft_plant(name: str, breaks: tuple[str, ...], changed: dict[str, object]) -> PlantedMistake:
    constraint = str(changed.pop("constraint", ""))
    return planted(replace(raft(Plant=f'"{name}"', **changed), constraint=constraint), breaks)


def _disk_plant(name: str, breaks: tuple[str, ...], changed: dict[str, object]) -> PlantedMistake:
    return planted(disk(Plant=f'"{name}"', **changed), breaks)


Maker = Callable[[str, tuple[str, ...], dict[str, object]], PlantedMistake]
_MISTAKES: tuple[tuple[Maker, str, tuple[str, ...], dict[str, object]], ...] = (
    (_raft_plant, "vote_not_flushed", ("VotesAreDurable",), {}),
    (_raft_plant, "vote_forgotten", ("VotesAreDurable",), {"MaxCrashes": 1}),
    (_raft_plant, "two_votes", ("VotesAreDurable", "ElectionSafety"), {"MaxTerm": 1}),
    (_raft_plant, "log_not_compared", ("LeaderCompleteness", "StateMachineSafety"), {"turns": True}),
    (_raft_plant, "ack_before_flush", ("AckedIsDurable",), {"MaxTerm": 1}),
    (_raft_plant, "leader_counts_unflushed", ("CommittedIsDurable",), {"MaxTerm": 1}),
    (
        _raft_plant,
        "commit_older_term",
        ("LeaderCompleteness",),
        {"MaxTerm": 4, "turns": True, "constraint": "NobodyFollowed"},
    ),
    (_raft_plant, "commit_unverified", ("StateMachineSafety",), {"turns": True}),
    (_raft_plant, "stale_completion", ("AckedIsDurable",), {"MaxCrashes": 1, "turns": True}),
    (_raft_plant, "cut_by_short_request", ("AckedIsDurable", "CommittedIsDurable"), {"MaxTerm": 1}),
    (_raft_plant, "prev_not_checked", ("LogMatching",), {"turns": True}),
    (_raft_plant, "log_before_hard_state", ("HardStateCoversLog",), {"MaxTerm": 1, "MaxCrashes": 1}),
    (_raft_plant, "answer_early", ("AnsweredIsCommitted",), {"MaxTerm": 1}),
    (_raft_plant, "waiter_without_term", ("AnsweredIsCommitted",), {"turns": True}),
    (_raft_plant, "tail_kept", ("TailFollowsLog",), {}),
    (_raft_plant, "install_uncommitted", ("StateMachineSafety",), {"MaxTerm": 1, "MaxInstalls": 1}),
    (_raft_plant, "install_below_commit", ("NeverBack",), {"MaxTerm": 1, "MaxInstalls": 1}),
    (
        _raft_plant,
        "change_without_joint",
        ("CommittedIsDurable",),
        {"joining": True, "turns": True, "MaxLength": 3},
    ),
    (
        _raft_plant,
        "joint_not_committed",
        ("CommittedIsDurable",),
        {"joining": True, "turns": True, "MaxTerm": 1, "MaxLength": 3},
    ),
    (_disk_plant, "marker_promises_early", ("NoFalseAlarm",), {}),
    (_disk_plant, "chain_not_checked", ("Refines",), {"MaxCuts": 1, "MaxCrashes": 1}),
    (_disk_plant, "payload_not_verified", ("Refines",), {"FrameCells": 2}),
    (_disk_plant, "cut_keeps_generation", ("Refines",), {"MaxCuts": 1}),
    (
        _disk_plant,
        "generation_without_marker",
        ("NoFalseAlarm",),
        {"MaxCuts": 1, "MaxCrashes": 2, "Cells": 4, "MaxSequence": 2},
    ),
    (_disk_plant, "cut_not_flushed", ("NoFalseAlarm",), {"MaxCuts": 1}),
    (_disk_plant, "open_keeps_generation", ("Refines",), {"MaxCrashes": 2, "MaxWrite": 2}),
    (_disk_plant, "open_does_not_flush", ("Refines", "NoFalseAlarm"), {"Kill": True, "MaxCrashes": 2}),
    (_disk_plant, "roll_without_flush", ("NoFalseAlarm",), {"Cells": 4, "MaxSequence": 2, "MaxWrite": 1}),
    (_disk_plant, "hard_state_not_flushed", ("VoteNeverBack",), {"MaxVotes": 1}),
    (_disk_plant, "both_slots_at_once", ("NoFalseAlarm",), {"MaxVotes": 1}),
    (
        _disk_plant,
        "install_switched_before_flush",
        ("NoFalseAlarm",),
        {"MaxSequence": 2, "MaxInstalls": 1},
    ),
    (
        _disk_plant,
        "installed_in_the_next_generation",
        ("NoFalseAlarm",),
        {"MaxSequence": 2, "MaxInstalls": 1, "MaxCrashes": 2},
    ),
    (_disk_plant, "cut_ends_the_branch", ("Refines",), {"MaxCuts": 1, "MaxCrashes": 2, "MaxWrite": 1}),
    (_disk_plant, "rot_is_torn", ("Refines",), {"MaxRot": 1}),
)
PLANTS: dict[str, PlantedMistake] = {
    name: maker(name, breaks, changed) for maker, name, breaks, changed in _MISTAKES
} | PLAYER_PLANTS
