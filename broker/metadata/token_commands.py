"""The commands of group 0 about delegation tokens, and their application to the stored tokens.

Pure. Owns: their form, which a checkpoint uses for its tokens, too. Invariant: a new expiry of an unknown
token has no effect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from lockstep.broker.metadata.command_kind import kind_of
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.security.delegation_tokens import (
    DelegationToken,
    DelegationTokenCache,
    NewExpiry,
    TokenChange,
)
from lockstep.storage.types import CorruptLog

TOKEN: Final = "token"
TOKEN_EXPIRY: Final = "token_expiry"
TOKEN_GONE: Final = "token_gone"


def token_command(change: TokenChange) -> dict[str, object]:
    """The command that stores a token, changes its expiry, or removes it."""
    command: dict[str, object] = {"do": TOKEN_GONE, "token": change.token_id}
    if isinstance(change, NewExpiry):
        return command | {"do": TOKEN_EXPIRY, "expires": change.expiry_ms}
    if isinstance(change, DelegationToken):
        return command | {
            "do": TOKEN,
            "owner": _pair(change.owner),
            "requester": _pair(change.requester),
            "renewers": [_pair(each) for each in change.renewers],
            "issued": change.issued_ms,
            "max": change.max_ms,
            "expires": change.expiry_ms,
        }
    return command


def apply_token_command(tokens: DelegationTokenCache, command: dict[str, Any]) -> None:
    """Apply a command to the stored tokens. Raises CorruptLog."""
    match command:
        case {"do": "token_gone", "token": str(token_id)}:
            tokens.remove(token_id)
        case {"do": "token_expiry", "token": str(token_id), "expires": int(expiry_ms)}:
            if token_id in tokens:
                tokens.put(replace(tokens[token_id], expiry_ms=expiry_ms))
        case {
            "do": "token",
            "token": str(token_id),
            "owner": [str(), str()] as owner,
            "requester": [str(), str()] as requester,
            "renewers": list(renewers),
            "issued": int(issued_ms),
            "max": int(max_ms),
            "expires": int(expiry_ms),
        }:
            owning, requesting, *renewing = (
                KafkaPrincipal(*_principal_fields(each)) for each in (owner, requester, *renewers)
            )
            times = issued_ms, max_ms, expiry_ms
            tokens.put(DelegationToken(token_id, owning, requesting, tuple(renewing), *times))
        case _:
            raise CorruptLog(f"unknown metadata command: {kind_of(command)}")


def _pair(principal: KafkaPrincipal) -> list[str]:
    return [principal.principal_type, principal.name]


def _principal_fields(value: Any) -> tuple[str, str]:
    match value:
        case [str(principal_type), str(name)]:
            return principal_type, name
    raise CorruptLog(f"not a principal in a metadata command: {value!r}")
