"""The metadata version: every command has one, and it is known what a request needs."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from types import ModuleType

import pytest

from lockstep.broker.metadata import metadata_image, metadata_version, quota_commands, token_commands
from lockstep.broker.metadata.metadata_image import MetadataImage, cluster_command, remove_node_command
from lockstep.broker.metadata.metadata_version import (
    COMMAND_VERSIONS,
    CONSUMER_GROUPS_VERSION,
    FEATURES,
    FIRST_RECORDED_VERSION,
    LATEST_VERSION,
    MAX_VERSION,
    UNREPORTED_VERSION,
    features_between,
    metadata_version_command,
    parse_reported,
    required_version,
    unsupported_text,
)
from lockstep.broker.metadata.quota_commands import quota_command
from tests.support.cases import each_case

CODECS = (metadata_image, metadata_version, quota_commands, token_commands)


def words(module: ModuleType) -> Iterator[str]:
    """Each value of the key "do" in a module's tables and patterns; a name is a constant of the module."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        values: list[ast.AST] = []
        if isinstance(node, ast.Dict):
            values = [v for k, v in zip(node.keys, node.values, strict=True) if is_do(k)]
        elif isinstance(node, ast.MatchMapping):
            values = [each for key, each in zip(node.keys, node.patterns, strict=True) if is_do(key)]
        for value in values:
            for each in ast.walk(value):
                if isinstance(each, ast.Constant):
                    yield str(each.value)
                elif isinstance(each, ast.Name) and each.id.isupper():
                    yield getattr(module, each.id)


def is_do(key: ast.AST | None) -> bool:
    return isinstance(key, ast.Constant) and key.value == "do"


def test_every_command_of_the_codecs_has_a_version_and_no_other_word_has_one() -> None:
    known = {word for module in CODECS for word in words(module)}
    assert {"cluster", "moved", "scram", "quota", "token_expiry", "metadata_version"} <= known, "found at all"
    assert known == set(COMMAND_VERSIONS)


def test_a_command_without_a_version_cannot_be_recorded() -> None:
    with pytest.raises(KeyError):
        required_version([{"do": "of a later version"}])


def test_versions_that_were_given_do_not_change() -> None:
    """Nodes that run have them."""
    assert {
        version: sorted(k for k, v in COMMAND_VERSIONS.items() if v == version) for version in range(2, 10)
    } == {
        2: ["configs"],
        3: ["gone", "node", "place"],
        4: ["move", "moved"],
        5: ["scram"],
        6: ["acl", "acl_gone"],
        7: ["token", "token_expiry", "token_gone"],
        8: ["quota"],
        9: ["metadata_version"],
    }
    assert (UNREPORTED_VERSION, FIRST_RECORDED_VERSION) == (4, 9)
    assert max(COMMAND_VERSIONS.values()) + 1 == CONSUMER_GROUPS_VERSION
    assert LATEST_VERSION == CONSUMER_GROUPS_VERSION < MAX_VERSION


@each_case(
    ("commands", "version"),
    [
        ([], 0),
        ([cluster_command("c")], 1),
        ([cluster_command("c"), remove_node_command(1)], 3),
        ([remove_node_command(1), quota_command((("user", "a"),), "k", 1.0), cluster_command("c")], 8),
        ([metadata_version_command(9)], 0),
        ([metadata_version_command(9), quota_command((("user", "a"),), "k", 1.0)], 0),
        ([quota_command((("user", "a"),), "k", 1.0), metadata_version_command(9)], 8),
        ([metadata_version_command(7), quota_command((("user", "a"),), "k", 1.0)], 8),
    ],
)
def test_what_commands_need(commands: list[dict[str, object]], version: int) -> None:
    assert required_version(commands) == version


@each_case(("reported", "version"), [(None, UNREPORTED_VERSION), (1, 1), (MAX_VERSION - 1, MAX_VERSION - 1)])
def test_what_a_node_reports(reported: object, version: int) -> None:
    assert parse_reported(reported) == version


@each_case("reported", [0, -1, MAX_VERSION, "9", 9.0, [9]])
def test_what_is_no_version(reported: object) -> None:
    with pytest.raises(ValueError, match="metadata version"):
        parse_reported(reported)


def test_features_by_name() -> None:
    assert features_between(4, 9) == ["SCRAM users", "ACLs", "delegation tokens", "client quotas"]
    assert features_between(6, 8) == ["delegation tokens", "client quotas"]
    assert features_between(9, 9) == []
    assert features_between(9, LATEST_VERSION) == ["consumer groups"]
    assert FEATURES.keys() <= {*COMMAND_VERSIONS.values(), CONSUMER_GROUPS_VERSION}


def test_the_error_of_a_node_that_is_too_old_names_both_versions() -> None:
    assert "version 12, this Lockstep supports up to 9: start a newer" in unsupported_text(12, 9)


def test_a_state_has_the_version_of_what_it_holds() -> None:
    image = MetadataImage()
    assert image.metadata_version == json.loads(image.snapshot(0))["version"] == UNREPORTED_VERSION
