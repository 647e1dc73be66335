"""The pages of the metrics listener: /metrics, /health, /ping, /buildinfo, and / with links to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from lockstep.broker.metrics.http import Page, index
from lockstep.build_info import VERSION, commit
from lockstep.extension import load

NAME: Final = "lockstep"
LINKS: Final = {
    "/metrics": "numbers for Prometheus",
    "/health": "whether this node serves all its log groups, and if not, why",
    "/ping": "whether the process runs",
    "/buildinfo": "which version runs",
}


def pages(
    node_id: int, unhealthy_reason: Callable[[], str], collectors: Iterable[Collector]
) -> Mapping[str, Callable[[], Page]]:
    """By path. Args: unhealthy_reason: why the node does not serve, "" where it does."""
    registry = CollectorRegistry()  # not the library's global one: there may be several brokers in a process
    for each in collectors:
        registry.register(each)
    ProcessCollector(registry=registry)

    def metrics() -> Page:
        return Page(HTTPStatus.OK, generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)

    def health() -> Page:
        reason = unhealthy_reason()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
        return Page(status, f"{reason or 'ok'}\n".encode())

    return {
        "/": lambda: index(f"Lockstep node {node_id}", LINKS),
        "/metrics": metrics,
        "/health": health,
        "/ping": _ping,
        "/buildinfo": _build_info,
    }


def _ping() -> Page:
    return Page(HTTPStatus.OK, b"pong\n")


def _build_info() -> Page:
    body = json.dumps({"name": NAME, "version": VERSION, "commit": commit(), "runs": load()[1]}) + "\n"
    return Page(HTTPStatus.OK, body.encode(), "application/json")
