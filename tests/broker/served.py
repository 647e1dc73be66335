"""The APIs that the broker serves, read from its handlers' declarations without starting it."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.broker import assembly
from lockstep.broker.requests.request_context import ModuleHandler, RequestHandler


def _declared(kind: type[RequestHandler]) -> Iterator[type[RequestHandler]]:
    for each in kind.__subclasses__():
        if each is not ModuleHandler and each.__module__.startswith("lockstep."):
            if hasattr(each, "api_key"):
                yield each
            yield from _declared(each)


def served_versions() -> dict[int, tuple[int, int]]:
    """API key -> first and last version served, of Kafka's APIs."""
    handlers: list[type[RequestHandler] | RequestHandler] = list(_declared(RequestHandler))
    handlers += assembly.module_handlers()
    return {int(each.api_key): each.versions for each in handlers if each.is_advertised}
