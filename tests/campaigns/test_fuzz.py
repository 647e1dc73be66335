"""The fuzzer finds planted faults, repeats itself for a seed, reaches every API and goes on after a stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.metadata.api.api_versions import ApiVersions
from lockstep.broker.network.response_encoder import ResponseEncodingError
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.protocol import primitives
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest
from lockstep.protocol.records import compression
from tests.campaigns import evidence, fuzz, fuzz_grammar, fuzz_targets
from tests.campaigns.fuzz import Engine, Run
from tests.campaigns.fuzz_broker import KEEP_CRC, SERVED, Handlers, framed, item, items_of
from tests.campaigns.fuzz_targets import Violated
from tests.campaigns.fuzz_worker import COVERAGE_TARGETS, Feeder, current_input

ASK_VERSIONS = item(18, 0, b"")


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    made = Handlers()
    yield made
    made.close()


def drawn(seed: int, chunk: int) -> list[tuple[str, bytes]]:
    inputs: list[tuple[str, bytes]] = []
    fuzz_grammar.run_chunk(seed, chunk, lambda target, data: inputs.append((target, data)))
    return inputs


def test_a_seed_gives_the_same_inputs() -> None:
    for chunk, target in ((0, "handlers"), (1, "request"), (3, "records")):
        once = drawn(5, chunk)
        assert once == drawn(5, chunk)
        assert {name for name, _ in once} == {target}
        assert len(once) == fuzz_grammar.CHUNK_INPUTS
        assert once != drawn(6, chunk)
        assert len(set(once)) > len(once) / 3


def test_all_targets_have_chunks_and_a_byte() -> None:
    targets = {*fuzz_targets.CODECS, "handlers"}
    assert set(fuzz_grammar.SCHEDULE) == targets == set(COVERAGE_TARGETS) == set(fuzz_grammar.STRATEGIES)


def test_samples_begin_with_every_api_and_version() -> None:
    samples = fuzz_grammar.samples(1)
    tables = sum(len(list(cls.SCHEMA.versions)) for pair in MESSAGES.values() for cls in pair)
    served = sum(last - first + 1 for first, last in SERVED.values())
    seen = [next(samples) for _ in range(tables + served)]
    assert len(set(seen)) == len(seen)
    for target, data in seen:
        if target != "handlers":
            assert fuzz_targets.CODECS[target](data), f"{target} refuses {data.hex()}"


def test_much_of_what_is_drawn_is_accepted_and_much_refused() -> None:
    for chunk in range(1, 5):
        outcomes = [fuzz_targets.CODECS[target](data) for target, data in drawn(9, chunk)]
        assert 0.05 < sum(outcomes) / len(outcomes) < 0.95


def test_an_unexpected_exception_is_kept_with_its_input(tmp_path: Path) -> None:
    def breaks(data: bytes) -> bool:
        return 1 // len(data) > 0

    feeder = Feeder(tmp_path, {"request": breaks, "header": breaks})
    for data in (b"a", b"ab", b"", b"", b"", b"", b"", b"c"):
        feeder.feed("request", data)
    assert (feeder.inputs["request"], feeder.accepted["request"]) == (8, 2)
    assert list(feeder.kinds.values()) == [5]
    (kept,) = (tmp_path / "findings").iterdir()
    finding = json.loads(kept.read_text())
    assert (finding["target"], finding["input"]) == ("request", "")
    assert "ZeroDivisionError" in finding["error"]
    assert current_input(tmp_path) == ("request", b"c")


def test_a_decoder_that_believes_a_count_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(buf: memoryview, pos: int, first: int, room: int) -> Any:
        return {tag: bytes(buf[pos + tag]) for tag in range(first)}, pos, room

    believing.__name__ = "read_tags"
    monkeypatch.setattr(primitives, "read_tags", believing)
    monkeypatch.setattr("lockstep.protocol.compiler._decoders", {})
    with pytest.raises((IndexError, primitives.MalformedMessage)):
        for target, data in drawn(2, 1):
            fuzz_targets.CODECS[target](data)


def test_a_decompressor_over_its_cap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compression._DECOMPRESS, 0, lambda data, max_bytes: data)
    with pytest.raises(Violated, match="were allowed"):
        for number in range(7):
            for target, data in drawn(2, number):
                if target == "compression":
                    fuzz_targets.CODECS[target](data)


def test_a_handler_that_raises_is_found(monkeypatch: pytest.MonkeyPatch, handlers: Handlers) -> None:
    plain = ApiVersions.handle

    def handle(self: ApiVersions, client: Any, header: Any, request: ApiVersionsRequest) -> Any:
        if request.client_software_name == "planted":
            raise ZeroDivisionError("planted")
        return plain(self, client, header, request)

    monkeypatch.setattr(ApiVersions, "handle", handle)
    assert handlers.run(ASK_VERSIONS)
    planted = item(18, 3, b"\x08planted\x021\0")
    with pytest.raises(ZeroDivisionError, match="planted"):
        handlers.run(ASK_VERSIONS + planted)
    assert handlers.run(ASK_VERSIONS)


@pytest.mark.parametrize("listener", ["after-login", "inside-tls"])
def test_a_handler_that_raises_is_found_behind_a_login_and_inside_tls(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    plain = ApiVersions.handle
    asked = 0

    def handle(self: ApiVersions, client: Any, header: Any, request: ApiVersionsRequest) -> Any:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise ZeroDivisionError("planted")
        return plain(self, client, header, request)

    monkeypatch.setattr(ApiVersions, "handle", handle)
    secured = Handlers(listener)
    try:
        assert secured.run(ASK_VERSIONS * 2)
        assert secured.answers == 2
        with pytest.raises(ZeroDivisionError, match="planted"):
            secured.run(ASK_VERSIONS)
    finally:
        secured.close()


def test_only_a_login_is_served_before_one() -> None:
    closed = Handlers("before-login")
    try:
        assert closed.run(item(17, 1, encode_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1)))
        assert not closed.run(b"")
        assert closed.run(item(19, SERVED[19][0], b""))  # no request of a login: it becomes one
        assert closed.answers == 2
    finally:
        closed.close()


def test_an_answer_that_fails_after_its_client_left_is_found(
    monkeypatch: pytest.MonkeyPatch, handlers: Handlers
) -> None:
    waiting: list[PendingResponse] = []

    def handle(self: Any, client: Any, header: Any, request: Any) -> Any:
        waiting.append(PendingResponse())
        return waiting[-1]

    monkeypatch.setattr(ApiVersions, "handle", handle)
    assert not handlers.run(ASK_VERSIONS)
    waiting[0].fail(KeyError("planted"))
    with pytest.raises(KeyError, match="planted"):
        handlers.run(b"")


def test_a_wrong_answer_is_found(handlers: Handlers) -> None:
    assert handlers.run(ASK_VERSIONS * 3)
    reply = b"\0\0\0\x0a" + b"\0\0\0\x01" + bytes(6)
    assert Handlers._check(reply, [(18, 0), (18, 0)]) == 1
    with pytest.raises(Violated, match="reply to 1 after the one to 1"):
        Handlers._check(reply * 2, [(18, 0), (18, 0)])
    with pytest.raises(Violated, match="cannot be read"):
        Handlers._check(b"\0\0\0\x06" + b"\0\0\0\x01" + bytes(2), [(18, 0), (18, 0)])
    with pytest.raises(Violated, match="are there"):
        Handlers._check(reply[:-1], [(18, 0), (18, 0)])


def test_a_response_that_no_version_can_encode_is_found(
    monkeypatch: pytest.MonkeyPatch, handlers: Handlers
) -> None:
    def handle(self: Any, client: Any, header: Any, request: Any) -> Any:
        return ApiVersionsResponse(api_keys=None)  # type: ignore[arg-type]

    monkeypatch.setattr(ApiVersions, "handle", handle)
    with pytest.raises(ResponseEncodingError):
        handlers.run(ASK_VERSIONS)


def test_items_are_what_they_were_made_from() -> None:
    made = item(3, 12, b"body") + item(0, 9, b"", keep_crc=True)
    assert [each[:1] for each in items_of(made)] == [b"\x03", bytes([KEEP_CRC])]
    frame, answer = framed(items_of(made)[0], 5)
    assert answer == (3, 12)
    assert frame.endswith(b"\0\0\0\x05\0\x04fuzz\0body")
    assert items_of(made[:-1])[1] == items_of(made)[1][:-1]


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child process is a stand-in here: the real ones are in test_short_cuts."""
    chunks: list[int] = []

    def child(engine: Engine, seconds: float, save: Any) -> int:
        chunks.append(engine.next_chunk)
        engine.done["inputs"]["request"] += 100
        engine.next_chunk += 1
        if len(chunks) == 2:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(Engine, "_child", child)
    first = Run(tmp_path, 7, 400, ["grammar"])
    with pytest.raises(KeyboardInterrupt):
        first.go()
    second = Run(tmp_path, 99, 400, ["grammar"])
    assert second.resume()
    assert second.seed == 7
    assert second.go() == []
    assert chunks == [0, 1, 1, 2, 3]
    assert second.figures([])["inputs"] == 400
    monkeypatch.setattr(evidence, "source_digest", lambda: "another")
    assert not Run(tmp_path, 1, 400, ["grammar"]).resume()


def test_figures_of_a_run_that_went_on_replace_its_former_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, 7, 400, ["grammar"], "no-tls")
    kept = run.figures([]) | {"source": evidence.source_digest()}
    others = [kept | each for each in ({"seed": 8}, {"listener": "inside-tls"}, {"source": "another"})]
    monkeypatch.setattr(evidence, "load_runs", lambda name: others)
    assert fuzz.continued_run(run) is None
    others.insert(1, kept)
    assert fuzz.continued_run(run) == kept


def test_a_process_that_ends_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def child(engine: Engine, seconds: float, save: Any) -> int:
        Feeder(engine.directory, {"records": bool}).feed("records", b"last words")
        return -11

    monkeypatch.setattr(Engine, "_child", child)
    run = Run(tmp_path, 7, 400, ["grammar"])
    (problem,) = run.go()
    assert "records: the process ended with -11 (5 times)" in problem
    kept = json.loads((tmp_path / "grammar" / "findings" / "exit-1.json").read_text())
    assert bytes.fromhex(kept["input"]) == b"last words"


def test_growth_of_memory_is_a_finding(tmp_path: Path) -> None:
    engine = Engine("grammar", tmp_path, 1, 1)
    engine.rss = [50 << 20] * 100
    assert engine.problems() == []
    engine.rss = [(50 << 20) + number * (1 << 18) for number in range(100)]
    assert "memory grew by" in engine.problems()[0]
