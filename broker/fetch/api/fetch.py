"""Fetch: batches of partitions from given offsets, at once or with min_bytes (KIP-74, KIP-227).

Work is per partition and per batch; batches go to the socket by reference. A follower's copy is served like
the leader's, up to its own high watermark (KIP-392, `broker/fetch/follower_fetch.py`). What a request does is
in `broker/fetch/fetch_requests.py`.
"""

from __future__ import annotations

from lockstep.broker.fetch.fetch_requests import FetchRequests
from lockstep.broker.fetch.fetch_session import FetchSessionError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse


class Fetch(RequestHandler):
    """See the module."""

    api_key = ApiKey.FETCH
    versions = (4, 18)

    def __init__(self, requests: FetchRequests) -> None:
        self._requests = requests

    def handle(self, client: ClientContext, header: RequestHeader, request: FetchRequest) -> HandlerResponse:
        """Respond at once if there is enough, an error or no time to wait; else once there is one of them."""
        requests, version = self._requests, header.api_version
        try:
            fetch_context = requests.sessions.begin(request, version)
        except FetchSessionError as error:
            return FetchResponse(error_code=error.error)
        return requests.open_request(client, version, request, fetch_context, header.client_id).start()
