"""What the smoke test calls sound: a small log that is, and every way in which it could be otherwise."""

from __future__ import annotations

from collections.abc import Callable

from tests.campaigns import smoke_judge
from tests.campaigns.smoke_judge import Checksum, Outcome, Report, Stored, Value, judge
from tests.support.cases import each_case

Log = dict[int, list[Stored]]
Outcomes = dict[str, Outcome]
Saw = tuple[tuple[int, str, int], ...]


def stored(
    offset: int, name: str, request: str, key: str, partitions: tuple[int, ...], saw: Saw, **headers: str
) -> Stored:
    """One record; `read_at_1` is the header lockstep-read-lock@t-1, `hwm_at_1` its mark."""
    own = {"lockstep-request": request.encode()}
    for word, text in headers.items():
        header = {"hwm": "lockstep-hwm", "part": "lockstep-part", "expected": "lockstep-expected-offset"}.get(
            word, f"lockstep-{word}-lock"
        )
        if "_at_" in word:
            kind, _, where = word.partition("_at_")
            header = {"read": "lockstep-read-lock", "hwm": "lockstep-hwm"}[kind] + f"@t-{where}"
        own[header] = text.encode()
    return Stored(offset, key.encode(), Value(name, partitions, saw).encode(), own)


def sound_log() -> Log:
    """Offset 2 of partition 0 and 3 of partition 1 are control batches."""
    both = ((0, "a", 1), (1, "x", 0))
    pair = ((0, "a", 2), (0, "b", 0))
    return {
        0: [
            stored(0, "0/0", "c/0/1", "a", (0,), ((0, "a", 0),), hwm="-1", write="a"),
            stored(1, "0/1", "c/0/2", "a", (0, 1), both, hwm="0", write="a"),
            stored(3, "1/0", "d/0/1", "a", (0,), pair, hwm="2", write="a\nb", part="1/2"),
            stored(4, "1/0", "d/0/1", "b", (0,), pair, part="2/2"),
            stored(5, "1/1", "d/0/2", "a", (0,), (), append="a"),
        ],
        1: [
            stored(0, "0/1", "c/0/2", "x", (0, 1), both, hwm="-1", write="x"),
            stored(
                1, "0/2", "c/2/3", "y", (1,), ((0, "a", 2), (1, "x", 1)),
                hwm="0", write="y", read="x", read_at_0="a", hwm_at_0="2",
            ),
            stored(2, "1/2", "d/0/3", "free", (1,), (), expected="2"),
        ],
    }  # fmt: skip


def sound_outcomes() -> Outcomes:
    found = [
        Outcome("0/0", smoke_judge.APPENDED, {0: 0}, 1),
        Outcome("0/1", smoke_judge.APPENDED, {0: 1, 1: 0}, 2),
        Outcome("0/2", smoke_judge.UNKNOWN, {}),
        Outcome("1/0", smoke_judge.APPENDED, {0: 4}, 1),
        Outcome("1/1", smoke_judge.NOT_APPLIED, {0: 5}),
        Outcome("1/2", smoke_judge.APPENDED, {1: 2}, 1),
        Outcome("1/3", smoke_judge.EXPIRED, {}),
        Outcome("1/4", smoke_judge.REFUSED, {}),
        Outcome("1/5", smoke_judge.UNKNOWN, {}),
    ]
    return {each.name: each for each in found}


def reader(name: str, outcomes: Outcomes, *, end: int = 6, checksum: str = "s") -> Report:
    return Report(name, {0: end, 1: 4}, {0: checksum, 1: "s"}, list(outcomes.values()))


def judged(log: Log, outcomes: Outcomes) -> list[str]:
    return judge("t", log, [reader("kafka-python", {}), reader("client 0", outcomes)])[0]


def test_a_sound_log_is_sound_and_its_conditions_are_counted() -> None:
    reports = [reader("kafka-python", {}), reader("client 0", sound_outcomes())]
    problems, counts = judge("t", sound_log(), reports)
    assert problems == []
    assert counts["conditions held"] == 8
    assert counts["fences seen"] == 2
    assert (counts["transactions in the log"], counts["records"], counts["over several partitions"]) == (
        6, 8, 1,
    )  # fmt: skip
    assert counts[smoke_judge.APPENDED] == 4 and counts[smoke_judge.UNKNOWN] == 2


def changed(partition: int, place: int, **changes: str) -> Callable[[Log], None]:
    """Headers of one record are others."""

    def change(log: Log) -> None:
        record = log[partition][place]
        own = {f"lockstep-{name.replace('_', '-')}": text.encode() for name, text in changes.items()}
        log[partition][place] = record._replace(headers={**record.headers, **own})

    return change


def saw(partition: int, place: int, name: str, partitions: tuple[int, ...], *seen: tuple[int, str, int]):  # type: ignore[no-untyped-def]
    def change(log: Log) -> None:
        value = Value(name, partitions, seen).encode()
        log[partition][place] = log[partition][place]._replace(value=value)

    return change


def gone(partition: int, place: int) -> Callable[[Log], None]:
    def change(log: Log) -> None:
        del log[partition][place]

    return change


def again(partition: int, place: int, request: bytes | None = None) -> Callable[[Log], None]:
    """The record stands at the end of its partition once more."""

    def change(log: Log) -> None:
        record = log[partition][place]
        headers = {**record.headers, "lockstep-request": request or record.headers["lockstep-request"]}
        log[partition].append(record._replace(offset=9, headers=headers))

    return change


@each_case(
    ("change", "said"),
    [
        (gone(1, 2), "transaction 1/2 was reported appended and is lost"),
        (gone(0, 4), "transaction 1/1 was reported not applied and is lost"),
        (gone(1, 0), "0/1 at 0/1 is to be in (0, 1) and is in [0]"),
        (gone(0, 3), "1/0 at 0/3 is not whole, or not the same everywhere"),
        (gone(0, 2), "1/0 at 0/4 is not whole, or not the same everywhere"),
        (saw(0, 3, "1/0", (0,), (0, "a", 7)), "1/0 at 0/4 is not whole, or not the same everywhere"),
        (again(1, 2), "request d/0/3 stands twice: 1/2 at 1/2, 1/2 at 1/9"),
        (again(0, 4, b"d/0/9"), "transaction 1/1 is there 2 times, first 1/1 at 0/5"),
        (changed(0, 1, hwm="-1"), "0/1 at 0/1: lock a of 0 was raised at 0, it had read -1"),
        (changed(1, 1, hwm="-1"), "0/2 at 1/1: lock x of 1 was raised at 0, it had read -1"),
        (changed(1, 2, expected_offset="1"), "1/2 at 1/2 was to be at 1"),
        (saw(1, 1, "0/2", (1,), (0, "a", 1)), "0/2 at 1/1: it saw 1 records of a in 0, there were 2"),
        (saw(0, 0, "0/0", (0,), (0, "a", 5)), "0/0 at 0/0: it saw 5 records of a in 0, there were 0"),
        (saw(1, 2, "7/7", (1,)), "transaction 7/7 is nobody's: 7/7 at 1/2"),
    ],
)
def test_each_fault_of_a_log_is_reported(change: Callable[[Log], None], said: str) -> None:
    log = sound_log()
    change(log)
    assert said in judged(log, sound_outcomes())


@each_case(
    ("outcome", "said"),
    [
        (Outcome("0/0", smoke_judge.EXPIRED, {}), "0/0 at 0/0 was reported expired"),
        (Outcome("0/0", smoke_judge.REFUSED, {}), "0/0 at 0/0 was reported refused for good"),
        (Outcome("0/0", smoke_judge.NOT_APPENDED, {}), "0/0 at 0/0 was reported not appended"),
        (Outcome("0/0", smoke_judge.NOTHING, {}), "0/0 at 0/0 was reported nothing to do"),
        (
            Outcome("1/3", smoke_judge.APPENDED, {0: 3}, 1),
            "transaction 1/3 was reported appended and is lost",
        ),
        (
            Outcome("1/0", smoke_judge.APPENDED, {0: 3}, 1),
            "1/0 at 0/4 is at {0: 4}, reported at {0: 3}",
        ),
        (Outcome("0/1", smoke_judge.APPENDED, {0: 1, 1: 0}, 1), "0/1 at 0/1: 1 feeds told of it, not 2"),
        (Outcome("0/1", smoke_judge.APPENDED, {0: 1, 1: 0}, 3), "0/1 at 0/1: 3 feeds told of it, not 2"),
    ],
)
def test_each_wrong_outcome_is_reported(outcome: Outcome, said: str) -> None:
    assert judged(sound_log(), {**sound_outcomes(), outcome.name: outcome}) == [said]


def test_an_unknown_one_may_be_there_but_not_twice() -> None:
    log = sound_log()
    again(1, 1, b"c/0/9")(log)
    assert "transaction 0/2 is there 2 times, first 0/2 at 1/1" in judged(log, sound_outcomes())


def test_readers_that_differ_are_named() -> None:
    reports = [
        reader("kafka-python", {}),
        reader("client 0", sound_outcomes(), checksum="o"),
        reader("client 1", {}, end=5),
    ]
    assert judge("t", sound_log(), reports)[0] == [
        "partition 0: client 0 has another checksum than kafka-python",
        "partition 0: kafka-python ends at 6, client 1 at 5",
    ]
    missing = Report("client 2", {0: 6, 1: 4}, {0: "s"})
    assert "partition 1: client 2 has another checksum than kafka-python" in judge(
        "t", sound_log(), [*reports[:1], missing]
    )[0]  # fmt: skip


def skewed(mark_of_b: str) -> Log:
    """A read x in 1 before anybody raised it; B raises x, and read y in 0, which A raises."""
    return {
        0: [
            stored(0, "0/0", "c/0/1", "y", (0,), (), hwm="-1", write="y", read_at_1="x", hwm_at_1="-1"),
        ],
        1: [
            stored(0, "0/1", "c/0/2", "x", (1,), (), hwm="-1", write="x", read_at_0="y", hwm_at_0=mark_of_b),
        ],
    }


def test_reads_elsewhere_that_contradict_each_other_have_no_order() -> None:
    outcomes = {
        "0/0": Outcome("0/0", smoke_judge.APPENDED, {0: 0}, 1),
        "0/1": Outcome("0/1", smoke_judge.APPENDED, {1: 0}, 1),
    }
    assert judged(skewed("0"), outcomes) == []
    assert judged(skewed("-1"), outcomes) == ["no order fits from here on: 0/0 at 0/0, 0/1 at 1/0"]


def test_transactions_over_two_partitions_stand_in_one_order() -> None:
    def crossed(first: str, second: str) -> list[str]:
        log = {
            0: [
                stored(place, f"0/{each}", f"c/0/{each}", "k", (0, 1), ()) for place, each in enumerate("12")
            ],
            1: [
                stored(place, f"0/{each}", f"c/0/{each}", "k", (0, 1), ())
                for place, each in enumerate(first + second)
            ],
        }
        outcomes = {f"0/{each}": Outcome(f"0/{each}", smoke_judge.UNKNOWN, {}) for each in "12"}
        return judged(log, outcomes)

    assert crossed("1", "2") == []
    assert crossed("2", "1") == ["no order fits from here on: 0/1 at 0/0, 0/2 at 1/0"]


def test_a_checksum_depends_on_order_offset_and_every_field() -> None:
    def of(*records: tuple[int, bytes | None, bytes | None, bytes | None]) -> str:
        checksum = Checksum()
        for record in records:
            checksum.add(*record)
        return str(checksum)

    one, two = (0, b"k", b"v", b"r"), (1, b"k", b"v", b"r")
    different = [
        of(one), of(two), of(one, two), of(two, one), of((0, None, b"v", b"r")), of((0, b"k", None, b"r")),
        of((0, b"k", b"v", None)), of((0, b"kv", b"", b"r")), of((0, b"", b"v", b"r")),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    assert of(one, two) == of(one, two)


def test_a_report_comes_back_from_json() -> None:
    document = {
        "reader": "client 1",
        "ends": {"0": 6},
        "checksums": {"0": "s"},
        "outcomes": [["1/0", "appended", {"0": 4}, 1]],
        "refusals": {},
    }
    assert smoke_judge.report_of(document) == Report(
        "client 1", {0: 6}, {0: "s"}, [Outcome("1/0", "appended", {0: 4}, 1)]
    )
