"""What a scraper does: blocking requests from a thread, and the text as numbers."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Answer(NamedTuple):
    status: int
    content_type: str
    body: str


def _get(url: str) -> Answer:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return Answer(response.status, response.headers["Content-Type"], response.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers["Content-Type"], error.read().decode())


async def get(port: int, path: str) -> Answer:
    return await asyncio.to_thread(_get, f"http://127.0.0.1:{port}{path}")


async def head(port: int, path: str) -> tuple[int, int]:
    """Status and size of the body of a HEAD."""

    def ask() -> tuple[int, int]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="HEAD")
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, len(response.read())

    return await asyncio.to_thread(ask)


def numbers(text: str) -> dict[str, float]:
    """By the sample as it is written: `lockstep_log_group_term{log_group="1"}`."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


async def scrape(port: int) -> dict[str, float]:
    answer = await get(port, "/metrics")
    assert answer.status == 200, answer
    return numbers(answer.body)
