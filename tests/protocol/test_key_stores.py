"""Stores of keys and certificates, in each form, and what is wrong with one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from lockstep.protocol.key_stores import (
    MAX_STORE_BYTES,
    UnreadableStore,
    UnusableStore,
    WrongPassword,
    certificates_in,
    is_pem,
    load_pkcs12,
    pem_blocks,
    read_store,
)
from tests.support.certificates import SelfSignedCa

CA = SelfSignedCa()
ISSUED = CA.issue("broker")


def test_a_file_is_read_within_a_limit(tmp_path: Path) -> None:
    file = ISSUED.write_pem(tmp_path / "broker.pem")
    assert read_store(str(file)) == file.read_bytes() and is_pem(file.read_bytes())
    with pytest.raises(UnreadableStore, match=r"^cannot be read: no such file or directory$"):
        read_store(str(tmp_path / "absent"))
    (tmp_path / "empty").touch()
    with pytest.raises(UnreadableStore, match=r"^is empty$"):
        read_store(str(tmp_path / "empty"))
    with pytest.raises(UnusableStore, match=r"^is a directory, no regular file$") as found:
        read_store(str(tmp_path))
    assert not isinstance(found.value, UnreadableStore)
    with file.open("wb") as stream:
        stream.truncate(MAX_STORE_BYTES)
        assert len(read_store(str(file))) == MAX_STORE_BYTES
        stream.truncate(MAX_STORE_BYTES + 1)
    with pytest.raises(UnusableStore, match=f"^is larger than {MAX_STORE_BYTES} bytes"):
        read_store(str(file))


@pytest.mark.parametrize("magic", [b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"])
def test_javas_own_forms_are_named_with_the_cure(tmp_path: Path, magic: bytes) -> None:
    file = tmp_path / "broker.jks"
    file.write_bytes(magic + b"\0\0\0\2")
    converted = f"-srckeystore {file} -destkeystore {tmp_path / 'broker.p12'} -deststoretype PKCS12"
    with pytest.raises(UnusableStore, match=f"^is in Java's own form JKS.*{re.escape(converted)}$"):
        read_store(str(file))


def test_blocks_of_pem() -> None:
    text = ISSUED.key_pem() + ISSUED.chain_pem()
    blocks = pem_blocks(f"a comment\n{text}")
    assert [label for label, _ in blocks] == ["PRIVATE KEY", "CERTIFICATE", "CERTIFICATE"]
    assert "".join(pem for _, pem in blocks) == text
    assert pem_blocks(" ".join(text.split("\n"))) == blocks, "on one line"
    headed = (
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
    )
    assert pem_blocks(headed) == [("RSA PRIVATE KEY", headed)]
    assert pem_blocks("-----BEGIN CERTIFICATE-----\nAAAA\n-----END X-----") == []


def test_pkcs12(tmp_path: Path) -> None:
    data = ISSUED.write_pkcs12(tmp_path / "broker.p12", b"hush").read_bytes()
    assert not is_pem(data)
    found = load_pkcs12(data, "hush")
    assert certificates_in(found) == [ISSUED.certificate, CA.certificate]
    assert found.key is not None
    assert found.key.public_key() == load_pem_private_key(ISSUED.key_pem().encode(), None).public_key()
    trusted = CA.write_pkcs12(tmp_path / "ca.p12", b"hush").read_bytes()
    assert certificates_in(load_pkcs12(trusted, "hush")) == [CA.certificate]
    with pytest.raises(WrongPassword, match=r"^is missing$"):
        load_pkcs12(data, None)
    with pytest.raises(WrongPassword, match=r"^is wrong$"):
        load_pkcs12(data, "other")
    with pytest.raises(UnusableStore, match=r"^is neither PEM nor PKCS12$"):
        load_pkcs12(b"noise", "hush")


def test_pkcs12_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(UnusableStore, match="needs the package cryptography, which is not installed"):
        load_pkcs12(b"noise", None)
