"""What peers of a connection's tests answer: once for the blocking connection and for asyncio's."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.protocol.api import ApiKey
from lockstep.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

Answer = Callable[[int, int, int], bytes | None]
"""(API key, version, correlation id) to the response's frame, None to say nothing, b"" to close."""


def api_versions(
    key_18_max: int = 4, metadata: tuple[int, int] = (0, 13), error: int = 0
) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=key_18_max),
            ApiVersion(api_key=ApiKey.METADATA, min_version=metadata[0], max_version=metadata[1]),
        ],
    )
