"""A Spark session that can read and write Kafka topics in both ways: `format("kafka")` and
`format("lockstep")`.

Owns: the jars of Spark's Kafka connector for each pyspark, and the archive of this package for executors.

Invariants: `format("lockstep")` needs no jar, so a session is made without Spark's Kafka connector where the
caller does not require it, with a warning. Where the caller names jars or passes `kafka=True`, a session is
returned only if the connector's classes are loaded in its JVM, so that "Failed to find data source: kafka"
cannot come later. Jars are a matter of the JVM's start: a running session without them is rejected then,
because Spark would ignore the setting silently.

Does not: download jars itself. Spark does (`spark.jars.packages`) where `kafka=True` requires the connector
and no jars are named."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_VARIABLE: Final = "LOCKSTEP_SPARK_JARS"
"""Environment variable: the folder with the connector's jars, where `session` gets no other."""

WITHOUT_CONNECTOR: Final = (
    'this session has format("lockstep") and not format("kafka"): pass kafka=True to have Spark fetch its '
    "Kafka connector, or jars=; kafka=False leaves this warning out"
)
SPARK_CONNECT: Final = (
    "Spark Connect: the server loads jars when it starts; start it with Spark's Kafka connector, "
    "make the session as usual, and call spark_connector.register(spark)"
)

_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("spark_connector", "lockstep.kafka_client", "lockstep.protocol")
_OTHER_LOCKSTEP: Final = "\n__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
"""Lets the archive's `lockstep` be found beside a `lockstep` that executors have themselves."""
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


class SessionError(RuntimeError):
    """No working session can be made; the text names the remedy."""


@dataclass(frozen=True)
class Connector:
    """Spark's Kafka connector for one version of pyspark: Maven coordinates to resolve, and the jars that do
    instead where they are known one by one."""

    packages: tuple[str, ...]
    jars: tuple[str, ...] = ()


CONNECTORS: Final[Mapping[str, Connector]] = {
    "4.0.0": Connector(packages=("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",)),
    "4.2.0": Connector(
        packages=("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
        jars=(
            "spark-sql-kafka-0-10_2.13-4.2.0.jar",
            "spark-token-provider-kafka-0-10_2.13-4.2.0.jar",
            "kafka-clients-3.9.2.jar",
            "commons-pool2-2.13.1.jar",
        ),
    ),
}
"""The connectors by pyspark's version; each was run."""


def session(
    app_name: str = "lockstep",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    jars: Path | str | Sequence[Path | str] | None = None,
    kafka: bool | None = None,
) -> SparkSession:
    """A session with `format("lockstep")`, and with Spark's Kafka connector where the caller requires it or
    names its jars; the running session if there is one.

    Args:
        master: as Spark names it, "local[4]" for example; the master of spark-submit where it is None.
        config: further settings of Spark. `spark.jars` and `spark.jars.packages` are added to.
        jars: the connector's jars, or the folder that has them (others in it are left alone); by default
            the folder that the environment variable LOCKSTEP_SPARK_JARS names.
        kafka: must `format("kafka")` work? True: Spark fetches the connector where no jars are named.
            False: the connector is left out. None, the default: True where jars or a connector are named,
            else False with a RuntimeWarning.
    Raises:
        SessionError: there is no pyspark; or the connector is required, and no known one fits, a jar is
            missing, or a session without it runs already.
    """
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise SessionError(
            f"pyspark is not installed in {sys.executable}: pip install pyspark=={max(CONNECTORS)} "
            "pyarrow pandas; see docs/spark.md"
        ) from None
    if (master or "").startswith("sc://") or os.environ.get("SPARK_REMOTE"):
        raise SessionError(SPARK_CONNECT)
    running = SparkSession.getActiveSession()
    wanted: Mapping[str, str] = config or {}  # of a running one Spark changes what can be changed
    builder = SparkSession.builder
    is_required = is_kafka_required(kafka, wanted, jars)
    if running is None:
        if is_required:
            wanted = settings(pyspark.__version__, wanted, jars)
        builder = builder.appName(app_name) if master is None else builder.appName(app_name).master(master)
        _prepare_local_workers(master)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    if is_required and not has_class(found, _PROVIDER):
        how = (
            "runs already: stop it before spark_connector.session()"
            if running
            else "was made from other jars"
        )
        raise SessionError(f"a Spark session without Spark's Kafka connector {how}")
    if kafka is None and running is None and not is_required:
        warnings.warn(WITHOUT_CONNECTOR, RuntimeWarning, stacklevel=2)
    register(found)
    return found


def register(spark: SparkSession) -> None:
    """Registers `format("lockstep")` in an existing session and its executors."""
    from spark_connector.data_source import LockstepDataSource

    is_found = _is_local(spark.sparkContext.master) and str(_ROOT) in os.environ.get("PYTHONPATH", "")
    if not is_found and _ROOT.is_dir():  # else spark-submit has sent the archive that this is in
        spark.sparkContext.addPyFile(str(_archive()))
    spark.dataSource.register(LockstepDataSource)


def is_kafka_required(
    kafka: bool | None, config: Mapping[str, str], jars: Path | str | Sequence[Path | str] | None
) -> bool:
    """True where the caller requires Spark's Kafka connector, or names it or its jars: no session without it
    then."""
    if kafka is not None:
        return kafka
    return jars is not None or JARS_VARIABLE in os.environ or _names_connector(config)


def settings(
    version: str, config: Mapping[str, str], jars: Path | str | Sequence[Path | str] | None = None
) -> dict[str, str]:
    """Settings for a pyspark of this version: `config`, and those that load the connector. SessionError."""
    found = dict(config)
    if _names_connector(config):
        return found
    connector = CONNECTORS.get(version)
    if connector is None:
        raise SessionError(
            f"pyspark {version}: no Kafka connector for it is known to work. Install one of pyspark "
            f"{', '.join(sorted(CONNECTORS))}, or name the connector in spark.jars or spark.jars.packages"
        )
    named = os.environ.get(JARS_VARIABLE) if jars is None else jars
    if named is None or not connector.jars:
        wanted = [*_split_list(config.get("spark.jars.packages")), *connector.packages]
        found["spark.jars.packages"] = ",".join(wanted)
        return found
    paths = jars_of(connector, version, named)
    found["spark.jars"] = ",".join([*_split_list(config.get("spark.jars")), *map(str, paths)])
    return found


def jars_of(connector: Connector, version: str, given: Path | str | Sequence[Path | str]) -> list[Path]:
    """The connector's jars in a folder, or among paths. SessionError, naming what is missing."""
    candidates: Iterable[Path]
    if isinstance(given, Path | str):
        candidates = Path(given).rglob("*.jar") if Path(given).is_dir() else (Path(given),)
    else:
        candidates = map(Path, given)
    by_name = {path.name: path.resolve() for path in candidates if path.is_file()}
    missing = [name for name in connector.jars if name not in by_name]
    if missing:
        raise SessionError(
            f"pyspark {version} needs {', '.join(missing)} (not in {given}). Maven copies all of them: "
            "see docs/spark.md, Jars"
        )
    return [by_name[name] for name in connector.jars]


def zip_packages(folder: Path) -> Path:
    """A zip of `_PACKAGES`, for executors that have none of them; made in `folder`."""
    target = folder / "lockstep_spark.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _PACKAGES:
            package = Path(importlib.import_module(name).__file__ or "").parent
            for path in sorted(package.rglob("*.py")):
                archive.write(path, str(Path(*name.split(".")) / path.relative_to(package)))
        own = Path(importlib.import_module("lockstep").__file__ or "").read_text(encoding="utf-8")
        archive.writestr("lockstep/__init__.py", own + _OTHER_LOCKSTEP)
    return target


@functools.cache
def _archive() -> Path:
    """The archive of `zip_packages`, made once: Spark rejects a second file of the same name. Executors fetch
    it as long as this process runs."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return zip_packages(folder)


def _prepare_local_workers(master: str | None) -> None:
    """Python workers of a local master inherit the environment, as it is when the JVM starts: they find this
    package there, and are the Python that runs here, where pyspark would take any `python3`."""
    if master is not None and not _is_local(master):
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_ROOT) not in paths and "site-packages" not in _ROOT.parts:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, paths)])


def _is_local(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")


def has_class(spark: SparkSession, name: str) -> bool:
    """Returns whether the session's JVM finds this class, that is, whether its jar was loaded."""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except Exception as error:  # py4j's, whose class is not known without pyspark
        if "ClassNotFoundException" not in str(error):
            raise
        return False
    return True


def _names_connector(config: Mapping[str, str]) -> bool:
    """True where the caller chose a connector: it is taken as it is."""
    given = [*_split_list(config.get("spark.jars")), *_split_list(config.get("spark.jars.packages"))]
    return any("spark-sql-kafka-0-10" in each for each in given)


def _split_list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]
