"""A short cut of the campaign: a hundred of each kind leave nothing; a planted leak is seen."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.broker.server import Broker
from tests.broker.wire import Client
from tests.campaigns import churn
from tests.support.cases import each_case


@pytest.fixture(autouse=True)
def _all_is_counted() -> Iterator[None]:
    """Also what was there when the tests were collected (`conftest.pytest_collection`)."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("kind", list(churn.KINDS))
async def test_a_hundred_that_came_and_went_leave_nothing(tmp_path: Path, kind: str) -> None:
    figures = await churn.churn(kind, 100, tmp_path)
    assert churn.problems(figures) == []


@each_case("bound", list(churn.BOUNDS))
def test_a_bound_is_of_a_class_of_the_product_and_its_collection(bound: str) -> None:
    name, _, collection = bound.partition(".")
    classes = {each for each in object.__subclasses__() if each.__module__.startswith(churn.PRODUCT)}
    classes |= {each for each in tuple.__subclasses__() if each.__module__.startswith(churn.PRODUCT)}
    (found,) = (each for each in classes if each.__name__ == name)
    assert (
        not collection
        or collection in vars(found).get("__slots__", ())
        or collection in inspect.getsource(found)
    )


async def test_a_planted_leak_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def leak(broker: Broker, client: Client, name: str) -> None:
        broker.assembly.cluster.cached_responses[(name,)] = None  # type: ignore[assignment]

    monkeypatch.setitem(churn.KINDS, "leak", leak)
    found = churn.problems(await churn.churn("leak", 100, tmp_path))
    assert any("MetadataCache.cached_responses" in each for each in found), found
