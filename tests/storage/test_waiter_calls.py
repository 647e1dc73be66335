"""Every waiter is called, whatever another one raises."""

from __future__ import annotations

import pytest

from lockstep.storage.types import NotLeader
from lockstep.storage.waiter_calls import call_waiters


def test_an_error_of_one_waiter_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    called: list[BaseException | None] = []

    def broken(error: BaseException | None) -> None:
        raise LookupError("broken")

    lost = NotLeader("lost")
    call_waiters([called.append, broken, called.append], lost)
    assert called == [lost, lost]
    (logged,) = caplog.records
    assert logged.levelname == "ERROR" and "broken" in str(logged.exc_info)
