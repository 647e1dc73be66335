"""Changes of ACLs: what the controller records in group 0, one request after the other.

Owns: the limit of ACLs, and that an ACL which is there is not recorded again. Invariant: an ACL is in force
on this node when its change returns, on the others when they have replayed it. Does not: check what an ACL
says (`broker/authorization/acl.py`), or who may change it (the handlers).
Source: Kafka's AclControlManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from lockstep.broker.authorization.acl import AclBinding
from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_image import (
    Command,
    MetadataImage,
    acl_command,
    remove_acl_command,
)
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.errors import ErrorCode

log = logging.getLogger("lockstep.acls")

MAX_ACLS: Final = 50_000
"""LIMIT. ACLs of a cluster: some 300 bytes each in every checkpoint of group 0, and three times that in the
memory of each node."""
COMMANDS_AT_ONCE: Final = 500
MAX_LOGGED: Final = 5


class AclChanges:
    """See the module."""

    def __init__(self, image: MetadataImage, topics: Topics) -> None:
        self._image = image
        self._topics = topics
        self._changing = asyncio.Lock()

    async def create(self, client: ClientContext, acls: Sequence[AclBinding]) -> None:
        """Put ACLs in force. Raises RequestError; some of them may be in force then."""
        async with self._changing:
            known = self._image.acls
            new = [acl for acl in dict.fromkeys(acls) if acl not in known]
            if len(known) + len(new) > MAX_ACLS:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION, f"There are {len(known)} ACLs, at most {MAX_ACLS} can be."
                )
            await self._record([acl_command(acl) for acl in new])
        _log(client, "created", new)

    async def delete(self, client: ClientContext, acls: Sequence[AclBinding]) -> None:
        """Put ACLs out of force. Raises RequestError; some of them may be out of force then."""
        async with self._changing:
            known = self._image.acls
            removed = [acl for acl in dict.fromkeys(acls) if acl in known]
            await self._record([remove_acl_command(acl) for acl in removed])
        _log(client, "deleted", removed)

    async def _record(self, commands: Sequence[Command]) -> None:
        if not commands:
            self._topics.check_leads()
        for first in range(0, len(commands), COMMANDS_AT_ONCE):
            await self._topics.record_configs(commands[first : first + COMMANDS_AT_ONCE])


def _log(client: ClientContext, done: str, acls: Sequence[AclBinding]) -> None:
    for acl in acls[:MAX_LOGGED]:
        log.info("%s at %s %s the ACL %s", client.principal, client.host, done, printable(str(acl), 500))
    if len(acls) > MAX_LOGGED:
        log.info("%s at %s %s %d ACLs more", client.principal, client.host, done, len(acls) - MAX_LOGGED)
