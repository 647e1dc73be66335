"""The compaction benchmark's own accounts; that compaction works is tested in tests/broker."""

from __future__ import annotations

import pytest

from bench.compaction.command import KEYS, Writer, main
from bench.sessions.failures import RoundFailed
from compat_tests.targets import LockstepTarget


def test_what_is_sent_is_counted_once_it_is_acknowledged() -> None:
    with LockstepTarget({}) as target:
        writer = Writer(target)
        for _ in range(100):
            writer.send("plain", b"v", b"k")
        writer.finish()
        assert writer.acknowledged == 100
        writer.send("no such name!", b"v", b"k")
        with pytest.raises(RoundFailed, match="1 records were not acknowledged"):
            writer.finish()


def test_records_of_which_none_is_dead_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--records", str(KEYS)])
    assert "--records" in capsys.readouterr().err
