"""Which jars and settings a session gets; what is sent to executors. With a real one: compat_tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_connector.sessions import (
    CONNECTORS,
    JARS_VARIABLE,
    SessionError,
    is_kafka_required,
    settings,
    zip_packages,
)
from tests.spark_connector.documented_archive import ROOT, pack_documented

_KAFKA = "spark-sql-kafka-0-10_2.13"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A folder with what pyspark 4.2.0 needs, deep in it, and something else."""
    folder = tmp_path / "jars" / "libs"
    folder.mkdir(parents=True)
    for name in (*CONNECTORS["4.2.0"].jars, "other-1.0.jar"):
        (folder / name).touch()
    return folder


def test_jars_in_a_folder(jars: Path) -> None:
    found = settings("4.2.0", {"spark.ui.enabled": "false", "spark.jars": "mine.jar"}, jars.parent)
    assert found["spark.ui.enabled"] == "false"
    mine, *others = found["spark.jars"].split(",")
    assert mine == "mine.jar"
    assert others == [str(jars / name) for name in CONNECTORS["4.2.0"].jars]


def test_jars_one_by_one(jars: Path) -> None:
    paths = [str(path) for path in jars.iterdir()]
    assert _KAFKA in settings("4.2.0", {}, paths)["spark.jars"]
    with pytest.raises(SessionError, match="needs spark-token-provider"):
        settings("4.2.0", {}, jars / f"{_KAFKA}-4.2.0.jar")


def test_jars_by_environment(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(jars))
    assert "other" not in settings("4.2.0", {})["spark.jars"]
    monkeypatch.delenv(JARS_VARIABLE)
    found = settings("4.2.0", {})
    assert found == {"spark.jars.packages": f"org.apache.spark:{_KAFKA}:4.2.0"}, "Spark resolves it"


def test_a_missing_jar_is_named(jars: Path) -> None:
    (jars / "kafka-clients-3.9.2.jar").unlink()
    with pytest.raises(SessionError, match=r"pyspark 4\.2\.0 needs kafka-clients-3\.9\.2\.jar \(not in"):
        settings("4.2.0", {}, jars)


def test_packages_that_spark_resolves() -> None:
    found = settings("4.0.0", {"spark.jars.packages": "a:b:1"})
    assert found["spark.jars.packages"] == f"a:b:1,org.apache.spark:{_KAFKA}:4.0.0"


def test_a_version_without_a_known_connector() -> None:
    with pytest.raises(
        SessionError, match=r"pyspark 4\.9\.0: no Kafka connector .* 4\.0\.0, 4\.2\.0, or name"
    ):
        settings("4.9.0", {})
    for name, value in (
        ("spark.jars.packages", f"org.apache.spark:{_KAFKA}:4.9.0"),
        ("spark.jars", f"libs/{_KAFKA}-4.9.0.jar"),
    ):
        assert settings("4.9.0", {name: value}) == {name: value}, "whoever names it knows which"


def test_the_connector_is_required_where_it_or_jars_are_named(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    assert not is_kafka_required(None, {}, None)
    assert is_kafka_required(True, {}, None) and not is_kafka_required(False, {}, jars)
    assert is_kafka_required(None, {}, jars)
    assert is_kafka_required(None, {"spark.jars.packages": f"org.apache.spark:{_KAFKA}:4.9.0"}, None)
    monkeypatch.setenv(JARS_VARIABLE, str(jars))
    assert is_kafka_required(None, {}, None) and not is_kafka_required(False, {}, None)


def imported_files(archive: Path) -> list[str]:
    """Files of this project's modules after an import of all of the connector, but for modules that need
    Spark where there is none, in a process that finds the project in `archive` only."""
    program = (
        "import importlib, pkgutil, sys\n"
        f"sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}]\n"
        "import spark_connector\n"
        "for each in pkgutil.walk_packages(spark_connector.__path__, 'spark_connector.'):\n"
        "    if not each.name.endswith('__main__'):\n"
        "        try:\n"
        "            importlib.import_module(each.name)\n"
        "        except ModuleNotFoundError as missing:\n"
        "            if missing.name.split('.')[0] not in ('pyspark', 'pyarrow', 'pandas'):\n"
        "                raise\n"
        "own = [m for n, m in sys.modules.items() if n.split('.')[0] in ('lockstep', 'spark_connector')]\n"
        "print(*sorted(m.__file__ for m in own), sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=archive.parent,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_executors_are_sent_is_enough(tmp_path: Path) -> None:
    archive = zip_packages(tmp_path)
    files = imported_files(archive)
    assert len(files) > 50 and all(each.startswith(str(archive)) for each in files)


def test_the_documented_archive_is_enough(tmp_path: Path) -> None:
    """What docs/spark_pipelines.md says to pack for spark-submit."""
    archive = tmp_path / "connector.zip"
    pack_documented(archive)
    files = imported_files(archive)
    assert len(files) > 50 and all(each.startswith(str(archive)) for each in files)


def test_importing_the_package_imports_no_spark() -> None:
    program = (
        "import sys, spark_connector, spark_connector.connection, spark_connector.sessions; "
        "print([each for each in sys.modules if each.split('.')[0] in ('pyspark', 'pyarrow', 'broker')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    import spark_connector

    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        spark_connector.sesion  # noqa: B018
    assert callable(spark_connector.session) and callable(spark_connector.register)
