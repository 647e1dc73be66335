"""Changes of ACLs: what the controller records in group 0, one request after the other.

Owns: the limit of ACLs, and that an ACL which is there is not recorded again. Invariant: an ACL is in force
on this node when its change returns, on the others when they have replayed it; each ACL that could not be
changed has its error, and no other has one. Does not: check the fields of an ACL
(`broker/authorization/acl.py`), or who may change it (the handlers).
Source: Kafka's AclControlManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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


Failures = Mapping[AclBinding, RequestError]
"""The ACLs that could not be changed, and why."""


class AclChanges:
    """See the module."""

    def __init__(self, image: MetadataImage, topics: Topics) -> None:
        self._image = image
        self._topics = topics
        self._changing = asyncio.Lock()

    async def create(self, client: ClientContext, acls: Sequence[AclBinding]) -> Failures:
        """Adds ACLs; returns those that are not in force. Raises RequestError where none was added."""
        async with self._changing:
            known = self._image.acls
            new = [acl for acl in dict.fromkeys(acls) if acl not in known]
            if len(known) + len(new) > MAX_ACLS:
                text = f"There are {len(known)} ACLs, at most {MAX_ACLS} can be."
                return dict.fromkeys(new, RequestError(ErrorCode.POLICY_VIOLATION, text))
            failures = await self._record(new, acl_command)
        _log(client, "created", [acl for acl in new if acl not in failures])
        return failures

    async def delete(self, client: ClientContext, acls: Sequence[AclBinding]) -> Failures:
        """Removes ACLs; returns those that may still be in force. Raises RequestError where none
        was changed."""
        async with self._changing:
            known = self._image.acls
            removed = [acl for acl in dict.fromkeys(acls) if acl in known]
            failures = await self._record(removed, remove_acl_command)
        _log(client, "deleted", [acl for acl in removed if acl not in failures])
        return failures

    async def _record(
        self, acls: Sequence[AclBinding], command_of: Callable[[AclBinding], Command]
    ) -> Failures:
        """Record a command for each ACL, part by part up to one that fails. Raises RequestError where that is
        the first: the error is of the whole request then, as in Kafka."""
        if not acls:
            self._topics.check_leads()
        for first in range(0, len(acls), COMMANDS_AT_ONCE):
            part = acls[first : first + COMMANDS_AT_ONCE]
            try:
                await self._topics.record_configs([command_of(acl) for acl in part])
            except RequestError as error:
                if not first:
                    raise
                return dict.fromkeys(acls[first:], error)
        return {}


def _log(client: ClientContext, done: str, acls: Sequence[AclBinding]) -> None:
    for acl in acls[:MAX_LOGGED]:
        log.info("%s at %s %s the ACL %s", client.principal, client.host, done, printable(str(acl), 500))
    if len(acls) > MAX_LOGGED:
        log.info("%s at %s %s %d ACLs more", client.principal, client.host, done, len(acls) - MAX_LOGGED)
