"""Sockets are set up so that small messages leave at once and dead peers are noticed."""

from __future__ import annotations

import socket

import pytest

from lockstep.storage.peers.limits import PeerLimits, tune


def test_what_a_connection_is_set_to() -> None:
    with socket.socket() as made:
        tune(made, PeerLimits().dead_ms)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 3000
        probes = [getattr(socket, name, None) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")]
        idle, interval, count = (made.getsockopt(socket.IPPROTO_TCP, each) if each else 1 for each in probes)
        assert idle + interval * count <= 3


def test_a_platform_that_has_less_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)
    monkeypatch.setattr(socket, "TCP_KEEPIDLE", 9999, raising=False)
    with socket.socket() as made:
        tune(made, 3000)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
