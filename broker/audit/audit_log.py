"""The audit log: a file with one JSON object a line for each administrative operation on a resource.

Owns: the file, and the form of a line. Invariants: a line is written after the operation and before the
client has its response, once, with the client's own principal and address: by the node that executed the
request, or by the client's node where several nodes execute parts of it. A file that was moved or removed is
made again at the next line, so any tool may rotate it. A line that cannot be written is a warning and no
failure of the operation, which has happened. What a request of a client without rights can write is limited.
Does not: flush to the disk, rotate, or decide which requests have lines (`audited_operations.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

from lockstep.broker.audit.audited_operations import (
    AUDITED,
    CLUSTER,
    AuditedOperation,
)
from lockstep.broker.process.regular_file import NotRegularFile, open_regular
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, await_response
from lockstep.broker.requests.router import Route, Router
from lockstep.broker.settings.properties import ConfigError, UnusableFile
from lockstep.protocol.acl_codes import CLUSTER_NAME
from lockstep.protocol.api import RequestHeader, messages_for
from lockstep.protocol.cluster_messages import LockstepClusterRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.utc_time import utc_time
from lockstep.storage.rate_limited_log import RateLimitedLog

SETTING: Final = "lockstep.audit.log"
DENIALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    }
)
"""The errors of a client without the right; every other error is of an operation that was allowed."""

MAX_WITHOUT_EFFECT: Final = 100
"""LIMIT. Lines of one request about operations that were denied or failed; a last line counts the others, so
that a client without rights does not fill the disk. What was done has a line always."""
LINES_PER_ITERATION: Final = 100
"""The lines that are written in one loop iteration; other work runs between two iterations."""
FILE_MODE: Final = 0o640
MAX_NAME: Final = 1_000
"""LIMIT. Characters of a client id or of a resource's name."""
MAX_LINE: Final = 65_536
"""LIMIT. Characters; of a longer line the details are left out, and its length is there."""
FAILED_REQUEST: Final = AuditedOperation(CLUSTER, CLUSTER_NAME, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The audited operation of a request whose handler failed."""

Handle = Callable[[ClientContext, RequestHeader, Any], HandlerResponse]


class AuditLog:
    """See the module. Args: path: the file, in a directory that is there."""

    def __init__(self, path: Path, node_id: int, clock_ms: Callable[[], int], log: RateLimitedLog) -> None:
        self._path, self._node_id, self._clock_ms, self._log = path, node_id, clock_ms, log
        self._file: _AuditFile | None = None

    def open(self) -> None:
        """Open the file, which is made if it is not there. Raises ConfigError."""
        try:
            self._file = _AuditFile(self._path, self._log)
        except NotRegularFile as error:
            raise ConfigError(SETTING, str(self._path), str(error.strerror)) from error
        except OSError as error:
            reason = f"the broker cannot append to this file: {error.strerror}"
            raise UnusableFile(SETTING, str(self._path), reason) from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def watch(self, router: Router) -> None:
        """Have the audited requests written from now on."""
        for api_key in AUDITED:
            route = router.route_of(api_key)
            route.handle = self._wrap(route)

    def _wrap(self, route: Route) -> Handle:
        handle, is_forwarded_whole = route.handle, route.needs_controller

        def handle_and_write(client: ClientContext, header: RequestHeader, request: Any) -> HandlerResponse:
            response = handle(client, header, request)
            if client.is_node or (client.is_forwarded and not is_forwarded_whole):
                return response  # in a request of any node's the client's node has the whole of it
            if isinstance(request, LockstepClusterRequest):
                request = LockstepClusterRequest(body=bytes(request.body))  # the buffer is not ours later
            return self._write_response(client, header, request, response)

        return handle_and_write

    async def _write_response(
        self, client: ClientContext, header: RequestHeader, request: Any, pending: HandlerResponse
    ) -> object | None:
        try:
            response = await await_response(pending)
        except Exception:
            self._append([self._line(client, header, FAILED_REQUEST)])
            raise
        lines: list[str] = []
        without_effect, last_error = 0, 0
        for operation in AUDITED[header.api_key](request, response):
            if operation.error:
                without_effect, last_error = without_effect + 1, operation.error
                if without_effect > MAX_WITHOUT_EFFECT:
                    continue
            lines.append(self._line(client, header, operation))
            if len(lines) >= LINES_PER_ITERATION:
                self._append(lines)
                lines = []
                await asyncio.sleep(0)
        if without_effect > MAX_WITHOUT_EFFECT:
            left_out = {"left_out": without_effect - MAX_WITHOUT_EFFECT}
            others = AuditedOperation(CLUSTER, CLUSTER_NAME, last_error, left_out)
            lines.append(self._line(client, header, others))
        self._append(lines)
        return response

    def _append(self, lines: Sequence[str]) -> None:
        if self._file is not None and lines:
            self._file.append(lines)

    def _line(self, client: ClientContext, header: RequestHeader, operation: AuditedOperation) -> str:
        error, client_id = ErrorCode(operation.error), header.client_id
        fields: dict[str, object] = {
            "time": utc_time(self._clock_ms()),
            "node": self._node_id,
            "principal": str(client.principal),
            "host": client.host,
            "listener": client.listener,
            "client_id": None if client_id is None else client_id[:MAX_NAME],
            "api": messages_for(header.api_key)[0].__name__.removesuffix("Request"),
            "resource_type": operation.resource_type,
            "resource": operation.resource[:MAX_NAME],
            "result": "DENIED" if error in DENIALS else "ALLOWED",
            "error": error.name,
        }
        if client.principal.token_authenticated:
            fields["delegation_token"] = True
        details = dict(operation.details)
        line = json.dumps(fields | {"details": details})
        if len(line) > MAX_LINE:
            line = json.dumps(fields | {"details": {"too_long": len(line)}})
        return line


class _AuditFile(WatchedFileHandler):
    """Appends lines, and follows its path. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path, log: RateLimitedLog) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self._log = log

    def _open(self) -> TextIOWrapper:
        fd = open_regular(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        return TextIOWrapper(os.fdopen(fd, "ab"), encoding=self.encoding, errors=self.errors)

    def append(self, lines: Sequence[str]) -> None:
        """Append lines, to a new file if this one was moved."""
        record = logging.LogRecord(SETTING, logging.INFO, "", 0, "\n".join(lines), None, None)
        try:
            self.emit(record)
        except OSError:  # of opening the new file; what writing raises comes by `handleError`
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Log that lines are missing, and open the path again for the next ones: a file that is full may have
        been moved away, and keeps what is buffered for it."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
        path, error = self.baseFilename, sys.exc_info()[1]
        self._log.warning(f"the audit log {path} cannot be written, lines are missing: {error}", SETTING)
