"""The audit log: a file with one JSON object a line for each administrative operation on a resource.

Owns: the file, and the form of a line. Invariants: a line is written after the operation and before the
client has its response; the node that executed the request writes it, once, with the client's own principal
and address. A file that was moved or removed is made again at the next line, so any tool may rotate it. A
line that cannot be written is a warning and no failure of the operation, which has happened. Does not: flush
to the disk, rotate, or decide which requests have lines (`audited_operations.py`).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

from lockstep.broker.audit.audited_operations import AUDITED, AuditedOperation
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, await_response
from lockstep.broker.requests.router import Router
from lockstep.broker.settings.properties import ConfigError
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
    }
)
"""The errors of a client without the right; every other error is of an operation that was allowed."""

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
        except OSError as error:
            reason = f"the broker cannot append to this file: {error.strerror}"
            raise ConfigError(SETTING, str(self._path), reason) from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def watch(self, router: Router) -> None:
        """Have the audited requests written from now on."""
        for api_key in AUDITED:
            route = router.route_of(api_key)
            route.handle = self._wrap(route.handle)

    def _wrap(self, handle: Handle) -> Handle:
        def handle_and_write(client: ClientContext, header: RequestHeader, request: Any) -> HandlerResponse:
            response = handle(client, header, request)
            if client.is_node:
                return response
            if isinstance(request, LockstepClusterRequest):
                request = LockstepClusterRequest(body=bytes(request.body))  # the buffer is not ours later
            return self._write_response(client, header, request, response)

        return handle_and_write

    async def _write_response(
        self, client: ClientContext, header: RequestHeader, request: Any, pending: HandlerResponse
    ) -> object | None:
        response = await await_response(pending)
        if self._file is not None:
            for operation in AUDITED[header.api_key](request, response):
                self._file.append(self._line(client, header, operation))
        return response

    def _line(self, client: ClientContext, header: RequestHeader, operation: AuditedOperation) -> str:
        error = ErrorCode(operation.error)
        return json.dumps(
            {
                "time": utc_time(self._clock_ms()),
                "node": self._node_id,
                "principal": str(client.principal),
                "host": client.host,
                "listener": client.listener,
                "client_id": header.client_id,
                "api": messages_for(header.api_key)[0].__name__.removesuffix("Request"),
                "resource_type": operation.resource_type,
                "resource": operation.resource,
                "result": "DENIED" if error in DENIALS else "ALLOWED",
                "error": error.name,
                "details": dict(operation.details),
            },
            ensure_ascii=False,
        )


class _AuditFile(WatchedFileHandler):
    """Appends lines, and follows its path. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path, log: RateLimitedLog) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self._log = log

    def append(self, line: str) -> None:
        """Append a line, to a new file if this one was moved."""
        record = logging.LogRecord(SETTING, logging.INFO, "", 0, line, None, None)
        try:
            self.emit(record)
        except OSError:  # of opening the new file; what writing raises comes by `handleError`
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Log that a line is missing, or late."""
        path, error = self.baseFilename, sys.exc_info()[1]
        self._log.warning(f"the audit log {path} cannot be written, lines are missing: {error}", SETTING)
