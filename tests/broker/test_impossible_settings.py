"""A setting that no start can use, or a file whose content none can, stops it by its name, with the status
that says so; a file that is not there, or not valid now, stops it with that of what may be mended later."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from lockstep.broker import main
from lockstep.broker.security import cipher_suites
from lockstep.broker.security.scram_users import MAX_NAME_CHARACTERS
from lockstep.broker.server import Broker
from lockstep.broker.settings.loader import load
from lockstep.broker.settings.properties import ConfigError
from tests.broker.cluster.brokers import SMALL
from tests.broker.security.test_key_store import BROKER, inline
from tests.support.cases import check_each
from tests.support.certificates import DAY, NOW, SelfSignedCa

OWN = inline(BROKER)
SASL = {"listeners": "SASL_PLAINTEXT://localhost:0"}
TLS = {"listeners": "SSL://localhost:0", **OWN}
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
PLAIN = {**SASL, "sasl.enabled.mechanisms": "PLAIN"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = "lockstep.scram.users"
RULES = "ssl.principal.mapping.rules"
MECHANISMS = "sasl.enabled.mechanisms"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
UNVERIFIED = {
    "sasl.oauthbearer.allow.unverified.audience": "true",
    "sasl.oauthbearer.allow.unverified.issuer": "true",
}
ADMIN = "SCRAM-SHA-512=[name=admin,password=hush]"
REFUSED = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@contextlib.asynccontextmanager
async def _never(broker: Broker) -> AsyncIterator[None]:
    raise AssertionError("the broker has started")
    yield


Start = Callable[[Mapping[str, str]], tuple[int, str]]


@pytest.fixture
def start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Start:
    """Starts a broker that cannot start; returns its exit status, and why."""

    def start(texts: Mapping[str, str]) -> tuple[int, str]:
        given = {**SMALL, "log.dirs": str(tmp_path / "data"), **texts}
        try:
            settings = load(None, [f"{name}={text}" for name, text in given.items()])
        except ConfigError as error:
            return 2, str(error)
        caplog.clear()
        with pytest.raises(SystemExit) as ended:
            main._run(settings, _never)
        assert isinstance(ended.value.code, int)
        (reason,) = [each.getMessage() for each in caplog.records if each.levelname == "CRITICAL"]
        return ended.value.code, reason.removeprefix("cannot start: ")

    return start


IMPOSSIBLE: tuple[tuple[Mapping[str, str], str], ...] = (
    ({"num.partitions": "none"}, "num.partitions=none: not a whole number"),
    ({"listeners": "PLAINTEXT://localhost:x"}, "listeners=PLAINTEXT://localhost:x: not of the form"),
    ({**SASL, MECHANISMS: "SCRAM-SHA-215"}, f"{MECHANISMS}=SCRAM-SHA-215: SCRAM-SHA-215: no such mechanism"),
    ({**SASL, MECHANISMS: "GSSAPI"}, f"{MECHANISMS}=GSSAPI: GSSAPI: Kerberos is not served"),
    ({**SASL, MECHANISMS: ""}, f"{MECHANISMS}=: names none of PLAIN"),
    (PLAIN, f"{MECHANISMS}=PLAIN: PLAIN has no users: set {JAAS}="),
    ({**PLAIN, JAAS: "hush"}, f"{JAAS}=[hidden]: not of the form CLASS required"),
    ({**PLAIN, JAAS: f"{PLAIN_MODULE} needed x=hush;"}, f"{JAAS}=[hidden]: the word behind {PLAIN_MODULE}"),
    ({**PLAIN, JAAS: f'{PLAIN_MODULE} required user_a="hush'}, f"{JAAS}=[hidden]: a quote has no end"),
    (
        {**PLAIN, JAAS: f"{PLAIN_MODULE} required user_a:hush;"},
        f"{JAAS}=[hidden]: option 1 is not NAME=VALUE",
    ),
    ({**PLAIN, JAAS: "my.Module required user_a=hush;"}, f"{JAAS}=[hidden]: my.Module is not served"),
    (
        {**SASL, MECHANISMS: "OAUTHBEARER", JWKS_URL: "https://a.example/keys"},
        "sasl.oauthbearer.expected.audience=: OAUTHBEARER needs it",
    ),
    (
        {
            **SASL,
            MECHANISMS: "OAUTHBEARER",
            **UNVERIFIED,
            JWKS_URL: "ftp://a.example/keys",
        },
        "sasl.oauthbearer.jwks.endpoint.url=ftp://a.example/keys: a URL of file, https or http is needed",
    ),
    ({**PLAIN, "sasl.server.callback.handler.class": "x"}, f"{MECHANISMS}=PLAIN: PLAIN has no users"),
    (
        {**SASL, MECHANISMS: "SCRAM-SHA-256", "sasl.server.callback.handler.class": "x"},
        "sasl.server.callback",
    ),
    ({**TLS, RULES: "RULE:x"}, f"{RULES}=RULE:x: 'RULE:x' is not of the form"),
    ({**TLS, RULES: "RULE:(/x/"}, f"{RULES}=RULE:(/x/: the pattern '(' is not valid: missing )"),
    ({**TLS, RULES: "RULE:.*/$1/"}, f"{RULES}=RULE:.*/$1/: the pattern '.*' has no group 1"),
    ({**TLS, RULES: "RULE:a{99999999999}/x/"}, f"{RULES}=RULE:a{{99999999999}}/x/: the pattern"),
    ({**TLS, RULES: f"RULE:{'(' * 4000}{')' * 4000}/x/"}, f"{RULES}=RULE:(("),
    ({**TLS, "ssl.cipher.suites": "TLS_RSA"}, "ssl.cipher.suites=TLS_RSA: TLS_RSA is not served"),
    (
        {**TLS, "ssl.cipher.suites": f"TLS_AES_128_GCM_SHA256,{REFUSED}"},
        f"ssl.cipher.suites=TLS_AES_128_GCM_SHA256,{REFUSED}: OpenSSL rejects {REFUSED} on this machine",
    ),
    ({**TLS, "ssl.cipher.suites": REFUSED}, f"ssl.cipher.suites={REFUSED}: OpenSSL rejects {REFUSED}"),
    ({**TLS, "ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols=TLSv1.1: must be one of"),
    ({**TLS, "ssl.client.auth": "required"}, "ssl.truststore.location=: missing"),
    ({**TLS, "ssl.keystore.key": "hush"}, "ssl.keystore.key=[hidden]: no private keys are in it"),
    ({"listeners": "SSL://localhost:0"}, "ssl.keystore.location=: missing: the listener SSL needs a key"),
    ({USERS: "hush"}, f"{USERS}=[hidden]: not of the form"),
    ({USERS: ADMIN.replace("512", "1")}, f"{USERS}=[hidden]: SCRAM-SHA-1 is none of"),
    ({USERS: "SCRAM-SHA-512=[name=a]"}, f"{USERS}=[hidden]: user 1 needs name=, password="),
    ({USERS: ADMIN.replace("admin", "")}, f"{USERS}=[hidden]: user 1 needs name=, password="),
    ({USERS: ADMIN.replace("]", ",iterations=1]")}, f"{USERS}=[hidden]: iterations of user 1"),
    ({USERS: ADMIN.replace("]", f",iterations={'9' * 5000}]")}, f"{USERS}=[hidden]: iterations of user 1"),
    ({USERS: ADMIN.replace("]", ",name=b]")}, f"{USERS}=[hidden]: user 1 has an option twice"),
    ({USERS: f"{ADMIN},{ADMIN}"}, f"{USERS}=[hidden]: SCRAM-SHA-512 of admin is there twice"),
    ({USERS: ADMIN.replace("admin", "a" * (MAX_NAME_CHARACTERS + 1))}, f"{USERS}=[hidden]: the name of user"),
    ({"super.users": "alice"}, "super.users=alice: alice has no type"),
    ({"lockstep.metrics.token": "h\u00fcsh"}, "lockstep.metrics.token=[hidden]: a token has ASCII"),
    ({"lockstep.audit.log": "/dev/null"}, "lockstep.audit.log=/dev/null: a device, no regular file"),
    ({"lockstep.audit.log": "/"}, "lockstep.audit.log=/: a directory, no regular file"),
)


def test_impossible_settings_stop_the_start_by_name(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cipher_suites.OPENSSL_NAMES, REFUSED, "ECDHE-NO-SUCH-CIPHER")
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    same_port = {
        "listeners": f"PLAINTEXT://localhost:{port}",
        "lockstep.metrics.listener": f"localhost:{port}",
    }

    def check(texts: Mapping[str, str], reason: str) -> None:
        status, said = start(texts)
        assert status == 2 and said.startswith(reason), (status, said)
        assert "hush" not in said and "h\u00fcsh" not in said

    check_each([*IMPOSSIBLE, (same_port, f"listeners=PLAINTEXT://localhost:{port} (--listen) and")], check)


def test_what_is_no_regular_file_stops_the_start_at_once(start: Start, tmp_path: Path) -> None:
    path, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(path)
    link.symlink_to(path)
    package = "org.apache.kafka.common.config.provider"
    providers = {
        "config.providers": "file,directory",
        "config.providers.file.class": f"{package}.FileConfigProvider",
        "config.providers.directory.class": f"{package}.DirectoryConfigProvider",
    }
    key = "super.users"

    def check(texts: Mapping[str, str], setting: str, kind: str) -> None:
        status, said = start(texts)
        assert status == 2 and said.startswith(setting) and kind in said, (status, said)

    for file, kind in (
        (path, "a pipe (FIFO), no regular file"),
        (link, "a pipe (FIFO), no regular file"),
        (Path("/dev/zero"), "a device, no regular file"),
        (tmp_path, "a directory, no regular file"),
    ):
        store = {"listeners": "SSL://localhost:0", "ssl.keystore.location": str(file)}
        trusted = {**TLS, "ssl.client.auth": "required", "ssl.truststore.location": str(file)}
        tokens = {**SASL, MECHANISMS: "OAUTHBEARER", **UNVERIFIED, JWKS_URL: file.as_uri()}
        cases = [
            (store, "ssl.keystore.location"),
            (trusted, "ssl.truststore.location"),
            (tokens, JWKS_URL),
            ({"lockstep.audit.log": str(file)}, "lockstep.audit.log"),
            ({**providers, key: f"${{file:{file}:k}}"}, key),
            ({**providers, key: f"${{directory:{file.parent}:{file.name}}}"}, key),
        ]
        check_each([(*case, kind) for case in cases], check)
        check({"lockstep.peers": str(file)}, "lockstep.peers", "no regular file")
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert start({"lockstep.audit.log": str(link)})[0] == 2, "also where somebody reads from it"
    finally:
        os.close(end)


def test_a_file_that_is_not_there_or_not_valid_now_has_the_status_of_a_failed_start(
    start: Start, tmp_path: Path
) -> None:
    authority = SelfSignedCa()
    late = authority.issue(ends=NOW - DAY / 2).write_pem(tmp_path / "late.pem")
    empty = tmp_path / "empty"
    empty.touch()
    store = {"listeners": "SSL://localhost:0", "ssl.keystore.type": "PEM"}
    location = "ssl.keystore.location"
    tokens = {**SASL, MECHANISMS: "OAUTHBEARER", **UNVERIFIED}
    cases = [
        ({**store, location: "/no/such"}, f"{location}=/no/such: cannot be read: no such file"),
        ({**store, location: str(empty)}, f"{location}={empty}: is empty"),
        ({**tokens, JWKS_URL: empty.as_uri()}, JWKS_URL),
        ({**store, location: f"{late}/of"}, f"{location}={late}/of: "),
        ({**store, location: str(late)}, f"{location}={late}: the certificate of CN=localhost expired"),
        ({**TLS, "ssl.client.auth": "required", "ssl.truststore.location": "/no/such"}, "ssl.truststore"),
        ({**tokens, JWKS_URL: "file:///no/such"}, JWKS_URL),
        (
            {"lockstep.audit.log": "/no/such/file"},
            "lockstep.audit.log=/no/such/file: the broker cannot append",
        ),
    ]

    def check(texts: Mapping[str, str], reason: str) -> None:
        status, said = start(texts)
        assert status == 1 and said.startswith(reason), (status, said)

    check_each(cases, check)
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = start({"listeners": f"PLAINTEXT://localhost:{port}"})
        assert status == 1 and f"port {port} is in use" in said


def test_a_file_whose_content_no_start_can_use_is_an_impossible_setting(start: Start, tmp_path: Path) -> None:
    location = "ssl.keystore.location"
    own = SelfSignedCa().issue()
    files = {
        "noise": b"noise",
        "certificate": own.chain_pem().encode(),
        "own.pem": own.write_pem(tmp_path / "made.pem").read_bytes(),
        "damaged": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "java": b"\xfe\xed\xfe\xed",
    }
    path = {name: tmp_path / name for name in files}
    for name, data in files.items():
        path[name].write_bytes(data)
    cases = [
        ("PEM", path["noise"], "no PEM file, though ssl.keystore.type is PEM"),
        ("PEM", path["certificate"], "no private keys are in it"),
        ("PEM", path["damaged"], "its private key is damaged"),
        ("PEM", tmp_path, "is a directory, no regular file"),
        ("PKCS12", path["noise"], "is neither PEM nor PKCS12"),
        ("JKS", path["own.pem"], "a PEM file: set ssl.keystore.type=PEM"),
        ("JKS", path["java"], "is in Java's own form JKS"),
    ]

    def check(kind: str, file: Path, reason: str) -> None:
        status, said = start(
            {"listeners": "SSL://localhost:0", "ssl.keystore.type": kind, location: str(file)}
        )
        assert status == 2 and said.startswith(f"{location}={file}: {reason}"), (status, said)

    check_each(cases, check)
    tokens = {**SASL, MECHANISMS: "OAUTHBEARER", **UNVERIFIED}
    for file in (path["noise"], tmp_path):
        status, said = start({**tokens, JWKS_URL: file.as_uri()})
        assert status == 2 and said.startswith(JWKS_URL), (status, said)
