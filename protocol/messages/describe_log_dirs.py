"""DescribeLogDirs (35): directories of a broker and what their partitions take (KIP-113).

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible; 3 an error for the whole response; 4 the
volume's size and room (KIP-827); 5 directories that take no new partitions (KIP-1066).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int16, int32, int64, message, string, struct


@struct()
class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(api_key=35, versions="1-5", flexible="2+", kind="request")
class DescribeLogDirsRequest(Struct):
    """Partitions to look for; null is all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@struct()
class DescribeLogDirsPartition(Struct):
    """The disk space of one partition."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct()
class DescribeLogDirsTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct()
class DescribeLogDirsResult(Struct):
    """One directory."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(default=-1, versions="4+", ignorable=True)
    usable_bytes: int = int64(default=-1, versions="4+", ignorable=True)
    is_cordoned: bool = boolean(versions="5+", ignorable=True)


@message(api_key=35, versions="1-5", flexible="2+", kind="response")
class DescribeLogDirsResponse(Struct):
    """Every directory of the broker."""

    throttle_time_ms: int = int32()
    error_code: int = int16(versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
