"""broker/metadata/quota_commands.py: the form of the commands, and what none of them may look like."""

from __future__ import annotations

import pytest

from lockstep.broker.metadata.quota_commands import apply_quota_command, quota_command
from lockstep.broker.quotas.quota_entity import QuotaEntity
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.storage.types import CorruptLog
from tests.support.cases import each_case

BOTH: QuotaEntity = (("user", "alice"), ("client-id", None))


def test_a_quota_is_set_changed_and_removed() -> None:
    table = QuotaTable()
    apply_quota_command(table, quota_command(BOTH, "producer_byte_rate", 5.0))
    apply_quota_command(table, quota_command(BOTH, "producer_byte_rate", 7.0))
    apply_quota_command(table, quota_command(BOTH, "consumer_byte_rate", 1.0))
    assert dict(table.items()) == {BOTH: {"producer_byte_rate": 7.0, "consumer_byte_rate": 1.0}}
    apply_quota_command(table, quota_command(BOTH, "producer_byte_rate", None))
    assert dict(table.items()) == {BOTH: {"consumer_byte_rate": 1.0}}
    apply_quota_command(table, quota_command(BOTH, "consumer_byte_rate", None))
    apply_quota_command(table, quota_command(BOTH, "consumer_byte_rate", None))
    assert len(table) == 0


def test_its_form() -> None:
    assert quota_command(BOTH, "producer_byte_rate", 5.0) == {
        "do": "quota",
        "entity": [["user", "alice"], ["client-id", None]],
        "key": "producer_byte_rate",
        "value": 5.0,
    }
    assert "value" not in quota_command(BOTH, "producer_byte_rate", None)


def test_whole_numbers_and_another_order() -> None:
    table = QuotaTable()
    command = {"do": "quota", "entity": [["client-id", None], ["user", "alice"]], "key": "k", "value": 5}
    apply_quota_command(table, command)
    assert dict(table.items()) == {BOTH: {"k": 5.0}}


@each_case(
    "command",
    [
        {"do": "quota"},
        {"do": "quota", "entity": [["user", "a"]], "key": 5},
        {"do": "quota", "entity": "user", "key": "k"},
        {"do": "quota", "entity": [], "key": "k", "value": 1.0},
        {"do": "quota", "entity": [["user"]], "key": "k"},
        {"do": "quota", "entity": [["user", 5]], "key": "k"},
        {"do": "quota", "entity": [["group", "g"]], "key": "k"},
    ],
    ids=repr,
)
def test_other_forms_are_corruption(command: dict[str, object]) -> None:
    with pytest.raises(CorruptLog):
        apply_quota_command(QuotaTable(), command)
