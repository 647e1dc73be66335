"""LockstepStaged, an API of our own: staged producer ids, and the ends of stages (docs/staged.md).

ApiVersions lists only its feature `lockstep.staged`. Ids come from any node; stages end on the leader of
their log group. A response waits until its content is committed; so does a speculative error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.produce.append_result import SPECULATIVE_ERRORS
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.broker.staging.stage_commit import StageCommit
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.staged_messages import (
    MAX_QUERY_CHARACTERS,
    STAGED_API_KEY,
    LockstepStagedRequest,
    LockstepStagedResponse,
    TopicLogGroups,
    staged_producer_id,
)
from lockstep.storage.types import NotLeader, StorageError

MAX_TOPICS: Final = 1_000
MAX_TEXT: Final = 5_000
"""Characters of an error text."""


class LockstepStaged(RequestHandler):
    """See the module. Args: take_producer_id: an id that no producer ever had; raises StorageError."""

    api_key = STAGED_API_KEY
    versions = (0, 0)
    is_advertised = False

    def __init__(
        self,
        stage_commit: StageCommit,
        take_producer_id: Callable[[], Awaitable[int]],
        cluster: MetadataCache,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._stage_commit = stage_commit
        self._take_producer_id = take_producer_id
        self._cluster = cluster

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: LockstepStagedRequest
    ) -> LockstepStagedResponse:
        """An id, or the end of stages."""
        try:
            return await self._execute(client, request)
        except RequestError as rejection:
            text = rejection.message[:MAX_TEXT]
            return LockstepStagedResponse(error_code=rejection.error, error_message=text)
        except NotLeader as error:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return LockstepStagedResponse(error_code=code, error_message=str(error))
        except StorageError as error:
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return LockstepStagedResponse(error_code=code, error_message=str(error))

    def _check_access(self, client: ClientContext, request: LockstepStagedRequest) -> None:
        """A query is a transactional id, and its commit a write to the topic of its record. Raises
        RequestError."""
        write = AclOperation.WRITE
        if not self._access.allows(client, write, AclResourceType.TRANSACTIONAL_ID, request.query):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise RequestError(error, f"WRITE on TRANSACTIONAL_ID:{request.query} is not authorized.")
        for record in request.record:
            if not self._access.allows(client, write, AclResourceType.TOPIC, record.topic):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                raise RequestError(error, f"WRITE on TOPIC:{record.topic} is not authorized.")

    async def _execute(self, client: ClientContext, request: LockstepStagedRequest) -> LockstepStagedResponse:
        query = request.query
        if not 0 < len(query) <= MAX_QUERY_CHARACTERS:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"a query's id has 1 to {MAX_QUERY_CHARACTERS} characters"
            )
        self._check_access(client, request)
        if len(request.record) != request.is_commit:
            raise RequestError(ErrorCode.INVALID_REQUEST, "a commit has one record, other requests none")
        if request.is_commit:
            (record,) = request.record
            try:
                group, appended = self._stage_commit.commit(query, request.stages, record)
            except RequestError as rejection:
                partition = self._cluster.partition(record.topic, record.partition_index)
                if rejection.error in SPECULATIVE_ERRORS and partition is not None:
                    await partition.group.committed()
                raise
            await group.committed()
            return LockstepStagedResponse(base_offset=appended.base_offset)
        if request.stages or request.abandoned:
            groups = self._stage_commit.abort(query, request.stages)
            groups += self._stage_commit.abandon(query, request.abandoned)
            await asyncio.gather(*[group.committed() for group in groups])
            return LockstepStagedResponse()
        producer_id = staged_producer_id(query, await self._take_producer_id())
        topics = [self._log_groups_of(client, name) for name in request.topics[:MAX_TOPICS]]
        return LockstepStagedResponse(producer_id=producer_id, topics=topics)

    def _log_groups_of(self, client: ClientContext, name: str) -> TopicLogGroups:
        topic = self._cluster.topic(name)
        if not self._access.allows(client, AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            topic = None
        group_ids = {each.group.group_id for each in topic.partitions} if topic is not None else set()
        return TopicLogGroups(name=name, group_ids=sorted(group_ids))
