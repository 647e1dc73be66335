"""DescribeUserScramCredentials (50): who has a SCRAM password, never the password (KIP-554)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, message, string, struct


@struct()
class UserName(Struct):
    """One user."""

    name: str = string()


@message(api_key=50, versions="0", flexible="0+", kind="request")
class DescribeUserScramCredentialsRequest(Struct):
    """The requested users; null or none means all."""

    users: list[UserName] | None = array(UserName, nullable="0+")


@struct()
class CredentialInfo(Struct):
    """One mechanism that the user has a credential for."""

    mechanism: int = int8()
    iterations: int = int32()


@struct()
class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(api_key=50, versions="0", flexible="0+", kind="response")
class DescribeUserScramCredentialsResponse(Struct):
    """A result for each user."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
