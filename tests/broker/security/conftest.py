"""The handlers of broker/security/api, called without a broker."""

from __future__ import annotations

import logging
import time

import pytest

from lockstep.broker.security import api
from lockstep.storage.rate_limited_log import RateLimitedLog
from tests.broker.fakes import Caller


@pytest.fixture
def caller() -> Caller:
    return Caller(
        *api.build_handlers(RateLimitedLog(time.monotonic, logging.getLogger("lockstep.connection")))
    )
