"""`lockstep certs`."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from lockstep.cli import main
from lockstep.commands import certificate_directory

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def certs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs it in a directory of its own; returns exit status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["certs", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path("certs").iterdir())}


def issuer(name: str) -> str:
    (certificate,) = x509.load_pem_x509_certificates(Path(f"certs/{name}.pem").read_bytes())
    return certificate.issuer.rfc4514_string()


def test_one_command_makes_all_that_a_cluster_needs(certs: Run) -> None:
    status, out, _ = certs("create", "--nodes", "1=hostA,10.0.0.1,2=hostB", "--clients", "alice,bob")
    assert status == 0 and list(contents()) == [
        "alice.pem", "bob.pem", "ca.key", "ca.pem", "node-1.pem", "node-2.pem",
    ]  # fmt: skip
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path("certs").iterdir()}
    assert modes.pop("ca.pem") == 0o644 and set(modes.values()) == {0o600}
    assert stat.S_IMODE(Path("certs").stat().st_mode) == 0o700
    assert out.endswith(
        "settings of node 1; so for the others, each with its own node-N.pem:\n"
        "lockstep.peers.tls=require\n"
        "ssl.keystore.type=PEM\n"
        "ssl.keystore.location=certs/node-1.pem\n"
        "ssl.truststore.type=PEM\n"
        "ssl.truststore.location=certs/ca.pem\n"
    )
    rows = [line.split() for line in certs("show")[1].splitlines()]
    assert [row[0] for row in rows[1:]] == ["ca.pem", "node-1.pem", "node-2.pem", "alice.pem", "bob.pem"]
    assert "hostA,10.0.0.1" in rows[2] and rows[2][1:4] == ["node", "1", "of"]


def test_a_broker_alone_has_no_settings_of_nodes(certs: Run) -> None:
    assert "lockstep.peers" not in certs("create", "--nodes", "1=localhost")[1]
    assert "lockstep.peers.tls=require" in certs("add", "--nodes", "2=hostB")[1]


def test_the_id_of_a_cluster_that_there_is(certs: Run) -> None:
    status, out, _ = certs(
        "create", "--nodes", "1=a", "--cluster-id", "Wbd22PCGcYECzcimVPLOeg", "--directory", "d"
    )
    assert status == 0 and "cluster Wbd22PCGcYECzcimVPLOeg" in out and not Path("certs").exists()
    assert "node 1 of cluster Wbd22PCGcYECzcimVPLOeg" in certs("show", "--directory", "d")[1]


def test_a_creation_that_was_killed_is_repeated(certs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write, names = certificate_directory.write_file, list[str]()

    def stop_after_one(path: Path, data: bytes, mode: int) -> None:
        if names:
            raise KeyboardInterrupt
        names.append(path.name)
        write(path, data, mode)

    with monkeypatch.context() as killed:
        killed.setattr(certificate_directory, "write_file", stop_after_one)
        with contextlib.suppress(KeyboardInterrupt):
            certs("create", "--nodes", "1=a")
    assert names == list(contents()) == ["ca.key"]
    assert "`lockstep certs create` makes a CA" in certs("add", "--nodes", "1=a")[2]
    assert certs("create", "--nodes", "1=a")[0] == 0
    assert certs("add", "--nodes", "2=b")[0] == 0


def test_a_ca_that_lacks_one_of_its_files_is_kept(certs: Run) -> None:
    certs("create", "--nodes", "1=a")
    for name in ("ca.key", "ca.pem"):
        lost = Path("certs", name)
        data = lost.read_bytes()
        lost.unlink()
        before = contents()
        status, _, said = certs("create", "--nodes", "2=b")
        assert status == 1 and "certs/ca.pem is " in said and contents() == before
        if name == "ca.key":
            assert "bring it back" in certs("add", "--nodes", "2=b")[2]
        else:
            assert "bring it back" in said
        lost.write_bytes(data)


def test_nothing_is_overwritten(certs: Run) -> None:
    certs("create", "--nodes", "1=a", "--clients", "alice")
    before = contents()
    for arguments, problem in (
        (("create", "--nodes", "2=b"), "certs/ca.pem is there already"),
        (("add", "--nodes", "3=c,1=a"), "certs/node-1.pem is there already: `lockstep certs renew node-1`"),
        (("add", "--clients", "bob,alice"), "certs/alice.pem is there already"),
    ):
        status, _, error = certs(*arguments)
        assert status == 1 and problem in error and contents() == before
    Path("certs/ca.pem").unlink()
    status, _, error = certs("create", "--nodes", "2=b")
    assert status == 1 and "certs/ca.pem is missing, and certs/alice.pem may be of its CA" in error


def test_a_certificate_is_renewed_with_a_new_key_and_its_hosts(certs: Run) -> None:
    certs("create", "--nodes", "1=a,10.0.0.1,2=b", "--clients", "alice", "--days", "30")
    before, shown = contents(), certs("show")[1]
    assert certs("renew", "node-1", "alice", "--days", "30")[0] == 0
    changed = {name for name, data in contents().items() if data != before[name]}
    assert changed == {"node-1.pem", "alice.pem"} and certs("show")[1] == shown
    assert certs("renew")[1].count("valid until") == 3


def test_a_new_ca(certs: Run) -> None:
    certs("create", "--nodes", "1=a,2=b", "--clients", "alice")
    former = Path("certs/ca.pem").read_text()
    assert certs("new-ca")[0] == 0
    both = Path("certs/ca.pem").read_text()
    assert both.endswith(former) and both.count("BEGIN CERTIFICATE") == 2
    status, _, error = certs("new-ca")
    assert status == 1 and "has two CAs already" in error
    first = issuer("node-1")
    certs("renew", "node-1")
    assert issuer("node-1") != first == issuer("node-2")
    status, _, error = certs("drop-ca")
    assert status == 1 and "the former CA has signed node-2, alice" in error
    certs("add", "--nodes", "3=c")
    certs("renew")
    assert certs("drop-ca")[0] == 0 and Path("certs/ca.pem").read_text() + former == both
    assert {issuer(name) for name in ("node-1", "node-2", "node-3", "alice")} == {issuer("node-1")}


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (("create", "--nodes", "1"), 2, "not of the form NODE=HOST"),
        (("create", "--nodes", "a=b"), 2, "not of the form NODE=HOST"),
        (("create", "--nodes", "1=a,1=b"), 2, "node 1 is there twice"),
        (("create", "--nodes", "1=a b"), 2, "neither a host name nor an address"),
        (("create", "--nodes", "1=a", "--clients", "node-1"), 2, "neither ca nor node-"),
        (("create", "--nodes", "1=a", "--clients", "../b"), 2, "letters, digits"),
        (("create", "--nodes", "1=a", "--cluster-id", "a b"), 2, "cluster id"),
        (("create", "--nodes", "1=a", "--days", "3651"), 2, "the CA ends at"),
        (("create", "--nodes", "1=a", "--directory", "file/d"), 1, "not a directory"),
        (("add", "--nodes", "1=a"), 1, "certs/ca.key is not there: `lockstep certs create`"),
        (("add",), 2, "nothing to add"),
        (("renew",), 1, "certs/ca.key is not there"),
        (("show",), 1, "certs/ca.pem is not there"),
    ],
)
def test_what_is_refused(certs: Run, arguments: tuple[str, ...], status: int, problem: str) -> None:
    Path("file").touch()
    found = certs(*arguments)
    assert found[0] == status and problem in found[2] and not Path("certs").exists()


def test_a_name_that_is_not_there(certs: Run) -> None:
    certs("create", "--nodes", "1=a")
    status, _, error = certs("renew", "carol")
    assert status == 2 and "there is no certs/carol.pem" in error


def test_a_number_of_days(certs: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        certs("create", "--nodes", "1=a", "--days", "0")
    assert "not a number of days from 1 to 36500" in capsys.readouterr().err


def test_files_of_others_are_named(certs: Run) -> None:
    certs("create", "--nodes", "1=a")
    Path("certs/notes.pem").write_text("nothing")
    status, _, error = certs("show")
    assert status == 1 and "certs/notes.pem has no certificate" in error
    Path("certs/notes.pem").unlink()
    Path("certs/ca.key").write_text("nothing")
    status, _, error = certs("renew")
    assert status == 1 and "the CA cannot be read" in error


@pytest.mark.parametrize("nodes", ["", ",", " , "])
def test_a_list_without_nodes_is_wrong_usage(certs: Run, nodes: str) -> None:
    status, _, err = certs("create", f"--nodes={nodes}")
    assert status == 2 and "1=hostA,2=hostB" in err and err.count("\n") == 1
