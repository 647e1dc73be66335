"""The handlers of broker/metadata/api on metadata of their own, called without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lockstep.broker.metadata import api
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.errors import ErrorCode
from tests.broker.fakes import Caller, FakeMetadata


class MetadataCaller(Caller):
    """Node 1, which leads groups 0 and 1, and the handlers of its metadata."""

    def __init__(self, node_ids: tuple[int, ...] = (1,), **settings: object) -> None:
        self.metadata = FakeMetadata(node_ids, **settings)
        self.metadata.lead_here(METADATA_GROUP)
        self.metadata.lead_here(1)
        self.created: list[str] = []
        """The topics that Metadata has asked the controller for."""
        self.creation_error = ErrorCode.NONE
        metadata = self.metadata
        super().__init__(
            *api.build_handlers(
                metadata.cluster, metadata.nodes, metadata.endpoints, self._ensure, TimeSlicer(_call_soon)
            )
        )

    def create(self, name: str, partitions: int = 1) -> bytes:
        """Record a topic in group 1; returns its id."""
        return self.metadata.add_topic(name, (1,) * partitions).topic_id

    async def _ensure(self, name: str) -> None:
        self.created.append(name)
        if self.creation_error is not ErrorCode.NONE:
            raise RequestError(self.creation_error, "")
        self.create(name)


def _call_soon(work: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(work)


@pytest.fixture
def caller() -> MetadataCaller:
    return MetadataCaller()
