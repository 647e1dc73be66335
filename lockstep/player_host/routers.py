"""The router that a configuration selects."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.player.core.router import Router
from lockstep.player.routing.broadcast import BroadcastRouter
from lockstep.player.routing.function import NoSuchFunction, load
from lockstep.player.routing.header import HeaderSelector
from lockstep.player.routing.key_hash import KeyHashSelector
from lockstep.player.routing.record_router import RecordRouter
from lockstep.player.routing.selector import TargetSelector
from lockstep.player_host.config import ByFunction, ByHeader, ByKey, PlayerConfigError, Route, ToAll
from lockstep.protocol.lock_words import PREFIX


def router_of(route: Route, targets: Mapping[str, object]) -> Router:
    """Raises PlayerConfigError: a function that is not there.

    Args:
        targets: the present targets, by name, at each call of the router.
    """
    if isinstance(route, ToAll):
        return BroadcastRouter(targets if route.targets is None else route.targets)
    return RecordRouter(_selector_of(route))


def unroutable_reason(route: Route, locks: str | None) -> str:
    """The reason why no new record of a topic can name its targets by the route; empty where one can.

    Args:
        locks: the topic's `lockstep.locks`; None where the broker knows of no such setting.
    """
    if not isinstance(route, ByHeader) or not route.header.startswith(PREFIX) or locks in (None, "ignore"):
        return ""
    who = ", ".join(route.otherwise) or "no target"
    return (
        f"the topic has lockstep.locks={locks}, so no new record can have the header {route.header}, and "
        f"all go to {who}: route.header has to be another name there"
    )


def _selector_of(route: ByHeader | ByKey | ByFunction) -> TargetSelector:
    match route:
        case ByHeader(otherwise, header):
            return HeaderSelector(otherwise, header)
        case ByKey(targets, without_key):
            return KeyHashSelector(targets, without_key)
        case ByFunction(function):
            try:
                return load(function)
            except NoSuchFunction as error:
                raise PlayerConfigError("route.function", str(error)) from error
