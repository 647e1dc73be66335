"""Keys and certificates from each form, and the error of each mistake: it names the setting and the cure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from lockstep.broker.security import key_store
from lockstep.broker.security.key_store import read_key_store, read_trust_store, store_files
from lockstep.broker.settings.properties import ConfigError, UnusableFile
from lockstep.broker.settings.security_settings import ListenerSecurity
from lockstep.broker.settings.settings_reader import from_texts
from tests.support.cases import each_case
from tests.support.certificates import DAY, NOW, Issued, SelfSignedCa

AUTHORITY = SelfSignedCa()
BROKER = AUTHORITY.issue("broker")
SECRET = b"hush-hush"


def security(texts: Mapping[str, str]) -> ListenerSecurity:
    settings = from_texts({"listeners": "SSL://localhost:9093", **texts})
    return settings.security_of(settings.client_listeners()[0])


def key_texts(path: Path, kind: str, **more: str) -> dict[str, str]:
    return {
        "ssl.keystore.location": str(path),
        "ssl.keystore.type": kind,
        **{f"ssl.{name.replace('_', '.')}": text for name, text in more.items()},
    }


def inline(issued: Issued) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": issued.key_pem(),
        "ssl.keystore.certificate.chain": issued.chain_pem(),
    }


def in_each_form(directory: Path) -> dict[str, dict[str, str]]:
    pem, locked = directory / "broker.pem", directory / "locked.pem"
    store = BROKER.write_pkcs12(directory / "broker.p12", SECRET)
    secret = SECRET.decode()
    return {
        "PEM file": key_texts(BROKER.write_pem(pem), "PEM"),
        "PEM file, encrypted": key_texts(BROKER.write_pem(locked, SECRET), "PEM", key_password=secret),
        "PKCS12": key_texts(store, "PKCS12", keystore_password=secret),
        "PKCS12 under Kafka's default type": key_texts(store, "JKS", keystore_password=secret),
        "inline": inline(BROKER),
        "inline on one line": {name: " ".join(text.split("\n")) for name, text in inline(BROKER).items()},
        "inline, encrypted": inline(BROKER)
        | {"ssl.keystore.key": BROKER.key_pem(SECRET), "ssl.key.password": secret},
        "of the listener": {
            f"listener.name.ssl.{name}": text for name, text in key_texts(pem, "PEM").items()
        },
    }


def test_a_key_and_its_certificates_from_each_form(tmp_path: Path) -> None:
    for form, texts in in_each_form(tmp_path).items():
        found = read_key_store(security(texts), NOW)
        assert found.chain == (BROKER.certificate, AUTHORITY.certificate), form
        assert found.key_pem.decode() == BROKER.key_pem(), form


def test_certificates_in_any_order_are_put_in_theirs(tmp_path: Path) -> None:
    file = tmp_path / "store.pem"
    file.write_text(AUTHORITY.pem() + SelfSignedCa("Other").pem() + BROKER.chain_pem() + BROKER.key_pem())
    assert read_key_store(security(key_texts(file, "PEM")), NOW).chain[0] == BROKER.certificate


def test_the_first_end_counts(tmp_path: Path) -> None:
    issued = AUTHORITY.issue(ends=NOW + 2 * DAY)
    found = read_key_store(security(inline(issued)), NOW)
    assert found.expires == issued.certificate.not_valid_after_utc


def mistakes(directory: Path) -> list[tuple[dict[str, str], str]]:
    """Settings, and a pattern of their error."""
    pem = BROKER.write_pem(directory / "broker.pem")
    locked = BROKER.write_pem(directory / "locked.pem", SECRET)
    store = BROKER.write_pkcs12(directory / "broker.p12", SECRET)
    jks, noise, empty = (directory / name for name in ("broker.jks", "noise", "empty.pem"))
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    noise.write_bytes(b"\x30\x03\x02\x01\x03")
    empty.write_text(BROKER.key_pem())
    damaged = directory / "damaged.pem"
    damaged.write_text(BROKER.chain_pem().replace("M", "N") + BROKER.key_pem())
    late, early = AUTHORITY.issue(ends=NOW - DAY / 2), AUTHORITY.issue(begins=NOW + DAY)
    location, other_key = "ssl.keystore.location", inline(AUTHORITY.issue())["ssl.keystore.key"]
    trusted = AUTHORITY.write_pkcs12(directory / "trust.p12", SECRET)
    return [
        ({}, f"{location}=: missing: the listener SSL needs"),
        (key_texts(directory / "absent", "PEM"), f"{location}=.*absent: cannot be read: no such file"),
        (
            key_texts(jks, "JKS"),
            f"{location}=.*: is in Java's own form JKS.*keytool -importkeystore -srckeystore",
        ),
        (key_texts(jks, "PKCS12"), f"{location}=.*: is in Java's own form"),
        (key_texts(pem, "JKS"), f"{location}=.*: a PEM file: set ssl.keystore.type=PEM"),
        (
            key_texts(pem, "PEM", keystore_password="x"),
            r"ssl.keystore.password=\[hidden\]: a PEM file has none",
        ),
        (key_texts(store, "PEM", keystore_password="x"), f"{location}=.*: no PEM file"),
        (key_texts(store, "PKCS12"), "ssl.keystore.password=: is missing"),
        (key_texts(store, "PKCS12", keystore_password="x"), r"ssl.keystore.password=\[hidden\]: is wrong"),
        (
            key_texts(trusted, "PKCS12", keystore_password=SECRET.decode()),
            f"{location}=.*: no private key with",
        ),
        (key_texts(noise, "PKCS12", keystore_password="x"), f"{location}=.*: is neither PEM nor PKCS12"),
        (key_texts(locked, "PEM"), "ssl.key.password=: missing: the private key is encrypted"),
        (key_texts(locked, "PEM", key_password="x"), r"ssl.key.password=\[hidden\]: wrong"),
        (key_texts(empty, "PEM"), f"{location}=.*: no certificate is in it"),
        (key_texts(damaged, "PEM"), f"{location}=.*: a certificate in it is damaged"),
        (inline(BROKER) | key_texts(pem, "PEM"), f"{location}=.*: beside ssl.keystore.key"),
        ({"ssl.keystore.key": BROKER.key_pem()}, "ssl.keystore.certificate.chain=.*: missing"),
        (inline(BROKER) | {"ssl.keystore.key": "none"}, "ssl.keystore.key=.*: no private keys are in it"),
        (
            inline(BROKER) | {"ssl.keystore.key": other_key},
            "ssl.keystore.key=.*: the private key is not the one",
        ),
        (
            inline(BROKER) | {"ssl.keystore.key": BROKER.key_pem().replace("M", "N")},
            r"ssl.keystore.key=\[hidden\]: its private key is damaged",
        ),
        (inline(late), "ssl.keystore.key=.*: the certificate of CN=localhost expired at 20"),
        (inline(early), "ssl.keystore.key=.*: the certificate of CN=localhost is not valid before 20"),
        (
            {f"listener.name.ssl.{name}": text for name, text in key_texts(jks, "JKS").items()},
            f"listener.name.ssl.{location}=.*: is in Java's own form",
        ),
    ]


def test_each_mistake_is_named_with_its_cure(tmp_path: Path) -> None:
    for texts, pattern in mistakes(tmp_path):
        with pytest.raises(ConfigError) as refused:
            read_key_store(security(texts), NOW)
        assert re.match(pattern, str(refused.value)), (pattern, str(refused.value))
        assert SECRET.decode() not in str(refused.value) and "PRIVATE KEY" not in str(refused.value)


def test_a_file_larger_than_any_store(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate((4 << 20) + 1)
    with pytest.raises(ConfigError, match="larger than"):
        read_key_store(security(key_texts(file, "PEM")), NOW)


def test_trusted_certificates_from_each_form(tmp_path: Path) -> None:
    pem, store = AUTHORITY.write_pem(tmp_path / "ca.pem"), AUTHORITY.write_pkcs12(tmp_path / "ca.p12", SECRET)
    for texts in (
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(pem)},
        {"ssl.truststore.location": str(store), "ssl.truststore.password": SECRET.decode()},
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.pem()},
    ):
        assert read_trust_store(security(texts)) == (AUTHORITY.certificate,)
    assert read_trust_store(security({})) is None


@each_case(
    ("texts", "pattern"),
    [
        ({"ssl.truststore.certificates": "none"}, "ssl.truststore.certificates=.hidden.: no certificate"),
        (
            {"ssl.truststore.certificates": "x", "ssl.truststore.location": "y"},
            "ssl.truststore.location=y: beside ssl.truststore.certificates",
        ),
        ({"ssl.truststore.location": "/nowhere/x"}, "ssl.truststore.location=/nowhere/x: cannot be read"),
    ],
)
def test_mistakes_of_a_trust_store(texts: dict[str, str], pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        read_trust_store(security(texts))


def test_the_files_of_a_listener() -> None:
    own = {"ssl.keystore.location": "/a", "ssl.truststore.location": "/b"}
    assert store_files(security({**own, "listener.name.ssl.ssl.truststore.location": "/c"})) == [
        Path("/a"),
        Path("/c"),
    ]
    assert store_files(security({})) == []


def test_a_store_in_a_directory_that_cannot_be_entered_is_an_error_of_its_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def check_regular(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(key_store, "check_regular", check_regular)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location.*cannot be read: permission denied"):
        read_key_store(security(key_texts(tmp_path / "key.pem", "PEM")), NOW)


def test_an_empty_file_may_be_right_later(tmp_path: Path) -> None:
    """It may be about to be written: the exit status is that of a missing file, not of a setting."""
    path = tmp_path / "key.pem"
    path.write_bytes(b"")
    with pytest.raises(UnusableFile, match="is empty"):
        read_key_store(security(key_texts(path, "PEM")), NOW)


@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_an_empty_location_is_missing(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl.keystore.location.*: missing: the listener SSL needs a key"):
        read_key_store(security({f"{prefix}ssl.keystore.location": ""}), NOW)
    assert security({f"{prefix}ssl.truststore.location": ""}).get("ssl.truststore.location") is None
