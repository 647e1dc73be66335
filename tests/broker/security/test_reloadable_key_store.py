"""Keys and certificates are read again when their files change, and again where that could not be."""

from __future__ import annotations

import datetime
import logging
import os
from pathlib import Path

import pytest

from lockstep.broker.security import reloadable_key_store
from lockstep.broker.security.reloadable_key_store import RETRY_PAUSE
from lockstep.broker.security.tls_context import TlsListener
from lockstep.broker.settings.properties import ConfigError
from tests.broker.security.test_key_store import key_texts, security
from tests.support.certificates import DAY, NOW, SelfSignedCa

AUTHORITY = SelfSignedCa()


def replace(path: Path, text: str) -> None:
    """Replace a file as operators' tools do, by another with another inode."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def of_file(path: Path, **texts: str) -> TlsListener:
    return TlsListener(security({**key_texts(path, "PEM"), **texts}), lambda: NOW)


def test_a_changed_file_replaces_the_context(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    tls = of_file(path)
    former = tls.context
    tls.reload_changed()
    assert tls.context is former
    new = AUTHORITY.issue("broker")
    replace(path, new.key_pem() + new.chain_pem())
    with caplog.at_level(logging.INFO):
        tls.reload_changed()
    assert tls.context is not former and "listener SSL: keys and certificates read again" in caplog.text


def test_a_certificate_that_ends_soon_is_warned_of_when_it_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    tls = of_file(path)
    new = AUTHORITY.issue("broker", ends=NOW + 5 * DAY)
    replace(path, new.key_pem() + new.chain_pem())
    tls.reload_changed()
    assert caplog.text.count("the certificate of listener SSL expires at ") == 1


def test_a_changed_file_that_cannot_be_used_leaves_the_former(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    tls = of_file(path)
    former = tls.context
    path.unlink()
    for _ in range(3):
        tls.reload_changed()
    assert tls.context is former
    assert (
        caplog.text.count("listener SSL keeps its former keys and certificates: ssl.keystore.location=") == 1
    )
    replace(path, AUTHORITY.issue("broker").key_pem())
    tls.reload_changed()
    assert tls.context is former and "no certificate is in it" in caplog.text


class Clock:
    now = NOW

    def __call__(self) -> datetime.datetime:
        return self.now


def test_a_certificate_whose_time_comes_is_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    clock = Clock()
    tls = TlsListener(security(key_texts(path, "PEM")), clock)
    former = tls.context
    early = AUTHORITY.issue("broker", begins=NOW + DAY)
    replace(path, early.key_pem() + early.chain_pem())
    for _ in range(3):
        tls.reload_changed()
        clock.now += RETRY_PAUSE
    assert tls.context is former and caplog.text.count("keeps its former keys") == 1
    clock.now = NOW + 2 * DAY
    tls.reload_changed()
    assert tls.context is not former
    latest = tls.context
    clock.now += RETRY_PAUSE
    tls.reload_changed()
    assert tls.context is latest


def test_files_that_could_not_be_used_rest_until_the_pause_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    clock = Clock()
    tls = TlsListener(security(key_texts(path, "PEM")), clock)
    path.unlink()
    reads: list[int] = []
    monkeypatch.setattr(tls, "_take_over", lambda *_: reads.append(1))
    for pause in (datetime.timedelta(0), RETRY_PAUSE / 2, RETRY_PAUSE / 2, RETRY_PAUSE / 2):
        clock.now += pause
        tls.reload_changed()
    assert len(reads) == 2
    clock.now -= datetime.timedelta(hours=1)  # a clock that was set back does not put it off
    tls.reload_changed()
    assert len(reads) == 3


def test_a_change_of_permissions_is_a_change_of_the_file(tmp_path: Path) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    tls = of_file(path)
    former = tls.context
    status = path.stat()
    os.chmod(path, 0o600 if status.st_mode & 0o777 != 0o600 else 0o640)
    tls.reload_changed()
    assert tls.context is not former


def test_the_same_path_set_again_reads_it_again(tmp_path: Path) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    tls = of_file(path)
    former = tls.context
    tls.reload(security(key_texts(path, "PEM")))
    assert tls.context is not former
    with pytest.raises(ConfigError, match="cannot be read"):
        tls.check(security(key_texts(tmp_path / "absent", "PEM")))


def test_without_files_in_memory_the_key_is_in_one_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with reloadable_key_store._private_file(b"key") as path:
        assert Path(path).read_bytes() == b"key"
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert not Path(path).exists()
