"""The kill -9 campaign must fail when the broker is at fault: planted losses and repeats, real processes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from compat_tests.targets import LockstepTarget
from tests.campaigns import kill9

SETTINGS = {"num.partitions": str(kill9.PARTITIONS), "lockstep.segment.bytes": str(4 << 20)}


class ForgetfulTarget(LockstepTarget):
    """Its third kill puts back what its first one left: everything acknowledged in between is lost."""

    kills = 0

    def kill9(self) -> None:
        if not self.running:
            return
        super().kill9()
        self.kills += 1
        copy = self.directory / "copy"
        if self.kills == 1:
            shutil.copytree(self.data_dir, copy)
        elif self.kills == 3:
            shutil.rmtree(self.data_dir)
            shutil.copytree(copy, self.data_dir)


def run(target: LockstepTarget, clients: list[str], kills: int) -> kill9.Round:
    with target:
        return kill9.run_round(
            target, topic="sabotage", kills=kills, seed=1, clients=clients, records_per_s=200
        )


def test_writes_that_are_lost_are_found(tmp_path: Path) -> None:
    result = run(ForgetfulTarget(SETTINGS, directory=tmp_path), ["confluent:plain"], kills=4)
    assert result.verdict.kinds["lost"] > 0
    assert not result.sound


def test_a_broker_that_forgets_producers_is_found(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.campaigns.sabotage"]
    environment = {"PYTHONPATH": str(Path(kill9.__file__).parent.parent.parent)}
    target = LockstepTarget(SETTINGS, directory=tmp_path, command=command, environment=environment)
    result = run(target, ["confluent", "kafka-python"], kills=6)
    assert result.verdict.kinds["duplicate"] > 0
    assert not result.sound
