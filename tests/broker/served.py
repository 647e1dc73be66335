"""The APIs that the broker serves, read from its handlers' declarations without starting it."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.broker import assembly  # noqa: F401  imports all handlers
from lockstep.broker.requests.request_context import RequestHandler


def _declared(kind: type[RequestHandler]) -> Iterator[type[RequestHandler]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("lockstep."):
            if hasattr(each, "api_key"):
                yield each
            yield from _declared(each)


def served_versions() -> dict[int, tuple[int, int]]:
    """API key -> first and last version served, of Kafka's APIs."""
    return {int(each.api_key): each.versions for each in _declared(RequestHandler) if each.is_advertised}
