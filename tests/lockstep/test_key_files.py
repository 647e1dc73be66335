"""A client's own key, and whom it trusts."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from pathlib import Path

import pytest

from lockstep.kafka_client import key_files
from lockstep.kafka_client.key_files import load_own, load_trusted
from tests.support.certificates import SelfSignedCa

AUTHORITY = SelfSignedCa()


def test_a_private_key_is_copied_to_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: pytest.fail("a file on the disk"))
    path = AUTHORITY.issue("client").write_pem(tmp_path / "client.pem")
    load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), {"ssl.keystore.location": str(path)})


def test_without_files_in_memory_the_key_is_in_one_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with key_files._private_file(b"key") as path:
        assert Path(path).read_bytes() == b"key"
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert not Path(path).exists()


def test_a_broker_certificate_may_be_trusted_itself(tmp_path: Path) -> None:
    issued = AUTHORITY.issue("localhost")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(issued.write_pem(tmp_path / "broker.pem"))
    (tmp_path / "leaf.pem").write_text(issued.chain_pem().partition("-----END CERTIFICATE-----")[0])
    with (tmp_path / "leaf.pem").open("a") as stream:
        stream.write("-----END CERTIFICATE-----\n")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load_trusted(client, {"ssl.truststore.location": str(tmp_path / "leaf.pem")})
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for end in (near, far):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert near.getpeercert()
