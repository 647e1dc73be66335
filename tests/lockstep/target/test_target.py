"""What an application imports."""

from __future__ import annotations

import sys

import pytest

import lockstep.player.target.postgres
import lockstep.target


def test_all_names_are_there() -> None:
    for name in lockstep.target.__all__:
        assert getattr(lockstep.target, name) is not None
    assert lockstep.target.PostgresStore is lockstep.player.target.postgres.PostgresStore
    with pytest.raises(AttributeError, match="no_such_thing"):
        lockstep.target.no_such_thing  # noqa: B018


def test_without_psycopg_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lockstep.player.target.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[sql\]' in the clone"):
        lockstep.target.PostgresStore  # noqa: B018
