"""Brokers to play from, as the tests of the broker have them."""

from __future__ import annotations

from tests.broker.conftest import broker, client, start_broker, start_cluster

__all__ = ["broker", "client", "start_broker", "start_cluster"]
