"""What the page says of Spark, and what other documents repeat of it."""

from __future__ import annotations

from pathlib import Path

from bench.page.document import page, read
from bench.page.losses import losses
from bench.spark import plots
from bench.spark.command import main
from bench.spark.section import against_kafka
from compat_tests.targets import ROOT
from tests.bench.spark.results import KEPT, spark_result


def test_the_page_has_the_section_and_counts_only_comparisons_with_kafka(tmp_path: Path) -> None:
    text = page([read(KEPT)], [KEPT.name])
    assert f"Made from, in `bench/results`: `{KEPT.name}`.\n" in text
    assert "## Spark" in text and "](../spark.svg)" in text and "| an epoch, our sink " in text
    assert "In none of 2 comparisons" in text and "met?" in text
    lost = spark_result([[1.0, 1.0, 1.0]], **{"source.lockstep.lockstep.1": [[9.0]]})
    assert [row[0] for row in losses([against_kafka(lost)])] == ["spark"]
    assert "on these pages Kafka is better in these 1" in page([lost])
    picture = tmp_path / "spark.svg"
    assert main(["--plot", str(KEPT), "--picture", str(picture)]) == 0
    drawn = picture.read_bytes()
    plots.draw(read(KEPT), picture)
    assert picture.read_bytes() == drawn and b"<svg" in drawn
    plots.draw(spark_result([]), picture)  # with little in it, too


def test_documents_quote_what_the_page_has() -> None:
    """The figures and the result that they are of, in the two documents that repeat them."""
    section = (ROOT / "docs" / "benchmarks" / "spark.md").read_text()
    documents = [(ROOT / "docs" / name).read_text() for name in ("spark.md", "spark_sink.md")]
    source, sink = [" ".join(document.split()) for document in documents]
    rows = [[each.strip() for each in line.split("|")[1:-1]] for line in section.splitlines() if "|" in line]
    of = {row[0]: row for row in rows}
    for title, row in of.items():
        if ": our source over" in title or title.startswith("Spark's own source"):
            assert f"{row[3]} times" in source, title
    ours, theirs, commit = (
        float(of[title][2])
        for title in ("an epoch, our sink", "an epoch, Spark's own sink", "of it the commit")
    )
    assert of["into Lockstep: our exactly-once sink over Spark's own"][3] + " times the rows" in sink
    assert f"a commit takes {commit:g} ms" in sink
    assert f"the whole epoch {ours:g} ms where Spark's own sink takes {theirs:g} ms" in sink
    (run,) = [line.removeprefix("- ") for line in section.splitlines() if "python -m bench" in line]
    first = (ROOT / "docs" / "benchmarks.md").read_text()
    (made_from,) = [line for line in first.splitlines() if line.startswith("Made from")]
    (kept,) = [each for each in made_from.split("`") if each.endswith("-spark.json")]
    for document in (source, sink):
        assert f"{run} (bench/results/{kept}," in document
