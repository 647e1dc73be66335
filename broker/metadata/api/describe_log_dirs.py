"""DescribeLogDirs: the size of each partition, and of the volume (KIP-113, KIP-827).

A partition's size is that of its live batches in its group's log, from the indexes: a sealed file that holds
any of them counts with all of that partition's. The rest of the files (frames' headers, spare files, records
deleted from files that others still need) belongs to no partition. Off the loop: indexes may have to be read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.requests.request_context import ClientContext, RequestHandler, await_response
from lockstep.broker.requests.sliced_response import encode_large
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

PARTITIONS_PER_STEP: Final = 200
"""Partitions measured at once on a thread: few enough that others hardly wait."""
UNKNOWN_BYTES: Final = -1


class DescribeLogDirs(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_LOG_DIRS
    versions = (1, 5)

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeLogDirsRequest
    ) -> object | None:
        """This broker has one directory. Partitions that are not here are left out."""
        if not self._access.allows_on_cluster(client, AclOperation.DESCRIBE):
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        partitions = self._local_partitions(request)
        topics: dict[str, DescribeLogDirsTopic] = {}
        for first in range(0, len(partitions), PARTITIONS_PER_STEP):
            step = partitions[first : first + PARTITIONS_PER_STEP]
            for partition, size in zip(step, await asyncio.to_thread(_sizes, step), strict=True):
                name = partition.topic.name
                topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
                topic.partitions.append(
                    DescribeLogDirsPartition(partition_index=partition.index, partition_size=size)
                )
        directory, total, usable = await asyncio.to_thread(_volume, self._cluster.settings.log_dirs)
        response = DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir=directory, topics=list(topics.values()), total_bytes=total, usable_bytes=usable
                )
            ]
        )
        return await await_response(encode_large(response, header.api_version, len(partitions)))

    def _local_partitions(self, request: DescribeLogDirsRequest) -> list[Partition]:
        """The requested partitions with a replica on this node, each once."""
        cluster = self._cluster
        if request.topics is None:
            return [each for topic in cluster.topics() for each in topic.partitions if each.is_here]
        topic_partitions = dict.fromkeys(
            (topic.topic, index) for topic in request.topics for index in topic.partitions
        )
        found = (cluster.partition(name, index) for name, index in sorted(topic_partitions))
        return [partition for partition in found if partition is not None and partition.is_here]


def _sizes(partitions: Sequence[Partition]) -> list[int]:
    return [
        each.group.log.partition_bytes(each.log.local_id, each.log.log_start_offset) for each in partitions
    ]


def _volume(directory: str) -> tuple[str, int, int]:
    """The absolute path, the volume's bytes, and the bytes that are still usable."""
    path = os.path.abspath(directory)
    try:
        volume = os.statvfs(path)
    except OSError:
        return path, UNKNOWN_BYTES, UNKNOWN_BYTES
    return path, volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
