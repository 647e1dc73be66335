"""The one runner: a measurement from its options to its exit status.

A kind of measurement is a `Measurement`, or a `Comparison` of two brokers: it declares its options and sizes,
the sessions in order, what each measures, and what is made of the figures. The runner owns everything else:
the command line, sessions one after the other, what a result holds and where it is kept, the table or JSON on
standard output, and the exit status: 0; 1 when a round failed, a durability was not proven or figures are
wrong; 2 for words that cannot be met; 3 when everything ran and a required ratio was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from bench import argument_types
from bench.exit_status import EXIT_FAILED, EXIT_GOAL_MISSED, log_progress, report_failures
from bench.figures import tables
from bench.figures.intervals import with_intervals
from bench.figures.ratios import BadRequirement, Goal, Ratio, compare, parse_requirement
from bench.kept import LOCAL_RESULTS, keep
from bench.machine import memory
from bench.machine.device import NoBlockDevice
from bench.machine.facts import Origin
from bench.sessions.jobs import FAILURES
from bench.sessions.session import Session
from bench.sessions.setup import NODE_HEAP
from bench.settings import FULL, POLICIES, PRODUCER_PROPERTIES, QUICK, Sizes
from compat_tests.kafka_jars import ToolchainMissing
from lockstep.native import VARIABLE

P = TypeVar("P")
S = TypeVar("S", bound=Session)
Result = dict[str, Any]
Options = dict[str, dict[str, Any]]
"""By flag, or by name of a positional word: the keywords of `add_argument`."""

DIRECTORY: Final[Options] = {
    "--directory": {
        "type": argument_types.existing_directory,
        "help": "where data directories are made (default: the system's for temporary files)",
    }
}
PLACES: Final[Options] = {
    "--out": {
        "type": argument_types.results,
        "default": LOCAL_RESULTS,
        "help": "directory for what is kept",
    },
    **DIRECTORY,
}
KEPT: Final[Options] = {
    "--quick": {"action": "store_true", "help": "short blocks: whether it works, not how fast it is"},
    "--json": {"action": "store_true", "help": "the figures on stdout as JSON"},
    **PLACES,
}
SECONDS: Final[Options] = {
    "--seconds": {"type": argument_types.positive, "help": "length of each timed block"}
}
RUN: Final[Options] = {
    **KEPT,
    "--rounds": {"type": argument_types.rounds, "help": "sessions of each kind (an even number is balanced)"},
    **SECONDS,
}
REQUIRED: Final[Options] = {
    "--require": {"action": "append", "default": [], "metavar": "RATIO>=X", "help": "or <=, or 'goals'"}
}
COMPARED: Final[Options] = {
    "--vs": {"choices": ["kafka", "self"], "default": "kafka", "help": "'self' shows the noise floor"},
    "--subject": {"choices": ["lockstep", "kafka"], "default": "lockstep"},
    **RUN,
    **REQUIRED,
}
TREE: Final[Options] = {
    "--baseline-tree": {
        "type": argument_types.tree,
        "help": "with --vs self: the baseline is Lockstep from this source tree, never compiled",
    }
}
HEAP: Final[Options] = {
    "--heap": {"type": argument_types.heap, "default": NODE_HEAP, "help": "of each Kafka node"}
}
POLICY: Final[Options] = {"--policy": {"choices": POLICIES, "action": "append", "help": "default: both"}}
_NOT_KEPT: Final = frozenset({"--json", *PLACES})
"""Options that change no figure, or name a path."""


def parser_of(name: str, about: str | None, options: Options) -> argparse.ArgumentParser:
    """The parser of `python -m bench NAME`."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}".rstrip(), description=about)
    for flag, keywords in options.items():
        parser.add_argument(flag, **keywords)
    return parser


def command_line(name: str, options: Options, chosen: argparse.Namespace) -> str:
    """The run's own words: what differs from the defaults, without paths."""
    words = [f"{VARIABLE}=1"] if os.environ.get(VARIABLE) == "1" else []
    words.append(f"python -m bench {name}".rstrip())
    for flag, keywords in options.items():
        value = getattr(chosen, flag.lstrip("-").replace("-", "_"))
        if flag in _NOT_KEPT or value == keywords.get("default") or value is False or value is None:
            continue
        given = flag if flag.startswith("-") else ""
        if value is True or flag in TREE:
            words += [given, "" if value is True else "BEFORE"]
        else:
            words += [
                w for each in (value if isinstance(value, list) else [value]) for w in (given, str(each))
            ]
    return " ".join(filter(None, words))


class Measurement(Generic[P, S]):
    """One kind: a subclass defines the measurement; its docstring is the help. An object is one run of it."""

    name: ClassVar[str]
    """The kind of the result, and the end of its file's name."""
    word: ClassVar[str | None] = None
    """The word of the command line, where it is another one."""
    options: ClassVar[Options] = RUN
    quick: ClassVar[Sizes] = QUICK
    whole: ClassVar[Sizes] = FULL

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.parent = argument_types.directory_of(chosen)
        self.sizes: Any = self.choose_sizes(self.quick if chosen.quick else self.whole)

    @classmethod
    def command_word(cls) -> str:
        """The word behind `python -m bench`."""
        return cls.name if cls.word is None else cls.word

    # -- what a kind declares -----------------------------------------------------------------------------

    def check(self, parser: argparse.ArgumentParser) -> None:
        """End with a word (`parser.error`) where the options cannot be met together."""

    def plan(self) -> Sequence[P]:
        """The sessions, in order; each prints as a line of progress."""
        raise NotImplementedError

    def session(self, planned: P) -> S:
        """A session that is not started yet."""
        raise NotImplementedError

    def measure(self, planned: P, session: S) -> None:
        """Start the session and measure. Raises what `FAILURES` has."""
        raise NotImplementedError

    def figures(self, measured: Any) -> Result:
        """The figures of what was measured; "failures" among it are problems."""
        raise NotImplementedError

    def table(self, result: Result) -> str:
        """The result as text."""
        raise NotImplementedError

    def missed_goals(self, result: Result) -> list[str]:
        """Requirements that are missed."""
        return []

    # -- the run ------------------------------------------------------------------------------------------

    def choose_sizes(self, sizes: Any) -> Any:
        """The sizes with what the command line changes."""
        changed: dict[str, Any] = {"rounds": self.chosen.rounds} if self.chosen.rounds else {}
        if getattr(self.chosen, "seconds", None):
            changed["latency_s"] = self.chosen.seconds
        return replace(sizes, **changed)

    @property
    def kind(self) -> str:
        """The kind of the result, by which `bench.page` finds it."""
        return self.name

    @property
    def kept_name(self) -> str:
        """The end of the kept file's name."""
        return self.name

    def perform(self) -> tuple[Any, list[str]]:
        """Run every session in turn: what each measured, and what failed."""
        measured, failures, plan = [], [], self.plan()
        began = time.monotonic()
        for number, planned in enumerate(plan, 1):
            log_progress(f"[{time.monotonic() - began:4.0f} s] session {number} of {len(plan)}: {planned}")
            session = self.session(planned)
            try:
                self.measure(planned, session)
            except FAILURES as error:
                failures.append(f"session {number} ({planned}): {error}")
                log_progress(f"  FAILED: {error}\n{session.log_tail()}")
            finally:
                session.close()
            failures += [f"session {number}: {problem}" for problem in session.unproven_blocks()]
            measured.append(session.outcome())
        log_progress(f"[{time.monotonic() - began:4.0f} s] done")
        return measured, failures

    def run(self) -> int:
        """Measure, keep, print; the exit status."""
        if self.chosen.quick:
            log_progress("QUICK: short blocks show whether it works; how fast it is, only a whole run says")
        try:
            origin = Origin(self.parent)
            memory_kept = {} if self.chosen.quick else memory.kept(self.parent)
            measured, failures = self.perform()
        except (NoBlockDevice, ToolchainMissing) as error:
            log_progress(f"cannot measure here: {error}")
            return EXIT_FAILED
        made = self.figures(measured)
        failures = [*failures, *origin.problems(), *made.pop("failures", [])]
        result = {
            "format": 1,
            "kind": self.kind,
            "command": command_line(self.command_word(), self.options, self.chosen),
            "sizes": self.kept_sizes(),
            **origin.facts,
            "memory_kept": memory_kept,
            **made,
            "failures": failures,
        }
        self.keep(result)
        if self.chosen.json:
            shown = {
                key: result[key] for key in ("command", "comparison", "rows", "failures") if key in result
            }
            print(json.dumps(shown, indent=1))
        else:
            print(self.table(result))
        if status := report_failures(failures):
            return status
        missed = self.missed_goals(result)
        for text in missed:
            log_progress(f"MISSED: {text}")
        return EXIT_GOAL_MISSED if missed else 0

    def kept_sizes(self) -> Result:
        """The sizes as the result has them."""
        return dict(vars(self.sizes))

    def keep(self, result: Result) -> Path:
        """Keep the result, and what belongs beside it; its path."""
        return keep(result, self.chosen.out, self.kept_name)


class Comparison(Measurement[P, S]):
    """Two sides, the subject's and the baseline's, divided by one another."""

    options = COMPARED
    ratios: ClassVar[Mapping[str, Ratio]]
    goals: ClassVar[tuple[Goal, ...]]
    intervals: ClassVar[bool] = False
    """True if sessions carry their `round`, and ratios are of pairs of them."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        super().__init__(chosen)
        self.baseline: str = chosen.subject if chosen.vs == "self" else chosen.vs
        self.required: list[Goal] = []

    def check(self, parser: argparse.ArgumentParser) -> None:
        """Read what `--require` names: one bound of a ratio. A tree needs a broker against itself."""
        if getattr(self.chosen, "baseline_tree", None) and (self.chosen.vs, self.chosen.subject) != (
            "self",
            "lockstep",
        ):
            parser.error("--baseline-tree goes with --vs self and --subject lockstep")
        try:
            for text in self.chosen.require:
                self.required += parse_requirement(text, self.ratios, self.goals)
        except BadRequirement as error:
            parser.error(str(error))
        for ratio, count in Counter(goal.ratio for goal in set(self.required)).items():
            if count > 1:
                parser.error(f"--require has {count} bounds of {ratio}: one can be judged")

    @property
    def kept_name(self) -> str:
        return f"{self.name}-{self.chosen.subject}-vs-{self.baseline}"

    def tree_of(self, side: str) -> Path | None:
        """The source tree that a side runs from; None for this one."""
        tree: Path | None = self.chosen.baseline_tree if side == "baseline" else None
        return tree

    def displayed_goals(self) -> tuple[Goal, ...]:
        """Goals that stand beside their ratios: none where a broker is compared with itself."""
        return self.goals if self.chosen.subject != self.baseline else ()

    def figures(self, measured: Any) -> Result:
        """The ratios."""
        shown = self.displayed_goals()
        rows = compare(measured, self.required, shown, self.ratios)
        if self.intervals:
            judged = {goal.ratio: goal for goal in (*shown, *self.required)}
            rows = with_intervals(rows, measured, self.ratios, judged)
        return {
            "subject": self.chosen.subject,
            "baseline": self.baseline,
            "heap": getattr(self.chosen, "heap", ""),
            "producer_properties": PRODUCER_PROPERTIES,
            "comparison": rows,
            "sessions": measured,
        }

    def table(self, result: Result) -> str:
        """Medians and ratios; what speaks against them on standard error."""
        if noted := tables.reservations(result):
            log_progress(noted)
        return tables.table(result)

    def missed_goals(self, result: Result) -> list[str]:
        """Required ratios that are missed, or without figures."""
        required = {goal.ratio for goal in self.required}
        rows = [row for row in result["comparison"] if row["ratio"] in required and not row["met"]]
        values = ["no figures" if row["value"] is None else f"{row['value']:.2f}" for row in rows]
        return [
            f"{row['ratio']} is {value}, the goal is {row.get('goal', 'a figure')}"
            for row, value in zip(rows, values, strict=True)
        ]


def main(
    kind: type[Measurement[Any, Any]], words: Sequence[str], others: Sequence[str] = (), epilog: str = ""
) -> int:
    """Run a kind by the command line; the exit status.

    Args:
        others: words that come first on a command line of their own.
        epilog: the help about those.
    """
    parser = parser_of(kind.command_word(), kind.__doc__, kind.options)
    parser.epilog = epilog
    if misplaced := [word for word in words if word in others]:
        parser.error(f"'{misplaced[0]}' comes first, its options after it")
    if others and words and not words[0].startswith("-") and words[0] not in kind.options["row"]["choices"]:
        parser.error(f"there is no {words[0]!r}, but {', '.join(map(repr, others))} and rows of one node")
    chosen = parser.parse_args(words)
    run = kind(chosen)
    run.check(parser)
    return run.run()


def mirror_rounds(sessions: Sequence[P], rounds: int) -> list[P]:
    """So many rounds of the same sessions, every second one the other way round (ABBA), so that a drift of
    the machine hits both sides."""
    return [each for number in range(rounds) for each in (sessions if number % 2 == 0 else sessions[::-1])]
