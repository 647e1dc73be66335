"""The Java client's settings as kafka-python and aiokafka name and write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def python_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    words = {name.replace(".", "_"): value for name, value in settings.items()}
    if words.get("compression_type") == "none":
        words["compression_type"] = None
    if words.get("acks", "all") != "all":
        words["acks"] = int(words["acks"])
    return words
