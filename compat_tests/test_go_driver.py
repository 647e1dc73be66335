"""How the Go drivers are built: which Go will do, what is said where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import go_driver, go_target
from compat_tests.clients.go import FranzGo, KafkaGo, Sarama
from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What was found for this machine is not found again in a case that changes the PATH, nor after it."""
    go_driver.go_command.cache_clear()
    yield
    go_driver.go_command.cache_clear()


def _fake_go(directory: Path, said: str) -> None:
    program = directory / "go"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)


def test_the_version_of_go_is_read() -> None:
    assert go_driver.go_version("go version go1.26.8 linux/amd64") == (1, 26)
    assert go_driver.go_version("go version go1.9 linux/amd64") == (1, 9)
    assert go_driver.go_version("go: no such tool") == (0, 0)


def test_an_old_go_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_go(tmp_path, "go version go1.19.8 linux/amd64")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ToolchainMissing, match=r"too old \(Go 1\.\d+ or newer is needed\).*go1\.19\.8"):
        go_driver.go_command()


def test_no_go_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    for ask in (go_driver.go_command, FranzGo.version):
        with pytest.raises(ToolchainMissing, match="go not found"):
            ask()


def test_the_table_has_the_pinned_versions() -> None:
    pinned = [go_driver.module_version(kind.module) for kind in (FranzGo, Sarama, KafkaGo)]
    assert pinned == ["1.22.2", "1.61.1", "0.4.51"]
    with pytest.raises(AssertionError):
        go_driver.module_version("github.com/twmb")


@pytest.mark.parametrize(
    "module", [Path(go_driver.__file__).parent / "go", go_target.MODULE], ids=["drivers", "target"]
)
def test_what_is_in_go_is_formatted_and_vetted(module: Path) -> None:
    try:
        found = go_driver.complaints(module)
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
        raise
    assert found == ""
