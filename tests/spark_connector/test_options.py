"""What the options say, and what is refused: each refusal names its option."""

from __future__ import annotations

import pickle

import pytest

from spark_connector.options import (
    EARLIEST,
    LATEST,
    OffsetRangeLimit,
    OptionError,
    SourceOptions,
    source_options,
)
from tests.support.cases import each_case

_LEAST = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}


def options(**given: str) -> SourceOptions:
    """The least there must be, and these; `__` is a dot."""
    return source_options(_LEAST | {name.replace("__", "."): text for name, text in given.items()})


def test_defaults() -> None:
    found = options()
    assert found.connection.bootstrap == "b:9092" and found.selection.topics == ("t",)
    assert not found.committed and not found.include_headers and found.fail_on_data_loss
    assert (found.max_offsets_per_trigger, found.group_id, found.min_partitions) == (None, None, None)
    assert found.starting == OffsetRangeLimit(option="startingOffsets")
    assert pickle.loads(pickle.dumps(found)) == found


def test_all_of_them() -> None:
    found = options(
        subscribe=" a , b,a",
        startingOffsets='{"a":{"0":5,"1":-2},"b":{"0":-1}}',
        endingTimestamp="1700000000000",
        INCLUDEHEADERS="True",
        failOnDataLoss="false",
        maxOffsetsPerTrigger="100",
        maxBytesPerTrigger="2000",
        minPartitions="4",
        maxRecordsPerPartition="10",
        kafka__isolation__level="read_committed",
        kafka__group__id="g",
        kafka__client__id="c",
        kafka__request__timeout__ms="1500",
        kafka__max__partition__fetch__bytes="2097152",
        kafkaConsumer__pollTimeoutMs="700",
        kafka__max__poll__records="10000",
        groupIdPrefix="p",
    )
    assert found.selection.topics == ("a", "b")
    assert found.starting.offsets == {("a", 0): 5, ("a", 1): EARLIEST, ("b", 0): LATEST}
    assert found.ending == OffsetRangeLimit(
        timestamp_ms=1_700_000_000_000, option="endingTimestamp", or_latest=True
    )
    assert found.include_headers and not found.fail_on_data_loss and found.committed
    assert (found.max_offsets_per_trigger, found.max_bytes_per_trigger) == (100, 2000)
    assert (found.min_partitions, found.max_records_per_partition) == (4, 10)
    assert (found.group_id, found.group_id_prefix) == ("g", "p")
    assert (found.connection.client_id, found.connection.timeout_s) == ("c", 1.5)
    assert (found.fetch_bytes, found.poll_timeout_s) == (2 << 20, 0.7)


def test_times() -> None:
    each = options(
        startingOffsetsByTimestamp='{"t":{"0":1000}}', startingOffsetsByTimestampStrategy="latest"
    ).starting
    assert each.timestamps_ms == {("t", 0): 1000} and each.or_latest
    both = options(startingTimestamp="7", startingOffsets="earliest").starting
    assert both.timestamp_ms == 7 and not both.or_latest, "a time goes before offsets, as in Spark"


def test_ends() -> None:
    found = options(startingOffsets="Latest", endingOffsets="latest")
    assert (found.starting.everywhere, found.ending.everywhere) == (LATEST, LATEST)
    assert options(startingOffsets="earliest").starting.everywhere == EARLIEST


def test_chosen() -> None:
    assigned = source_options({"kafka.bootstrap.servers": "b", "assign": '{"t":[1,0],"s":[2]}'}).selection
    assert assigned.partitions == (("s", 2), ("t", 0), ("t", 1))
    assert (
        source_options({"kafka.bootstrap.servers": "b", "subscribePattern": "t.*"}).selection.pattern == "t.*"
    )


@each_case(
    ("given", "words"),
    [
        (
            {"startingOffset": "earliest"},
            r"startingOffset: is not known\. Did you mean startingOffsets\? There are assign, subscribe",
        ),
        ({"kafka__linger__ms": "5"}, r"kafka\.linger\.ms: is not known\. There are assign"),
        ({"kafka__enable__auto__commit": "true"}, r"kafka\.enable\.auto\.commit: is not supported"),
        (
            {"kafka__sasl__mechansim": "PLAIN"},
            r"kafka\.sasl\.mechansim: is not known\. Did you mean kafka\.sasl\.mechanism\?",
        ),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger: is not offered"),
        ({"kafka__bootstrap__servers": ""}, r"kafka\.bootstrap\.servers: is missing"),
        ({"subscribe": " , "}, "subscribe: ',' names no topic"),
        ({"subscribe": ""}, "one of assign, subscribe and subscribePattern"),
        ({"assign": '{"t":[0]}'}, "one of assign, subscribe and subscribePattern"),
        ({"subscribe": "", "assign": '{"t":0}'}, "assign: the partitions of t are 0"),
        ({"subscribe": "", "assign": '{"t":[-1]}'}, "assign: the partitions of t"),
        ({"subscribe": "", "assign": "{}"}, "assign: '{}' names no partition"),
        ({"subscribe": "", "assign": "t"}, "assign: 't' is not JSON such as"),
        ({"subscribe": "", "subscribePattern": "("}, "subscribePattern: '\\(' is not a regular expression"),
        ({"startingOffsets": "newest"}, "startingOffsets: 'newest' is not JSON"),
        ({"startingOffsets": "7"}, "startingOffsets: '7' is not JSON"),
        ({"startingOffsets": '{"t":[5]}'}, "startingOffsets: t has \\[5\\]"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets: t, partition 0: -3 cannot be"),
        ({"startingOffsets": '{"t":{"x":3}}'}, "startingOffsets: t, partition x"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "startingOffsets: t, partition 0: True"),
        ({"endingTimestamp": "yesterday"}, "endingTimestamp: 'yesterday' is not a time"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: '0' is not a whole number above 0"),
        ({"maxBytesPerTrigger": "1m"}, "maxBytesPerTrigger: '1m'"),
        ({"includeHeaders": "yes"}, "includeHeaders: 'yes' is neither true nor false"),
        ({"kafka__isolation__level": "serializable"}, r"kafka\.isolation\.level: 'serializable' is none of"),
        ({"kafka__max__partition__fetch__bytes": "999999999"}, "999999999 is more than"),
    ],
)
def test_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        options(**given)


def test_a_refusal_survives_pickling() -> None:
    with pytest.raises(OptionError) as caught:
        options(subscribe="")
    found = pickle.loads(pickle.dumps(caught.value))
    assert type(found) is OptionError and found.name == "subscribe"
    assert str(found) == str(caught.value) == "option subscribe: " + found.problem


def test_what_is_no_option_is_called_what_it_is() -> None:
    refused = OptionError("value", "is missing", kind="column")
    assert str(refused) == str(pickle.loads(pickle.dumps(refused))) == "column value: is missing"
