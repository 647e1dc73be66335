"""Source and sink of the connector over TLS, with a login and by certificate, in a real Spark session."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from compat_tests.harness import World
from compat_tests.line_driver import DriverFailed
from compat_tests.probe import HOST
from tests.support.secured import SecuredTarget

pytestmark = pytest.mark.tier(name="rest")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTarget]:
    with SecuredTarget(tmp_path_factory.mktemp("secured")) as found:
        found.add_users()
        yield found


def options(port: int, properties: dict[str, str]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": f"{HOST}:{port}",
        **{f"kafka.{name}": text for name, text in properties.items()},
    }


@pytest.mark.parametrize("way", ["SCRAM-SHA-512 over TLS", "certificate"])
def test_rows_go_there_and_back(world: World, target: SecuredTarget, tmp_path: Path, way: str) -> None:
    session, topic = world.spark_connector(), f"t-{uuid4().hex[:12]}"
    if way == "certificate":
        given = options(target.certified, target.certified_as(tmp_path / "client.pem"))
    else:
        given = options(target.login, target.logging_in())
    rows = [{"value": base64.b64encode(b"%d" % n).decode()} for n in range(10)]
    session.ask("write", {**given, "topic": topic}, rows=rows, columns=["value"], sink="lockstep")
    read = session.ask("read", {**given, "subscribe": topic}, source="lockstep")["rows"]
    assert sorted(each["value"] for each in read) == sorted(each["value"] for each in rows)


def test_a_wrong_password_ends_the_query(world: World, target: SecuredTarget) -> None:
    given = {**options(target.login, target.logging_in(password="wr0ng")), "subscribe": "t"}
    with pytest.raises(DriverFailed, match="rejects the login by SCRAM-SHA-512") as told:
        world.spark_connector().ask("read", given, source="lockstep")
    assert "wr0ng" not in str(told.value)
