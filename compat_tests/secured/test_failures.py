"""The error text of a client whose TLS or login fails, the same over both brokers (`reasons`)."""

from __future__ import annotations

import re

import pytest

from compat_tests.clients.face import CannotDo, Client
from compat_tests.secured.brokers import SecuredLockstep, SecuredTarget
from compat_tests.secured.reasons import FAILURES, NOT_NAMED, REASONS

_MAX_LINES = 2
"""Of the log, however often the client tries: one for the reason, one where a warning is repeated."""


@pytest.mark.case("Security", "{login}: the client names the reason")
@pytest.mark.parametrize("login", FAILURES)
def test_reason(client: Client, target: SecuredTarget, login: str) -> None:
    log_bytes = target.log_path.stat().st_size
    error = client.first_contact()
    assert error, "the client could connect"
    if isinstance(target, SecuredLockstep):
        log = target.log_path.read_bytes()[log_bytes:].decode()
        assert "Traceback" not in log and len(log.splitlines()) <= _MAX_LINES, log
    assert re.search(REASONS[client.name][login], error), error[:3000]
    if login in NOT_NAMED.get(client.name, {}):
        raise CannotDo(NOT_NAMED[client.name][login])


@pytest.mark.case("Security", "the first contact of a client that is let in")
def test_no_reason(client: Client) -> None:
    assert client.first_contact() == ""
