"""The command line of the pipelines, as far as it needs no Spark: events, mistakes, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import lockstep.testing
from lockstep.protocol.partitioner import partition_of
from spark_connector.connection import ClusterClient
from spark_connector.pipelines import __main__ as command
from spark_connector.pipelines import shard_stores, spark_session
from spark_connector.pipelines.event_data import TOPICS, Shape, events
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.spark_session import jars_in
from spark_connector.pipelines.topic_queries import config_of, high_watermarks
from tests.spark_connector.rows import rows_of, stored
from tests.support.cases import each_case

ROOT = Path(__file__).resolve().parents[3]
PARTITIONS = 3


def words(running: lockstep.testing.RunningBroker, directory: Path, prefix: str, *more: str) -> list[str]:
    options = ["--checkpoint", str(directory), "--prefix", prefix, "--partitions", str(PARTITIONS)]
    return ["events", "-b", running.bootstrap_servers, "--seed", "3", "--quiet", *options, *more]


def check(cluster: ClusterClient, prefix: str, count: int) -> None:
    shape = Shape(seed=3, events=count)
    wanted: dict[tuple[str, int], list[object]] = {
        (topic, partition): [] for topic in TOPICS for partition in range(PARTITIONS)
    }
    for each in events(shape):
        place = each.topic, partition_of(each.key, PARTITIONS)
        wanted[place].append((each.value, each.key, each.timestamp_ms, each.headers))
    for (topic, partition), rows in wanted.items():
        assert rows_of(stored(cluster, prefix + topic, partition)) == rows


def test_events_are_those_of_the_seed(
    running: lockstep.testing.RunningBroker,
    cluster: ClusterClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for resumed in (0, 3000):
        assert command.main(words(running, tmp_path, "one-", "--events", "3000")) == 0
        said = json.loads(capsys.readouterr().out)
        assert said.pop("seconds") > 0
        assert said == {"pipeline": "events", "events": 3000, "appended": 3000 - resumed, "resumed": resumed}
    check(cluster, "one-", 3000)
    assert config_of(cluster, "one-accounts", "cleanup.policy") == "compact"


def test_other_events_are_not_put_on_top(
    running: lockstep.testing.RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words(running, tmp_path, "two-", "--events", "10")) == 0
    assert command.main(words(running, tmp_path, "two-", "--events", "11")) == 1
    said = capsys.readouterr().err
    filled = "orders of --seed 3 --events {} --accounts 20000 --partitions 3"
    assert f"is being filled with {filled.format(10)}, not with {filled.format(11)}: " in said
    assert "name another topic (events: --prefix" in said


def test_killed_events_are_resumed(
    running: lockstep.testing.RunningBroker, cluster: ClusterClient, tmp_path: Path
) -> None:
    more = words(running, tmp_path, "three-", "--events", "150000", "--compression", "lz4")
    line = [sys.executable, "-P", "-m", "spark_connector.pipelines", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(line, env=environment)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if sum(high_watermarks(cluster, "three-orders").values()) > 3000:
                break
        except Exception:
            time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert sum(sum(high_watermarks(cluster, f"three-{topic}").values()) for topic in TOPICS) < 150_000
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["resumed"] > 3000
    check(cluster, "three-", 150_000)


@each_case(
    ("line", "says"),
    [
        (["events", "--checkpoint", "c", "--events", "0"], "events=0"),
        (["events", "--checkpoint", "c", "--partitions", "0"], "--partitions 0"),
        (["archive", "--topics", " ,", "--to", "x"], "--topics names no topic"),
        (["archive", "--topics", "a", "--to", "x", "--records-per-batch", "0"], "--records-per-batch 0"),
        (["replay", "--archive", "x", "--topics", ",", "--checkpoint", "c"], "--topics names no topic"),
        (
            ["replay", "--archive", "x", "--topics", "a,b", "--into", "c", "--checkpoint", "c"],
            "--into c: several topics need {topic}",
        ),
        (["state", "--topic", "a", "--rows", "0"], "--rows 0"),
        (["audit", "--player", "absent.toml", "--store", "a=b"], "--player absent.toml"),
        (["archive", "--topics", "a", "--to", "x", "--conf", "name"], "--conf name is not"),
        (["archive", "--topics", "a", "--to", "x", "--jars", "/absent.jar"], "--jars /absent.jar"),
        (["events", "--checkpoint", "c", "-b", "localhost:1"], "cannot connect to localhost:1"),
    ],
)
def test_a_mistake_is_one_line(line: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(line) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("error: ") and says in said[0]


def test_stores_must_be_those_of_the_player(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "player.toml"
    targets = '[targets.a]\naddress = "h:1"\n[targets.b]\naddress = "h:2"\n'
    file.write_text('player = "p"\ntopic = "t"\n[route]\nby = "all"\n' + targets)
    for stores, says in (
        (["c=sqlite:///x"], "has no target 'c'"),
        (["a=sqlite:///x"], "b of"),
        (["a"], "NAME=URL"),
    ):
        line = ["audit", "--player", str(file)]
        assert command.main(line + [word for each in stores for word in ("--store", each)]) == 1
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (["state", "--topic", "t"], None),
        (["state", "--topic", "t", "--to", "x"], "delta"),
        (["state", "--topic", "t", "--to", "x", "--format", "parquet"], "parquet"),
        (["archive", "--topics", "t", "--to", "x"], "delta"),
        (["replay", "--archive", "x", "--topics", "t", "--checkpoint", "c"], "delta"),
        (["audit", "--player", "f", "--store", "a=b"], None),
    ],
)
def test_only_pipelines_with_tables_need_their_jars(
    line: list[str], wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, str]] = []

    class Session:
        sparkContext = SimpleNamespace(setLogLevel=lambda _: None)

        def stop(self) -> None:
            """As a session without Delta Lake's jars ends."""

    def session(_name: str, *, master: str, config: dict[str, str], kafka: bool) -> Session:
        assert kafka == (getattr(options, "source", None) == "kafka"), "format(lockstep) needs no jars"
        made.append(config)
        return Session()

    monkeypatch.setattr("spark_connector.session", session)
    monkeypatch.setattr("spark_connector.pipelines.spark_session.has_class", lambda *_: False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    options = command.parser().parse_args(line)
    if wanted == "delta":
        with pytest.raises(PipelineFailed, match="--format delta needs the jars of Delta Lake"):
            spark_session.session(options, "n")
    else:
        spark_session.session(options, "n")
    assert ("spark.sql.extensions" in made[0]) == (wanted == "delta")


def test_the_cause_of_a_failed_task_is_reported() -> None:
    text = (
        "Job aborted\n  Traceback (most recent call last):\n  File x, line 1\n"
        "org.apache.spark.PythonException: Traceback (most recent call last):\n  File y, line 2\n    raise\n"
        "spark_connector.pipelines.failures.PipelineFailed: partition 3: the archive has offset 7 twice\n"
        " SQLSTATE: 38000\n\tat org.apache.spark\n"
    )
    assert command.summary_line(text) == "partition 3: the archive has offset 7 twice"
    assert command.summary_line("\n [TABLE_NOT_FOUND] none\nmore") == " [TABLE_NOT_FOUND] none"
    assert command.summary_line("") == ""


def test_the_second_line_of_a_java_error_is_reported() -> None:
    text = "An error occurred while calling o55.select.\n: java.io.IOException: disk\n\tat java.base/java\n"
    assert command.summary_line(text) == "java.io.IOException: disk"
    assert command.summary_line("An error occurred while calling o55.select.") != ""


def test_stopped_by_ctrl_c_when_the_jvm_has_gone_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone:
        def stop(self) -> None:
            raise ConnectionError("SparkSession does not exist in the JVM")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spark_connector.pipelines.spark_session.session", lambda *_: Gone())
    monkeypatch.setattr("spark_connector.pipelines.state.run", interrupted)
    assert command.main(["state", "--topic", "a", "--rows", "1"]) == 130
    assert capsys.readouterr().err == ""


def test_a_store_in_postgresql_without_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    said = r"postgresql://h/b: .* pip install 'psycopg\[binary\]'"
    with pytest.raises(PipelineFailed, match=said), shard_stores._open_reader("postgresql://h/b"):
        pass


def test_without_pyspark_the_error_has_the_install_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")  # what it sets is not for the tests after this one
    assert command.main(["archive", "--topics", "a", "--to", "x"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: pyspark is not installed in ") and "pip install pyspark==4." in said


def test_jars_are_files_and_directories(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "c.txt"):
        (tmp_path / name).touch()
    found = jars_in(f"{tmp_path}, https://host/c.jar,{tmp_path}/c.txt")
    assert found == [f"{tmp_path}/a.jar", f"{tmp_path}/b.jar", "https://host/c.jar", f"{tmp_path}/c.txt"]
    assert jars_in("") == []
