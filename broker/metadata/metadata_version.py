"""The metadata version: the table of the commands of group 0, and the first version of each.

Pure. Owns: `COMMAND_VERSIONS`, beside the codecs (`metadata_image.py`, `quota_commands.py`,
`token_commands.py`), and the command that records a version. The number is that of the cluster's part of a
checkpoint, too. A command of a later version has a higher number here; a test fails if one has no entry.
Source: Kafka's MetadataVersion and FeatureLevelRecord (KIP-584, KIP-778).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

METADATA_VERSION: Final = "metadata_version"
COMMAND_VERSIONS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("cluster", "create", "ready", "delete", "deleted"), 1),
    **dict.fromkeys(("grow", "grown", "topic_configs", "producer_ids"), 1),
    "configs": 2,
    **dict.fromkeys(("node", "gone", "place"), 3),
    **dict.fromkeys(("move", "moved"), 4),
    "scram": 5,
    **dict.fromkeys(("acl", "acl_gone"), 6),
    **dict.fromkeys(("token", "token_expiry", "token_gone"), 7),
    "quota": 8,
    METADATA_VERSION: 9,
}
"""Each command's name, and the first metadata version that has it."""
FEATURES: Final[Mapping[int, str]] = {
    5: "SCRAM users",
    6: "ACLs",
    7: "delegation tokens",
    8: "client quotas",
    10: "consumer groups",
}
"""The feature that each version added, as error texts and the status name it."""
UNREPORTED_VERSION: Final = 4
"""Lockstep 0.2.0's: of a node that reports none, and of a cluster in which none is recorded."""
FIRST_RECORDED_VERSION: Final = COMMAND_VERSIONS[METADATA_VERSION]
"""Lower ones are never recorded: the nodes of them do not know the command."""
CONSUMER_GROUPS_VERSION: Final = 10
"""The first version whose nodes replay the records of consumer groups (KIP-848): a node of an earlier one
passes them over, and would serve a state without them later. It adds no command."""
LATEST_VERSION: Final = max(*COMMAND_VERSIONS.values(), *FEATURES)
"""The highest that this Lockstep supports."""
MAX_VERSION: Final = 1 << 15
"""LIMIT. What other nodes report is a number below this."""


def metadata_version_command(version: int) -> dict[str, object]:
    """Every node of the cluster supports this version from now on."""
    return {"do": METADATA_VERSION, "version": version}


def required_version(commands: Iterable[Mapping[str, Any]]) -> int:
    """The metadata version that a cluster needs for commands; one that records a version counts for those
    behind it, and needs none itself."""
    required = recorded = 0
    for command in commands:
        if command["do"] == METADATA_VERSION:
            recorded = max(recorded, command["version"])
        elif (version := COMMAND_VERSIONS[command["do"]]) > recorded:
            required = max(required, version)
    return required


def parse_reported(version: object) -> int:
    """The version that another node reports; one of an earlier Lockstep reports None. Raises ValueError."""
    if version is None:
        return UNREPORTED_VERSION
    if not isinstance(version, int) or not 0 < version < MAX_VERSION:
        raise ValueError(f"a metadata version of {version!r:.40}")
    return version


def features_between(version: int, higher: int) -> list[str]:
    """The features that a cluster of the lower version does not have yet."""
    return [feature for since, feature in FEATURES.items() if version < since <= higher]


def unsupported_text(version: int | str, supported: int) -> str:
    """The error of a node that meets a higher version than its own."""
    return (
        f"the cluster's metadata have version {version}, this Lockstep supports up to {supported}: start a "
        "newer Lockstep, with the same data directory"
    )
