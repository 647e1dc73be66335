"""One test for a table of cases: it runs all of them, and its failure names every case that failed.

`each_case` replaces `pytest.mark.parametrize` for a test whose cases share nothing that one of
them changes: fixtures are made once for the whole table. Decorators stack, as pytest's do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import iscoroutinefunction, signature
from typing import Any

import pytest

Test = Callable[..., Any]


def each_case(
    names: str | Sequence[str],
    cases: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> Callable[[Test], Test]:
    """Run a test once for each case of a table.

    `names` are parameters of the test; a case has one value for each of them, and is that value where there
    is one name. `ids` names the cases in a failure: a function of a value, or one name for each case.
    """
    fields = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    is_single = isinstance(names, str) and len(fields) == 1
    ids = ids if ids is None or callable(ids) else list(ids)
    table = [_case(fields, each, position, is_single, ids) for position, each in enumerate(cases)]

    def decorate(test: Test) -> Test:
        shape = signature(test)
        missing = [each for each in fields if each not in shape.parameters]
        if missing or not table:
            raise ValueError(f"{test.__name__} has no parameter {missing}" if missing else "no cases")

        async def run_each_async(**fixtures: Any) -> None:
            failures = _Failures()
            for name, values in table:
                with failures.of(name):
                    await test(**fixtures, **values)
            failures.raise_all(len(table))

        def run_each(**fixtures: Any) -> None:
            failures = _Failures()
            for name, values in table:
                with failures.of(name):
                    test(**fixtures, **values)
            failures.raise_all(len(table))

        whole: Any = run_each_async if iscoroutinefunction(test) else run_each
        whole.__name__, whole.__qualname__ = test.__name__, test.__qualname__
        whole.__module__, whole.__doc__ = test.__module__, test.__doc__
        whole.__annotations__ = {k: v for k, v in test.__annotations__.items() if k not in fields}
        kept = [each for name, each in shape.parameters.items() if name not in fields]
        whole.__signature__ = shape.replace(parameters=kept)
        whole.pytestmark = list(getattr(test, "pytestmark", []))
        whole.each_case_of = test
        return whole  # type: ignore[no-any-return]

    return decorate


def check_each(
    cases: Iterable[Any], check: Callable[..., None], name: Callable[[Any], object] = repr
) -> None:
    """Call `check` with the values of each case, as `each_case` does, where the cases hang on a fixture."""
    failures, table = _Failures(), list(cases)
    for each in table:
        values = each if isinstance(each, tuple) else (each,)
        with failures.of("-".join(str(name(value)) for value in values)):
            check(*values)
    assert table, "no cases"
    failures.raise_all(len(table))


def _case(
    fields: list[str], case: Any, position: int, is_single: bool, ids: Any
) -> tuple[str, dict[str, Any]]:
    """A case's name, and the values of its parameters."""
    name = None
    marks = getattr(case, "marks", None)
    if marks:
        raise ValueError("a case of a table has no marks")
    if marks is not None:  # a pytest.param
        name, values = case.id, list(case.values)
    else:
        values = [case] if is_single else list(case)
    if len(values) != len(fields):
        raise ValueError(f"case {position} has {len(values)} values for {len(fields)} names")
    if name is None and callable(ids):
        name = "-".join(str(ids(each)) for each in values)
    elif name is None:
        name = ids[position] if ids is not None else ", ".join(map(_shown, values))
    return f"{position} ({name})", dict(zip(fields, values, strict=True))


def _shown(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class _Failures:
    """What failed so far, by case."""

    def __init__(self) -> None:
        self._all: list[tuple[str, BaseException]] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Note a failure, and continue with the next case."""
        try:
            yield
        except pytest.skip.Exception as error:
            raise AssertionError(f"case {name} skips, which a case of a table may not") from error
        except (Exception, pytest.fail.Exception) as error:
            self._all.append((name, error))

    def raise_all(self, count: int) -> None:
        """Raise what failed: the case's own exception where there is one, otherwise a group of them."""
        for name, error in self._all:
            error.add_note(f"case {name} of {count}")
        if len(self._all) == 1:
            raise self._all[0][1]
        if self._all:
            names = "; ".join(name for name, _ in self._all)
            text = f"{len(self._all)} of {count} cases failed: {names}"
            raise BaseExceptionGroup(text, [error for _, error in self._all])
