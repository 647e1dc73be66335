"""The differences between what targets should hold and what they hold: `audit`'s comparison, in Spark.

Owns: one row for each difference. Frames, all with `target` and `partition`: `expected` (offset, key, value),
`applied` (number, offset, key), `values` (offset, key, value), `ranges` (first, mark). `audit` defines
each kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ["target", "partition", "offset"]
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class Differences:
    """The result of a comparison; `sample` describes some of it."""

    counts: dict[str, int]
    compared: int
    """Records that should have been applied."""
    keys: int
    unchecked: int
    _rows: Any

    def sample(self, most: int) -> list[str]:
        """One line for each, in order."""
        found = self._rows.orderBy("kind", *_PLACE).limit(most).collect()
        return [
            f"{row.kind}: {row.target}: partition {row.partition}, offset {row.offset}, {row.about}"
            for row in found
        ]


def find_differences(
    expected: DataFrame, applied: DataFrame, values: DataFrame, ranges: DataFrame, *, is_compacted: bool
) -> Differences:
    """Compares. The frames are evaluated here."""
    wanted = _in_range(expected, ranges).drop("first", "mark").persist()
    ranged = applied.join(ranges, ["target", "partition"], "left").persist()
    paired = _pair_records(wanted, ranged).persist()
    rows = _applied_differences(paired, ranged, is_compacted)
    stored = _value_rows(paired, values, ranges, is_compacted).persist()
    rows = rows.unionByName(
        stored.where("NOT unchecked AND differs").select("kind", *_PLACE, "about")
    ).persist()
    counts = {row["kind"]: row["count"] for row in rows.groupBy("kind").count().collect()}
    unchecked = stored.where("unchecked").count() + ranged.where("offset < first").count()
    if is_compacted:
        unchecked += paired.where("wanted_offset IS NULL").count()
    return Differences(counts, wanted.count(), stored.where("NOT unchecked").count(), unchecked, rows)


def _in_range(frame: DataFrame, ranges: DataFrame) -> DataFrame:
    """The rows within the target's range."""
    return frame.join(ranges, ["target", "partition"]).where("offset BETWEEN first AND mark")


def _pair_records(wanted: DataFrame, ranged: DataFrame) -> DataFrame:
    """Each record that should be, or was, applied; how often, and its number in the target's order."""
    from pyspark.sql import functions

    once = (
        ranged.where("offset BETWEEN first AND mark")
        .groupBy(*_PLACE)
        .agg(
            functions.count("*").alias("times"),
            functions.max("number").alias("number"),
            functions.max_by("key", "number").alias("applied_key"),
        )
    )
    marked = wanted.withColumn("wanted_offset", functions.col("offset"))
    return marked.join(once, _PLACE, "full")


def _applied_differences(paired: DataFrame, ranged: DataFrame, is_compacted: bool) -> DataFrame:
    from pyspark.sql import Window, functions

    by_number = Window.partitionBy("target", "partition").orderBy("number")
    ordered = ranged.withColumn(
        "before", functions.max("offset").over(by_number.rowsBetween(Window.unboundedPreceding, -1))
    )
    parts = [
        _rows(paired.where("times IS NULL"), "missing", _as_text("key")),
        _rows(paired.where("times > 1"), "twice", "concat('applied ', times, ' times')"),
        _rows(
            paired.where("wanted_offset IS NOT NULL AND times IS NOT NULL AND NOT (key <=> applied_key)"),
            "key",
            f"concat('the log has ', {_as_text('key')}, ', applied was ', {_as_text('applied_key')})",
        ),
        _rows(
            ranged.where("mark IS NULL OR offset > mark"),
            "ahead",
            "concat('applied, the mark is ', coalesce(mark, -1))",
        ),
        _rows(ordered.where("before > offset"), "order", "concat('applied after ', before)"),
    ]
    if not is_compacted:
        parts.append(_rows(paired.where("wanted_offset IS NULL"), "extra", _as_text("applied_key")))
    found = parts[0]
    for each in parts[1:]:
        found = found.unionByName(each)
    return found


def _value_rows(paired: DataFrame, values: DataFrame, ranges: DataFrame, is_compacted: bool) -> DataFrame:
    """Each key that should have, or has, a value: `differs`, and `unchecked` where the log cannot show it."""
    from pyspark.sql import functions

    last = functions.struct("partition", "offset", "value")
    newest = (
        paired.where("wanted_offset IS NOT NULL AND key IS NOT NULL")
        .groupBy("target", "key")
        .agg(functions.max_by(last, functions.struct("number", "offset")).alias("wanted"))
    )
    held = values.join(ranges, ["target", "partition"], "left").select(
        "target",
        "key",
        functions.struct("partition", "offset", "value").alias("held"),
        functions.expr("offset < coalesce(first, 0)").alias("is_old"),
    )
    joined = newest.join(held, ["target", "key"], "full")
    present = "(wanted IS NOT NULL AND wanted.value IS NOT NULL)"
    gone = "coalesce(is_old, false)"
    if is_compacted:
        gone = f"({gone} OR (held IS NOT NULL AND (wanted IS NULL OR wanted.offset < held.offset)))"
    else:
        gone = f"({gone} AND wanted IS NULL)"
    return joined.where(f"{present} OR held IS NOT NULL").selectExpr(
        "'value' AS kind",
        "target",
        "coalesce(wanted.partition, held.partition) AS partition",
        "coalesce(wanted.offset, held.offset) AS offset",
        f"concat('key ', {_as_text('key')}, ': the log has ', {_as_text('wanted.value')}, ', stored is ', "
        f"{_as_text('held.value')}, coalesce(concat(' of offset ', held.offset), '')) AS about",
        f"NOT ({present} AND held IS NOT NULL AND wanted <=> held) AS differs",
        f"{gone} AS unchecked",
    )


def _rows(frame: DataFrame, kind: str, about: str) -> DataFrame:
    return frame.selectExpr(f"'{kind}' AS kind", *_PLACE, f"{about} AS about")


def _as_text(column: str) -> str:
    """Bytes as text where they are text, in hexadecimal digits where they are not."""
    text = f"CASE WHEN is_valid_utf8({column}) THEN cast({column} AS string) ELSE hex({column}) END"
    return f"coalesce(substring({text}, 1, {_SHOWN_CHARACTERS}), 'null')"
