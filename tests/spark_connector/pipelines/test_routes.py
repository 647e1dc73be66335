"""An audit's own routing: it must say what the player's says, of any record and every way to choose."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.player.core.messages import Entry
from lockstep.player_host.config import parse
from lockstep.player_host.routers import router_of
from lockstep.protocol.records.record import BatchBuilder, Record, iter_records
from spark_connector.pipelines import routes
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.routes import TargetRouter

HEAD = 'player = "p"\ntopic = "t"\n'
TARGETS = "".join(f'[targets.{name}]\naddress = "localhost:{7000 + at}"\n' for at, name in enumerate("abc"))
ROUTES = {
    "header": '[route]\nby = "header"\notherwise = ["c"]\n',
    "another header": '[route]\nby = "header"\nheader = "other"\notherwise = ["a"]\n',
    "header, no default": '[route]\nby = "header"\n',
    "key": '[route]\nby = "key"\ntargets = ["b", "a", "c"]\nwithout_key = ["a", "b"]\n',
    "function": f'[route]\nby = "function"\nfunction = "{__name__}:by_length"\n',
    "function, values": f'[route]\nby = "function"\nfunction = "{__name__}:valued"\n',
    "all": '[route]\nby = "all"\n',
    "some": '[route]\nby = "all"\ntargets = ["b"]\n',
}
NAMES = st.sampled_from([b"a", b"b", b"c", b"a,b", b" a , c,", b"", b",", b"a,a", b"d", b"\xff,b", None])
HEADERS = st.lists(st.tuples(st.sampled_from(["lockstep-targets", "other"]), NAMES), max_size=3)
RECORDS = st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9), HEADERS)


def by_length(record: Record) -> list[str]:
    return ["a", "b"] if len(record.value or b"") % 2 else []


def valued(record: Record) -> dict[str, bytes | None]:
    return {"a": record.value, "b": b"for b", "c": None}


def written(directory: Path, route: str) -> Path:
    path = directory / "player.toml"
    path.write_text(HEAD + route + TARGETS)
    return path


@pytest.mark.parametrize("route", list(ROUTES))
@settings(deadline=None)
@given(records=st.lists(RECORDS, min_size=1, max_size=5))
def test_it_describes_what_the_player_does(
    tmp_path_factory: pytest.TempPathFactory,
    route: str,
    records: list[tuple[bytes | None, bytes | None, object]],
) -> None:
    builder = BatchBuilder()
    for key, value, headers in records:
        builder.append(value, key, timestamp_ms=5, headers=headers)  # type: ignore[arg-type]
    batch = builder.build(10)
    theirs: dict[int, dict[str, bytes | None]] = {}
    text = HEAD + ROUTES[route] + TARGETS
    config = parse(text)
    for name, part in router_of(config.route, config.targets)(Entry(10 + len(records) - 1, batch)):
        assert isinstance(part.payload, bytes)
        for each in iter_records(part.payload):
            theirs.setdefault(each.offset, {})[name] = each.value
    choose = TargetRouter(routes.read(written(tmp_path_factory.mktemp("player"), ROUTES[route])))
    ours = {each.offset: dict(choose(each)) for each in iter_records(batch)}
    assert {offset: chosen for offset, chosen in ours.items() if chosen} == theirs


def test_it_reads_what_else_an_audit_needs(tmp_path: Path) -> None:
    path = tmp_path / "player.toml"
    targets = '[targets.a]\naddress = "h:1"\nfirst = 7\n[targets.b]\naddress = "h:2"\nfirst = "latest"\n'
    path.write_text(HEAD + 'partitions = [2, 0]\n[route]\nby = "all"\n' + targets)
    route_config = routes.read(path)
    assert (route_config.topic, route_config.partitions) == ("t", (2, 0))
    assert route_config.first == (("a", 7), ("b", "latest"))
    assert route_config.targets == ["a", "b"]


def test_a_function_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "routing_beside.py").write_text(
        "class Of:\n    @staticmethod\n    def route(record): return ['a']\n"
    )
    path = written(tmp_path, '[route]\nby = "function"\nfunction = "routing_beside:Of.route"\n')
    assert TargetRouter(routes.read(path))(Record(0, 0, b"k", b"v", [])) == {"a": b"v"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topic = ", "--player"),
        ('topic = "t"', "'targets' is missing"),
        (HEAD + TARGETS + '[route]\nby = "luck"\n', "route.by: 'luck'"),
        (HEAD + TARGETS + '[route]\nby = "key"\n', "route.targets"),
        (HEAD + TARGETS + '[route]\nby = "function"\nfunction = "no_such_module:f"\n', "route.function"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "player.toml"
    path.write_text(text)
    with pytest.raises(PipelineFailed, match=says):
        TargetRouter(routes.read(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match=r"absent\.toml"):
        routes.read(tmp_path / "absent.toml")


def test_the_error_of_a_function_names_the_record(tmp_path: Path) -> None:
    path = written(tmp_path, '[route]\nby = "function"\nfunction = "operator:index"\n')
    with pytest.raises(PipelineFailed, match="record at 41"):
        TargetRouter(routes.read(path))(Record(41, 0, None, None, []))
