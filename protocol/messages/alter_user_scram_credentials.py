"""AlterUserScramCredentials (51): SCRAM passwords are set and deleted (KIP-554)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, byte_string, int8, int16, int32, message, string, struct
from lockstep.protocol.primitives import Buffer


@struct()
class ScramCredentialDeletion(Struct):
    """One user's credential of one mechanism."""

    name: str = string()
    mechanism: int = int8()


@struct()
class ScramCredentialUpsertion(Struct):
    """A new credential of one user."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: Buffer = byte_string()
    salted_password: Buffer = byte_string()


@message(api_key=51, versions="0", flexible="0+", kind="request")
class AlterUserScramCredentialsRequest(Struct):
    """Credentials to delete and to set."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct()
class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(api_key=51, versions="0", flexible="0+", kind="response")
class AlterUserScramCredentialsResponse(Struct):
    """A result for each user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
