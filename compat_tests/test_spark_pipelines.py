"""The connector's pipelines on a real Spark: archives, replays, states and audits; killed, and submitted."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import psycopg
import pytest

from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail
from compat_tests.line_driver import DriverFailed, LineDriver
from compat_tests.spark_driver import DELTA, JARS, installed
from compat_tests.targets import ROOT, LockstepTarget
from lockstep.protocol.records.record import Headers
from spark_connector.connection import ClusterClient
from spark_connector.pipelines import events
from spark_connector.pipelines.claims import claim_topic
from spark_connector.pipelines.event_data import ACCOUNTS, TOPICS, Shape
from spark_connector.pipelines.partition_appender import PartitionAppender, Row
from spark_connector.pipelines.progress import ProgressReporter
from tests.campaigns import player_processes, spark_pipelines
from tests.campaigns.spark_processes import CONF, Pipelines
from tests.lockstep.postgres import PostgresMissing, postgres
from tests.spark_connector.documented_archive import pack_documented
from tests.spark_connector.rows import rows_of, stored

pytestmark = pytest.mark.timeout(1500)

PARTITIONS = 3
SHAPE = Shape(seed=11, events=3000, accounts=200)
READY_S = 60.0
SMALL = {
    **CONF,
    # a few rows each: compiling costs more than it brings
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    # how many tasks put a table's log together, 50 unless told otherwise, for each commit
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Settings of sessions that serve these cases."""
ANSWER_TIMEOUT_S = 400.0
"""For one pipeline: its small Delta commits take minutes where four test processes share two slow cores."""


def jars() -> str:
    """Skips, or fails in CI, where they cannot be had."""
    try:
        installed()
        return ",".join(str(each) for of in (JARS, DELTA) for each in of.jars())
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
        raise


class Spark:
    """Pipelines in one session over one broker."""

    def __init__(self, bootstrap: str) -> None:
        words = [word for key, value in SMALL.items() for word in ("--conf", f"{key}={value}")]
        script = str(ROOT / "compat_tests" / "spark" / "pipelines.py")
        found = ["--jars", jars(), "--master", "local[2]", *words]
        self._driver = LineDriver([str(installed()), script, *found], answer_timeout_s=ANSWER_TIMEOUT_S)
        self._bootstrap = bootstrap

    def run(self, name: str, *words: object) -> dict[str, Any]:
        """DriverFailed."""
        line = ["-b", self._bootstrap, *map(str, words)]
        found: dict[str, Any] = self._driver.ask(name, {}, words=line)
        return found

    def close(self) -> None:
        self._driver.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockstepTarget]:
    jars()
    directory = tmp_path_factory.mktemp("broker")
    with LockstepTarget(spark_pipelines.KEEP_ALL, directory=directory) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker: LockstepTarget) -> Iterator[ClusterClient]:
    with ClusterClient(broker.bootstrap) as made:
        yield made


@pytest.fixture(scope="module")
def spark(broker: LockstepTarget) -> Iterator[Spark]:
    made = Spark(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def topics(broker: LockstepTarget, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The data set; its topics, which another try of this fixture does not share."""
    prefix = f"compat-{uuid4().hex[:8]}-"
    settings = events.EventSettings(
        broker.bootstrap, tmp_path_factory.mktemp("events"), SHAPE, PARTITIONS, prefix=prefix
    )
    events.run(settings, ProgressReporter("events", quiet=True))
    return [prefix + name for name in TOPICS]


def test_an_archive_in_delta_by_our_source_gives_the_topics_back(
    spark: Spark, cluster: ClusterClient, topics: list[str], tmp_path: Path
) -> None:
    copies = f"{{topic}}-delta-{uuid4().hex[:8]}"
    into = ["--to", tmp_path / "archive", "--source", "lockstep", "--records-per-batch", 1000]
    for rows in (SHAPE.events, 0):
        assert spark.run("archive", "--topics", ",".join(topics), *into)["rows"] == rows
    again = ["--archive", tmp_path / "archive", "--checkpoint", tmp_path / "replay"]
    for appended in (SHAPE.events, 0):
        done = spark.run("replay", "--topics", ",".join(topics), *again, "--into", copies)
        assert (done["rows"], done["appended"]) == (SHAPE.events, appended)
    pairs = [(name, copies.format(topic=name)) for name in topics]
    assert spark_pipelines.compared_topics(cluster, pairs) == (SHAPE.events, [])


def test_what_was_aborted_is_not_archived_and_a_replay_closes_up(
    broker: LockstepTarget, spark: Spark, cluster: ClusterClient, tmp_path: Path
) -> None:
    """In Parquet, with keys, values and headers of every kind, and times before 1970."""
    topic = f"compat-transactions-{tmp_path.name}"  # a second try finds no records of the first one
    claimed = claim_topic(cluster, tmp_path, topic, "rows", partitions=1, configs={})
    odd: list[Row] = [
        (None, None, -1, []),
        (b"", b"", 0, [("", b"")]),
        (b"\xff\0", b"\xfe", -86_400_000, [("n", None), ("n", b"1"), ("ü", b"\xff")]),
        (b"v" * 300_000, None, 1_700_000_000_001, []),
    ]
    appender = PartitionAppender(cluster, claimed, 0)
    for each in odd:
        appender.add(each)
    appender.finish()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        producer.produce(topic, b"transaction %d" % number, partition=0, timestamp=1000 + number)
        producer.flush(30)
        ends(30)
    committed: list[Row] = [(b"transaction %d" % number, None, 1000 + number, []) for number in (0, 2)]
    form = ["--format", "parquet"]
    done = spark.run("archive", "--topics", topic, "--to", tmp_path / "archive", "--source", "kafka", *form)
    assert done["rows"] == len(odd) + 2
    again = [
        "--archive",
        tmp_path / "archive",
        "--checkpoint",
        tmp_path / "replay",
        "--into",
        topic + "-again",
    ]
    assert spark.run("replay", "--topics", topic, *again, *form)["appended"] == len(odd) + 2
    found = stored(cluster, topic + "-again")
    assert rows_of(found) == [*odd, *committed]
    assert [each.offset for each in found] == list(range(len(odd) + 2))


def test_a_state_has_the_newest_values_and_no_tombstones(
    spark: Spark, cluster: ClusterClient, topics: list[str], tmp_path: Path
) -> None:
    accounts = topics[TOPICS.index(ACCOUNTS)]
    newest = {
        each.key: each.value
        for partition in range(PARTITIONS)
        for each in stored(cluster, accounts, partition)
    }
    left = {key: value for key, value in newest.items() if value is not None}
    assert 0 < len(left) < len(newest)
    table = tmp_path / "table"
    for _ in range(2):  # the second one is written in the first one's place
        done = spark.run(
            "state", "--topic", accounts, "--source", "kafka", "--to", table, "--format", "parquet"
        )
        assert done["keys"] == len(left)
    program = (
        "import sys, pyarrow.parquet as p; t = p.read_table(sys.argv[1]);"
        "print(sorted(zip(t['key'].to_pylist(), t['value'].to_pylist())))"
    )
    said = subprocess.run([str(installed()), "-c", program, str(table)], capture_output=True, check=True)
    assert said.stdout.decode().strip() == str(sorted(left.items()))
    shown = spark.run("state", "--topic", accounts, "--source", "lockstep", "--rows", 2)
    assert shown["keys"] == len(left)
    assert sum("account-" in line for line in shown["lines"]) == 2


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("archive", ["--topics", "absent", "--to", "x"], "absent"),
        ("replay", ["--archive", "/absent", "--topics", "a", "--checkpoint", "c"], "absent"),
    ],
)
def test_what_is_not_there_is_named(
    spark: Spark, tmp_path: Path, name: str, words: list[str], says: str
) -> None:
    words = [word if word != "x" else str(tmp_path / "x") for word in words]
    with pytest.raises(DriverFailed, match=says):
        spark.run(name, *words, *(["--source", "kafka"] if name == "archive" else []))


# --- audits -----------------------------------------------------------------------------------------------


class Shards:
    """Two shards that a player has delivered to, in SQLite and PostgreSQL."""

    def __init__(self, spark: Spark, player: Path, sqlite: Path, postgres: str) -> None:
        self._spark = spark
        self._player = player
        self.sqlite = sqlite
        self.postgres = postgres

    def audit(self) -> dict[str, Any]:
        stores = ["--store", f"lite=sqlite:///{self.sqlite}", "--store", f"big={self.postgres}"]
        return self._spark.run("audit", "--player", self._player, *stores, "--source", "kafka")


TARGETS = ("lite", "big", "lite,big", "")


def delivered_row(number: int) -> Row:
    headers: Headers = [("lockstep-targets", TARGETS[number % 4].encode())]
    key = None if number % 10 == 8 else b"key-%d" % (number % 13)
    return None if number % 6 == 4 else b"value-%d" % number, key, 1_700_000_000_000 + number, headers


@pytest.fixture
def shards(spark: Spark, broker: LockstepTarget, cluster: ClusterClient, tmp_path: Path) -> Iterator[Shards]:
    topic = f"played-{time.time_ns()}"
    claimed = claim_topic(cluster, tmp_path, topic, "rows", partitions=2, configs={})
    rows = 0
    for partition in range(2):
        appender = PartitionAppender(cluster, claimed, partition)
        for number in range(150):
            value, key, time_ms, headers = delivered_row(number)
            appender.add((value, key and key + b"-%d" % partition, time_ms, headers))
            rows += 1
        appender.finish()
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(postgres())
        except PostgresMissing as missing:
            skip_or_fail(str(missing))
        database = server.new_database().replace("+psycopg", "")
        stores = {"lite": f"sqlite:///{tmp_path}/lite.db", "big": database}
        options = player_processes.Options("grpc", tmp_path)
        targets = player_processes.targets_of(stores, options)
        players = player_processes.players_of(broker.bootstrap, topic, targets, options)
        for each in (*targets, players[0]):
            each.start()
            stack.callback(each.kill9)
        deadline = time.monotonic() + READY_S
        while any(each.count() < rows // 2 for each in targets):
            assert time.monotonic() < deadline, [
                each.log.read_text()[-1000:] for each in (*targets, players[0])
            ]
            time.sleep(0.05)
        for each in (players[0], *targets):
            each.end()
            assert not each.strange
        yield Shards(spark, tmp_path / "player-0.toml", tmp_path / "lite.db", database)


def test_an_audit_finds_nothing_where_there_is_nothing_and_every_planted_fault(shards: Shards) -> None:
    found = shards.audit()
    assert (found["differences"], found["targets"], found["compared"]) == (0, 2, 2 * 2 * 75), found
    assert found["lines"] == [] and found["unchecked"] == 0 and found["keys"] > 20
    with contextlib.closing(sqlite3.connect(shards.sqlite)) as lite, lite:
        plant(lite)
    with psycopg.connect(shards.postgres) as big:
        (key,) = big.execute("SELECT min(encode(record_key, 'hex')) FROM shard_values").fetchone() or ("",)
        big.execute("UPDATE shard_values SET record_value = 'x' WHERE record_key = decode(%s, 'hex')", (key,))
    found = shards.audit()
    assert found["kinds"] == PLANTED, found
    assert len(found["lines"]) == found["differences"] == sum(PLANTED.values())
    assert sum(line.startswith("value: big: partition ") for line in found["lines"]) == 1


PLANTED = {"missing": 2, "twice": 1, "order": 1, "key": 1, "extra": 1, "ahead": 2, "value": 4}
"""What `plant` and a changed value in the other shard amount to."""


def plant(lite: sqlite3.Connection) -> None:
    """Each kind of difference, in rows of their own."""
    rows = lite.execute("SELECT number FROM shard_applied WHERE record_key IS NULL ORDER BY number")
    numbers = [number for (number,) in rows]
    copied = "INSERT INTO shard_applied (log_id, record_offset, record_key) SELECT"
    lite.execute("DELETE FROM shard_applied WHERE number = ?", numbers[:1])
    lite.execute(f"{copied} log_id, record_offset, NULL FROM shard_applied WHERE number = ?", numbers[1:2])
    lite.execute("UPDATE shard_applied SET record_key = 'k' WHERE number = ?", numbers[2:3])
    lite.execute("UPDATE shard_applied SET record_offset = record_offset - 1 WHERE number = ?", numbers[3:4])
    lite.execute(f"{copied} max(log_id), 1000, NULL FROM shard_applied")
    first = "(SELECT min(log_id) FROM shard_applied)"
    lite.execute(f"UPDATE lockstep_player_marks SET position = 5000 WHERE log_id = {first}")
    keys = lite.execute("SELECT record_key FROM shard_values ORDER BY record_key LIMIT 2").fetchall()
    lite.execute("UPDATE shard_values SET record_value = 'x' WHERE record_key = ?", keys[0])
    lite.execute("DELETE FROM shard_values WHERE record_key = ?", keys[1])
    more = "topic, 'more', record_value, log_id, record_offset"
    lite.execute(f"INSERT INTO shard_values SELECT {more} FROM shard_values LIMIT 1")


# --- processes --------------------------------------------------------------------------------------------


def test_killed_pipelines_double_and_lose_nothing(tmp_path: Path) -> None:
    jars()
    words = [
        "--events",
        "4000",
        "--kills",
        "1",
        "--partitions",
        "3",
        "--format",
        "parquet",
        "--source",
        "kafka",
    ]
    options = spark_pipelines.arguments([*words, "--no-evidence"])
    print(f"repeat with: python -m tests.campaigns.spark_pipelines {' '.join(words)} --seed {options.seed}")
    with LockstepTarget(spark_pipelines.KEEP_ALL, directory=tmp_path / "broker") as running:
        pipelines = Pipelines(running.bootstrap, tmp_path, conf=SMALL)
        campaign = spark_pipelines.Campaign(pipelines, running.bootstrap, options, tmp_path)
        campaign.run()
    assert campaign.problems == []
    assert (campaign.figures["compared"], campaign.figures["differences"]) == (4000, 0)
    assert pipelines.kills >= 1, campaign.figures


def test_by_spark_submit_on_two_executors(
    broker: LockstepTarget, cluster: ClusterClient, topics: list[str], tmp_path: Path
) -> None:
    """Each executor is a process with a working directory of its own, which has what spark-submit sent it."""
    archive = tmp_path / "connector.zip"
    pack_documented(archive)
    script = shutil.copy(ROOT / "spark_connector" / "pipelines" / "__main__.py", tmp_path / "pipelines.py")
    python = installed()
    home = next((python.parent.parent / "lib").glob("python*/site-packages/pyspark"))
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python)}
    environment |= {"SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    submit = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]", "--jars", jars()]
    submit += ["--py-files", str(archive)]
    submit += [word for key, value in SMALL.items() for word in ("--conf", f"{key}={value}")]

    def run(name: str, *words: object) -> dict[str, Any]:
        line = [*submit, str(script), name, "-b", broker.bootstrap, *map(str, words)]
        done = subprocess.run(
            line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=450
        )
        # spark-submit sends its Python's standard error to standard output
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    name, copies = topics[0], f"{{topic}}-submitted-{uuid4().hex[:8]}"
    try:
        form = ["--format", "parquet"]
        done = run("archive", "--topics", name, "--to", tmp_path / "archive", "--source", "kafka", *form)
        words = ["--archive", tmp_path / "archive", "--checkpoint", tmp_path / "replay"]
        again = run("replay", "--topics", name, *words, "--into", copies, *form)
    finally:
        shutil.rmtree(home / "work", ignore_errors=True)
    assert again["appended"] == done["rows"] > 1000
    pair = name, copies.format(topic=name)
    assert spark_pipelines.compared_topics(cluster, [pair]) == (done["rows"], [])
