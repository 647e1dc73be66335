"""Topics and partitions that take plain batches, and the responses to plain requests.

Owns: which topics are plain; the bytes of a response to one appended batch, of which all but three numbers
are prepared: they come from the encoder of all responses. Does not: validate a batch or append it
(`produce_fast_path.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from lockstep.broker.metadata.metadata_cache import Topic
from lockstep.broker.network.response_encoder import encode_reply
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.batch_validation import ZSTD_MIN_PRODUCE_VERSION
from lockstep.broker.produce.delayed_produce import TOPIC_IDS_MIN_VERSION
from lockstep.broker.settings.config import COMPRESSED_AS_SENT
from lockstep.broker.settings.properties import INT64_MAX
from lockstep.broker.settings.topic_config import LOCKS_IGNORED
from lockstep.broker.settings.topic_default_settings import MAX_DECOMPRESSED_BYTES
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from lockstep.protocol.primitives import ZERO_UUID, Buffer
from lockstep.protocol.records.compression import Codec
from lockstep.storage.partition import PartitionLog

LOG_START_MIN_VERSION: Final = 5
"""Older responses have no log start offset (KIP-107)."""
_LENGTH_BYTES: Final = 4
_BODY_FROM: Final = 8
"""Behind length and correlation id."""
_INT64_BYTES: Final = 8


class PlainTopic:
    """A topic that takes plain batches, as the requests of one version name it.

    Args:
        on_prepare: called before one more partition is kept; may call `forget_partitions`.
    """

    __slots__ = (
        "_appenders", "_name", "_on_prepare", "_partitions", "_topic", "_topic_id", "after_max_ms",
        "max_codec", "max_message_bytes", "version",
    )  # fmt: skip

    def __init__(
        self, topic: Topic, version: int, appenders: Mapping[int, Appender], on_prepare: Callable[[], None]
    ) -> None:
        self._topic, self._appenders, self._on_prepare = topic, appenders, on_prepare
        self._name, self._topic_id = topic.name, ZERO_UUID
        if version >= TOPIC_IDS_MIN_VERSION:
            self._name, self._topic_id = "", topic.topic_id
        self._partitions: dict[int, PlainPartition] = {}
        self.version = version
        self.max_message_bytes = topic.config.max_message_bytes
        self.after_max_ms = topic.config.timestamp_after_max_ms
        self.max_codec = int(Codec.ZSTD) if version >= ZSTD_MIN_PRODUCE_VERSION else int(Codec.ZSTD) - 1

    @property
    def topic_name(self) -> str:
        """The name of the topic, also where requests name its id."""
        return self._topic.name

    def partition(self, index: int) -> PlainPartition | None:
        """A partition; None where this node has no log of it."""
        found = self._partitions.get(index)
        if found is None and 0 <= index < len(self._topic.partitions):
            partition = self._topic.partitions[index]
            appender = self._appenders.get(partition.group.group_id)
            if partition.is_here and appender is not None and appender.group is partition.group:
                self._on_prepare()
                found = self._partitions[index] = PlainPartition(self, index, partition.log, appender)
        return found

    def forget_partitions(self) -> None:
        """Drops the prepared responses; they are prepared again when they are needed."""
        self._partitions.clear()

    def response(self, partitions: list[PartitionProduceResponse]) -> ProduceResponse:
        """The response to a request of this topic alone."""
        topic = TopicProduceResponse(name=self._name, topic_id=self._topic_id, partition_responses=partitions)
        return ProduceResponse(responses=[topic])

    def encode(self, response: ProduceResponse, correlation_id: int) -> tuple[list[Buffer], int]:
        """The whole reply, length first, and its size."""
        return encode_reply(RequestHeader(ApiKey.PRODUCE, self.version, correlation_id, None), response)


class PlainPartition:
    """One partition of a plain topic."""

    __slots__ = (
        "_after", "_before", "_between", "_has_log_start", "_length", "_pack", "appender", "group", "index",
        "log", "topic",
    )  # fmt: skip

    def __init__(self, topic: PlainTopic, index: int, log: PartitionLog, appender: Appender) -> None:
        self.topic, self.index, self.log = topic, index, log
        self.appender, self.group = appender, appender.group
        self._prepare()

    def _prepare(self) -> None:
        """Finds the positions of the numbers: responses with one different number differ only there."""
        encoded = self._encode_whole(0, 0)
        offset_at = _first_difference(encoded, self._encode_whole(-1, 0))
        self._length = len(encoded) - _LENGTH_BYTES
        self._before = encoded[_BODY_FROM:offset_at]
        rest = encoded[offset_at + _INT64_BYTES :]
        self._has_log_start = self.topic.version >= LOG_START_MIN_VERSION
        self._between, self._after = rest, b""
        fields = f">ii{len(self._before)}sq{len(rest)}s"
        if self._has_log_start:
            start_at = _first_difference(encoded, self._encode_whole(0, -1)) - offset_at - _INT64_BYTES
            self._between, self._after = rest[:start_at], rest[start_at + _INT64_BYTES :]
            fields = f">ii{len(self._before)}sq{len(self._between)}sq{len(self._after)}s"
        self._pack = Struct(fields).pack

    def _encode_whole(self, base_offset: int, log_start_offset: int) -> bytes:
        response = self.topic.response([self.response(base_offset, log_start_offset)])
        return b"".join(self.topic.encode(response, 0)[0])

    def response(self, base_offset: int, log_start_offset: int) -> PartitionProduceResponse:
        """The response to a batch that was appended."""
        return PartitionProduceResponse(
            index=self.index, base_offset=base_offset, log_start_offset=log_start_offset
        )

    def encode(self, correlation_id: int, base_offset: int, log_start_offset: int) -> bytes:
        """The whole reply to a request of this partition alone, length first."""
        if self._has_log_start:
            return self._pack(
                self._length, correlation_id, self._before, base_offset, self._between, log_start_offset,
                self._after,
            )  # fmt: skip
        return self._pack(self._length, correlation_id, self._before, base_offset, self._between)


def is_plain(topic: Topic) -> bool:
    """True if batches are appended to the topic as they come, and none of their records is opened."""
    config = topic.config
    return (
        not topic.is_internal
        and config.compression_type == COMPRESSED_AS_SENT
        and config.lockstep_locks == LOCKS_IGNORED
        and not config.is_compacted
        and not config.log_append_time
        and config.timestamp_before_max_ms == INT64_MAX
        and config.max_decompressed_message_bytes == MAX_DECOMPRESSED_BYTES
    )


def _first_difference(one: bytes, other: bytes) -> int:
    """The index of the first byte that differs."""
    return next(at for at, (left, right) in enumerate(zip(one, other, strict=True)) if left != right)
