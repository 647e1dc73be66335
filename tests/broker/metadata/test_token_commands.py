"""broker/metadata/token_commands.py: the form of the commands, and what none of them may look like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.broker.metadata.token_commands import apply_token_command, token_command
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.security.delegation_tokens import (
    DelegationToken,
    DelegationTokenCache,
    NewExpiry,
    Removal,
)
from lockstep.storage.types import CorruptLog
from tests.support.cases import each_case

ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
TOKEN = DelegationToken("id", ALICE, BOB, (BOB,), 1, 3, 2)


def test_a_token_is_put_renewed_and_removed() -> None:
    tokens = DelegationTokenCache()
    apply_token_command(tokens, token_command(TOKEN))
    assert dict(tokens) == {"id": TOKEN}
    apply_token_command(tokens, token_command(NewExpiry("id", 3)))
    assert dict(tokens) == {"id": replace(TOKEN, expiry_ms=3)}
    apply_token_command(tokens, token_command(Removal("id")))
    assert dict(tokens) == {}


def test_what_is_about_an_unknown_token_has_no_effect() -> None:
    tokens = DelegationTokenCache()
    for change in (NewExpiry("id", 3), Removal("id")):
        apply_token_command(tokens, token_command(change))
    assert dict(tokens) == {}


def test_its_form() -> None:
    assert token_command(TOKEN) == {
        "do": "token",
        "token": "id",
        "owner": ["User", "alice"],
        "requester": ["User", "bob"],
        "renewers": [["User", "bob"]],
        "issued": 1,
        "max": 3,
        "expires": 2,
    }


@each_case(
    "changed",
    [{"token": 5}, {"owner": ["User"]}, {"renewers": [["User", 5]]}, {"renewers": ["bob"]}, {"do": "other"}],
    ids=repr,
)
def test_other_forms_are_corruption(changed: dict[str, object]) -> None:
    with pytest.raises(CorruptLog):
        apply_token_command(DelegationTokenCache(), token_command(TOKEN) | changed)
