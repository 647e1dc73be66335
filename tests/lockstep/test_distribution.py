"""What is installed: one import name, all of the product and nothing else, beside modules of any name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from lockstep.build_info import COMMIT_FILE, UNKNOWN, commit
from lockstep.linked_packages import LINKED

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("lockstep", "spark_connector")

SERVICE = """
import storage.table
from broker import NAME
from player import play
from protocol.words import greeting

import lockstep.testing
from lockstep.kafka_client.client import Client


async def test_the_service_uses_the_broker_beside_its_own_modules() -> None:
    async with lockstep.testing.broker() as running:
        async with Client(running.bootstrap_servers) as client:
            assert await client.topics() == []
    assert storage.table.ROWS == play(NAME) == greeting() == []


def test_all_that_users_import() -> None:
    import lockstep.broker.server
    import lockstep.player.driver.driver
    import lockstep.sql
    import lockstep.target
    import lockstep.transactions
    import spark_connector.options

    import broker
    assert broker.__file__ != lockstep.broker.__file__
"""
CLASHING = {
    "broker.py": "NAME = 'theirs'\n",
    "player.py": "def play(name):\n    return []\n",
    "protocol/__init__.py": "",
    "protocol/words.py": "def greeting():\n    return []\n",
    "storage/__init__.py": "",
    "storage/table.py": "ROWS = []\n",
    "test_service.py": SERVICE,
    "pytest.ini": "[pytest]\nasyncio_mode = auto\n",
}


TYPED = """
import lockstep.testing
from lockstep.kafka_client.client import Client
from lockstep.sql import SqlApplication
from lockstep.target import FileStore, serve
from lockstep.transactions import BlockingTransactionClient, Draft, Transaction, TransactionClient


class Transfer(Transaction):
    pass


async def main() -> int:
    async with lockstep.testing.broker() as running, Client(running.bootstrap_servers) as client:
        topic = await client.topic("t", create=True)
        return len(topic.partitions) + running.port


untyped: int = Client("localhost:9092")
wrong: int = serve
"""


def build(kind: str, source: Path, target: Path, **environment: str) -> Path:
    """Build a wheel or an sdist of a source tree; its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    temporary = target.with_name(f"{target.name}-temporary")
    temporary.mkdir()
    where = {**os.environ, "TMPDIR": str(temporary), **environment}
    subprocess.run(command, cwd=source, env=where, check=True, capture_output=True, timeout=120)
    assert not list(temporary.iterdir())
    (built,) = target.iterdir()
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by path, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a machine without a compiler builds it."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("pure"), LDSHARED="/nowhere/cc")


def tracked() -> set[str]:
    """The product's files as they are installed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PACKAGES, *LINKED]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    files = {name for name in listed if name and (ROOT / name).is_file()}
    return {f"lockstep/{name}" if name.startswith(LINKED) else name for name in files}


def test_the_wheel_has_the_product_and_nothing_else(pure_wheel: Path) -> None:
    found = contents(pure_wheel)
    assert set(found) == {*tracked(), f"lockstep/{COMMIT_FILE}"}
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    assert found[f"lockstep/{COMMIT_FILE}"].decode()[:12] == commit() != UNKNOWN
    assert "lockstep/py.typed" in found


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_wheel_from_a_machine_with_a_compiler_has_the_extension_too(wheel: Path, pure_wheel: Path) -> None:
    more = set(contents(wheel)) - set(contents(pure_wheel))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert more == {f"lockstep/broker/produce/_fast_path{suffix}"}
    assert "-none-any" not in wheel.name


def test_a_wheel_from_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    """A plain sdist has the linked folders beside `lockstep`, and a wheel of it lacks them without an
    error."""
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(tmp_path)], check=True)
    (source,) = tmp_path.glob("lockstep_broker-*")
    assert "lockstep/broker/produce/fast_path.c" in contents(wheel)
    assert contents(build("wheel", source, tmp_path / "wheel")) == contents(wheel)
    (source / "lockstep" / COMMIT_FILE).unlink()
    (source / ".git").write_text("gitdir: /nowhere/worktrees/w\n")
    unknown = contents(build("wheel", source, tmp_path / "unknown"))
    assert unknown.pop(f"lockstep/{COMMIT_FILE}").decode() == f"{UNKNOWN}\n"
    assert set(unknown) < set(contents(wheel))
    assert {path.name for path in source.iterdir()}.isdisjoint({"bench", "tests", "docs", *LINKED})


@pytest.mark.parametrize("kind", ["wheel", "pure_wheel"])
def test_a_service_with_modules_of_the_same_names(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    wheel: Path = request.getfixturevalue(kind)
    site, service = tmp_path / "site", tmp_path / "service"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name, text in CLASHING.items():
        file = service / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=service,
        env={**os.environ, "PYTHONPATH": f"{service}{os.pathsep}{site}"},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout.decode()


def test_mypy_sees_the_real_types_of_public_names(wheel: Path, tmp_path: Path) -> None:
    site, program = tmp_path / "site", tmp_path / "service" / "program.py"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program.parent.mkdir()
    program.write_text(TYPED)
    options = ("--strict", "--disallow-any-expr", "--follow-imports=silent", "--ignore-missing-imports")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), program.name],
        cwd=program.parent,
        env={**os.environ, "MYPYPATH": str(site)},
        capture_output=True,
        timeout=300,
    )
    found = [line for line in done.stdout.decode().splitlines() if ": error: " in line]
    assert len(found) == 2, done.stdout.decode() + done.stderr.decode()
    assert 'expression has type "Client"' in found[0] and "store: TargetStore" in found[1]
