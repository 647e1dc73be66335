"""The shared response of the four APIs about delegation tokens, without authentication (KIP-48).

Kafka does not allow token requests over a connection that is not authenticated; its listeners of the
protocol PLAINTEXT respond with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, before they check whether tokens are
enabled. Source: Kafka's KafkaApis.allowTokenRequests.
"""

from __future__ import annotations

from typing import Final

from lockstep.protocol.errors import ErrorCode

NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_TIME: Final = -1
