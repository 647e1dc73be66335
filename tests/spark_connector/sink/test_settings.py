"""What the options of the sink say, and what is refused: each refusal names its option."""

from __future__ import annotations

import pytest

from lockstep.protocol.records.compression import Codec
from spark_connector.options import OptionError
from spark_connector.sink.settings import DEFAULT_BATCH_BYTES, SinkSettings
from tests.support.cases import each_case

_LEAST = {"kafka.bootstrap.servers": "h:1"}


def test_defaults() -> None:
    found = SinkSettings.of(_LEAST)
    assert (found.bootstrap, found.topic, found.commit_topic) == ("h:1", None, None)
    assert (found.batch_bytes, found.codec, found.timeout_s) == (DEFAULT_BATCH_BYTES, Codec.NONE, 60.0)


def test_options_come_in_any_case() -> None:
    said = {"Kafka.Bootstrap.Servers": "h:1", "TOPIC": "t", "checkpointLocation": "/c", "commitTopic": "c"}
    found = SinkSettings.of(said)
    assert (found.bootstrap, found.topic, found.commit_topic) == ("h:1", "t", "c")
    assert found.accepted_epoch is None
    assert SinkSettings.of(said | {"ACCEPTEPOCH": "0"}).accepted_epoch == 0
    assert SinkSettings.of(_LEAST | {"committopic": "c", "includeheaders": "true"}).commit_topic == "c"


@each_case(
    ("given", "words"),
    [
        ({"kafka.bootstrap.servers": ""}, r"option kafka\.bootstrap\.servers: is missing: set HOST:PORT"),
        ({"kafka.acks": "1"}, r"option kafka\.acks: has no meaning here: the sink waits for all .*; leave"),
        ({"Kafka.Transactional.ID": "x"}, r"option Kafka\.Transactional\.ID: has no meaning here"),
        ({"Topicc": "x"}, r"option Topicc: is not known\. Did you mean topic\? There are kafka\.boot"),
        ({"committTopic": "x"}, r"Did you mean commitTopic\? There are .*, commitTopic, "),
        ({"subscribe": "x"}, r"option subscribe: is not known\. There are"),
        ({"kafka.batch.size": "0"}, r"option kafka\.batch\.size: '0' is not a whole number from 1 to \d+"),
        ({"kafka.batch.size": "99999999999"}, r"option kafka\.batch\.size: '99999999999' is not"),
        ({"kafka.request.timeout.ms": "1s"}, r"option kafka\.request\.timeout\.ms: '1s' is not"),
        ({"acceptEpoch": "-1"}, r"option acceptEpoch: '-1' is not the number of an epoch"),
        ({"kafka.compression.type": "rar"}, r"option kafka\.compression\.type: 'rar' is none of none, gzip"),
    ],
)
def test_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=f"^{words}" if words.startswith("option") else words):
        SinkSettings.of(_LEAST | given)
