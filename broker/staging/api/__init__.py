"""Handler: `lockstep_staged`, for writers of staged appends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.staging.api.lockstep_staged import LockstepStaged
from lockstep.broker.staging.stage_commit import StageCommit


def build_handlers(
    stage_commit: StageCommit,
    take_producer_id: Callable[[], Awaitable[int]],
    cluster: MetadataCache,
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package."""
    return [LockstepStaged(stage_commit, take_producer_id, cluster, authorizer)]
