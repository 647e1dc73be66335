"""What a document names, looked up in the code."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def has(path: Path, name: str) -> bool:
    """Is this dotted name defined in the module?"""
    body = _parsed(path).body
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [node for node in body if isinstance(node, kinds) and node.name == part]
        if not found:
            return False
        body = found[0].body
    return True
