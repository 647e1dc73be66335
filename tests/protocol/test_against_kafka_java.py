"""Apache Kafka's own message classes read what we write, and write the same bytes."""

from __future__ import annotations

import random

import pytest

from lockstep.protocol.api import ApiKey, request_header_version, response_header_version
from lockstep.protocol.compiler import decode, encode_bytes
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.primitives import MalformedMessage
from tests.protocol.conftest import KafkaJudge
from tests.protocol.instances import APIS, api_name, case_id, cases, each_message
from tests.support.cases import check_each

pytestmark = [pytest.mark.java, pytest.mark.tier(name="rest")]


@pytest.mark.parametrize("api", APIS, ids=api_name)
def test_kafka_reads_and_rewrites_the_same_bytes(kafka_judge: KafkaJudge, api: ApiKey) -> None:
    def check_version(cls: type[Struct], version: int) -> None:
        api_key, kind = cls.SCHEMA.api_key, cls.SCHEMA.kind
        assert api_key is not None

        for message in each_message(cls, version):
            data = encode_bytes(message, version)
            assert kafka_judge.rewritten(api_key, version, kind, data) == f"bytes {data.hex()}"
            assert decode(cls, version, data) == message

    check_each(cases(api), check_version, case_id)


@pytest.mark.parametrize("api", APIS, ids=api_name)
def test_kafka_accepts_what_we_accept(kafka_judge: KafkaJudge, api: ApiKey) -> None:
    """Damaged bytes: whatever we still take for a message, Kafka takes for the same message."""

    def check_version(cls: type[Struct], version: int) -> None:
        api_key, kind = cls.SCHEMA.api_key, cls.SCHEMA.kind
        assert api_key is not None

        for message in each_message(cls, version):
            data = bytearray(encode_bytes(message, version))
            drawn = random.Random(bytes(data))
            for _ in range(drawn.randint(1, 3)):
                if data:
                    data[drawn.randrange(len(data))] = drawn.choice(
                        [0, 1, 2, 0x7F, 0x80, 0xFF, drawn.randrange(256)]
                    )
            try:
                ours = decode(cls, version, data)
            except MalformedMessage:
                continue
            theirs = kafka_judge.rewritten(api_key, version, kind, bytes(data))
            if theirs.startswith("error write"):
                continue  # Kafka keeps unknown tags in any order and then cannot write them
            assert theirs == f"bytes {encode_bytes(ours, version).hex()}"

    check_each(cases(api), check_version, case_id)


def test_api_keys_and_header_versions_are_kafkas(kafka_judge: KafkaJudge) -> None:
    rows = [row.split(":") for row in kafka_judge.ask("apis").split()]
    assert {name: int(key) for key, name, _, _ in rows} == {key.name: int(key) for key in ApiKey}
    for text, _, oldest, newest in rows:
        key = int(text)
        for version in range(int(oldest), int(newest) + 1):
            ours = f"{request_header_version(key, version)} {response_header_version(key, version)}"
            assert ours == kafka_judge.ask(f"headers {key} {version}"), (key, version)


def test_error_codes_are_kafkas(kafka_judge: KafkaJudge) -> None:
    theirs = sorted(kafka_judge.ask("errors").split())
    assert theirs == sorted(f"{e.value}:{e.name}:{str(e.retriable).lower()}" for e in ErrorCode)
