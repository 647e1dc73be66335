"""Listening sockets: several addresses on one port, and plain words when it cannot be."""

from __future__ import annotations

import resource
import socket

import pytest

from lockstep.broker.network.listeners import CannotListen, bind, check_conflicts, connection_limit
from lockstep.broker.settings.addresses import Listener
from tests.support.cases import each_case


def test_every_address_of_localhost_on_one_port() -> None:
    bound = bind(Listener("PLAINTEXT", "localhost", 0))
    try:
        assert len({each.getsockname()[1] for each in bound}) == 1
        assert bound[0].family == socket.AF_INET
    finally:
        for each in bound:
            each.close()


def test_port_in_use_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"port {port} is in use"):
            bind(Listener("PLAINTEXT", "127.0.0.1", port))


def test_not_this_machine() -> None:
    with pytest.raises(CannotListen, match=r"203\.0\.113\.1"):
        bind(Listener("PLAINTEXT", "203.0.113.1", 0))
    with pytest.raises(CannotListen, match="no-such-host"):
        bind(Listener("PLAINTEXT", "no-such-host.invalid", 0))
    for host in ("203.0.113.1", "no-such-host.invalid"):
        with pytest.raises(CannotListen, match=r"\. Set it elsewhere$"):
            bind(Listener("PLAINTEXT", host, 0), address_hint="Set it elsewhere")


@each_case(
    ("one", "other", "clash"),
    [
        (("localhost", 7), ("localhost", 7), True),
        (("localhost", 7), ("127.0.0.1", 7), True),
        (("0.0.0.0", 7), ("127.0.0.1", 7), True),
        (("127.0.0.1", 7), ("", 7), True),
        (("::", 7), ("::1", 7), True),
        (("localhost", 7), ("localhost", 8), False),
        (("localhost", 0), ("localhost", 0), False),
        (("127.0.0.1", 7), ("127.0.0.2", 7), False),
        (("127.0.0.1", 7), ("::1", 7), False),
        (("no-such-host.invalid", 7), ("127.0.0.1", 7), False),
    ],
)
def test_one_port_for_two_purposes(one: tuple[str, int], other: tuple[str, int], clash: bool) -> None:
    named = [("a=1", Listener("A", *one)), ("b=2", Listener("B", "h", 6)), ("c=3", Listener("C", *other))]
    for listeners in (named, named[::-1]):
        if clash:
            with pytest.raises(CannotListen, match=r"(a=1.*c=3|c=3.*a=1) are the same port"):
                check_conflicts(listeners)
        else:
            check_conflicts(listeners)


def test_all_addresses() -> None:
    bound = bind(Listener("PLAINTEXT", "", 0))
    try:
        with socket.create_server(("127.0.0.1", 0)) as other:
            assert other.getsockname()[1] != bound[0].getsockname()[1]
        assert "0.0.0.0" in {each.getsockname()[0] for each in bound}
    finally:
        for each in bound:
            each.close()


@pytest.mark.parametrize(
    ("files", "groups", "allowed"),
    [(1024, 2, 672), (128, 2, 64), (65_536, 9, 20_000), (resource.RLIM_INFINITY, 2, 20_000)],
)
def test_clients_leave_open_files_to_the_log(
    monkeypatch: pytest.MonkeyPatch, files: int, groups: int, allowed: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    assert connection_limit(20_000, groups) == allowed
