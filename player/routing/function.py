"""The selector that is a user's function.

Owns: its name, `module:name` (a name may have dots), and the errors where it cannot be loaded. It is loaded
once; `record_router.py` checks its results.
"""

from __future__ import annotations

from importlib import import_module

from lockstep.player.routing.selector import TargetSelector


class NoSuchFunction(ValueError):
    """There is no callable of that name."""


def load(name: str) -> TargetSelector:
    """Returns the function `module:name`. Raises NoSuchFunction."""
    module_name, colon, path = name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise NoSuchFunction(f"{name!r} is not of the form module:name")
    try:
        found: object = import_module(module_name)
    except Exception as error:  # any error of the module's own code
        raise NoSuchFunction(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NoSuchFunction(f"{module_name} has no {path}") from None
    if not callable(found):
        raise NoSuchFunction(f"{name} is a {type(found).__name__}, which cannot be called")
    chosen: TargetSelector = found
    return chosen
