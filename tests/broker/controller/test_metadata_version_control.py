"""When a metadata version is recorded, and what is rejected before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from lockstep.broker.controller.metadata_version_control import MetadataVersionControl
from lockstep.broker.metadata.metadata_image import (
    Command,
    NodeEntry,
    cluster_command,
    node_command,
    remove_node_command,
)
from lockstep.broker.metadata.metadata_version import metadata_version_command
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import NotLeader, StorageFull
from tests.broker.peers.test_metadata_versions import NEW, OLD, QUOTA, World


class Controller(World):
    """Node 1, which leads group 0."""

    def __init__(self, *node_ids: int) -> None:
        super().__init__(*node_ids)
        self.control = MetadataVersionControl(self.versions, self._append)
        self.appended: list[Command] = []
        self.failure: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def _append(self, commands: Sequence[Command]) -> None:
        await self.goes_on.wait()
        if self.failure is not None:
            raise self.failure
        self.appended += commands
        self.replay(*commands)


async def test_a_command_waits_for_a_node_that_is_too_old(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockstep.metadata")
    controller = Controller(1, 2)
    controller.connect(2, OLD)
    await controller.control.require([cluster_command("c")])
    for _ in range(2):
        with pytest.raises(
            RequestError, match=r"^Metadata version 8 is needed.*node 2 supports up to 4"
        ) as rejected:
            await controller.control.require([QUOTA])
        assert rejected.value.error == ErrorCode.UNSUPPORTED_VERSION
    assert not controller.appended
    assert len([each for each in caplog.messages if "a request is rejected: Metadata version 8" in each]) == 1
    controller.connect(2, NEW)
    await controller.control.require([QUOTA])
    assert controller.appended == [metadata_version_command(NEW)], "it is recorded before the first command"
    assert caplog.messages[-1] == "metadata version 9, before 4: every node supports it"


async def test_a_look_records_what_all_support_once(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(1, 2)
    await controller.control.poll()
    assert not controller.appended
    controller.connect(2, NEW)
    controller.failure = StorageFull("no room")
    await controller.control.poll()
    assert controller.versions.version_being_appended == 0 and "delayed: no room" in caplog.text
    controller.failure = NotLeader("not any more")
    await controller.control.poll()
    assert controller.versions.version_being_appended == NEW, (
        "it may be committed yet: an older node stays rejected"
    )
    assert controller.versions.report(3, OLD)
    controller.failure = None
    await asyncio.gather(*(controller.control.poll() for _ in range(3)))
    assert controller.appended == [metadata_version_command(NEW)]


async def test_a_new_cluster_has_the_newest_version_at_once() -> None:
    founder = Controller()
    assert founder.control.founding_commands() == [metadata_version_command(NEW)]
    assert founder.versions.report(2, OLD), "one that comes meanwhile must not get it"
    older = Controller()
    older.connect(2, OLD)
    assert older.control.founding_commands() == []


async def test_no_node_is_registered_while_a_version_is_recorded_that_it_does_not_support() -> None:
    controller = Controller(1)
    controller.connect(2, OLD)
    controller.goes_on.clear()
    recording = asyncio.ensure_future(controller.control.record_next())
    await asyncio.sleep(0)
    assert controller.versions.version_being_appended == NEW
    registering = asyncio.ensure_future(controller.control.register(NodeEntry(2)))
    await asyncio.sleep(0)
    controller.goes_on.set()
    await recording
    with pytest.raises(
        PeerError, match="node 2 does not support the cluster's metadata version 9, only up to 4"
    ):
        await registering
    controller.connect(3, NEW)
    await controller.control.register(NodeEntry(3))
    assert controller.appended == [metadata_version_command(NEW), node_command(NodeEntry(3))]


async def test_no_version_is_recorded_while_a_node_is_registered_that_does_not_support_it() -> None:
    controller = Controller(1)
    controller.connect(2, OLD)
    controller.goes_on.clear()
    registering = asyncio.ensure_future(controller.control.register(NodeEntry(2)))
    await asyncio.sleep(0)
    recording = asyncio.ensure_future(controller.control.record_next())
    await asyncio.sleep(0)
    controller.goes_on.set()
    await asyncio.gather(registering, recording)
    assert controller.appended == [node_command(NodeEntry(2))]
    controller.replay(remove_node_command(2))
    await controller.control.record_next()
    assert controller.appended[1:] == [metadata_version_command(NEW)]
