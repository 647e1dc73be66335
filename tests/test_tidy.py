"""The tree keeps the house rules, and each rule of `tests/tidy.py` catches a planted violation."""

from __future__ import annotations

import pytest

from tests import tidy
from tests.support.cases import each_case

OK = '"""A module."""\n'


@pytest.mark.tier(name="rest")  # `make test` runs `make check` first
def test_the_tree_is_tidy() -> None:
    assert tidy.findings() == []


@each_case(
    ("name", "text", "words"),
    [
        ("broker/long.py", OK + "x = 1\n" * 549, "lines, at most 549"),
        ("tests/long.py", OK + "x = 1\n" * 600, "lines, at most 600"),
        ("broker/f.py", OK + "def f() -> None:\n" + "    g()\n" * 60, "f() has 61 lines"),
        ("broker/f.py", OK + "async def f() -> None:\n" + "    g()\n" * 60, "f() has 61 lines"),
        (
            "broker/f.py",
            OK + "class C:\n    def f(self) -> None:\n" + "        g()\n" * 60,
            "f() has 61 lines",
        ),
        ("broker/m.py", "import sys\n", "no module docstring"),
        ("broker/manager.py", OK, "named after what it owns"),
        ("broker/m.py", OK + "class FetchHelper:\n    pass\n", "class FetchHelper"),
        ("broker/m.py", OK + "class HelperThings:\n    pass\n", "class HelperThings"),
        ("broker/m.py", OK + "class LogImpl:\n    pass\n", "class LogImpl"),
        ("broker/m.py", OK + "class TimeUtils:\n    pass\n", "class TimeUtils"),
        ("broker/utils.py", OK, "named after what it owns"),
        ("protocol/m.py", OK + "import asyncio\n", "imports asyncio"),
        ("protocol/records/m.py", OK + "from os import path\n", "imports os"),
        ("storage/raft/core.py", OK + "def f() -> None:\n    import time\n    time.time()\n", "imports time"),
        ("storage/raft/core.py", OK + "import logging.handlers\n", "imports logging.handlers"),
        ("storage/log/format.py", OK + "import threading\n", "imports threading"),
        ("broker/m.py", OK + "from tests.sim import faces\n", "the product imports tests.sim"),
        ("lockstep/demo/m.py", OK + "def f() -> None:\n    import bench\n", "the product imports bench"),
        ("spark_connector/m.py", OK + "import compat_tests.targets\n", "imports compat_tests.targets"),
    ],
)
def test_a_planted_python_violation_is_caught(name: str, text: str, words: str) -> None:
    assert any(words in line for line in tidy.python_findings(name, text))


@each_case(
    ("name", "text"),
    [
        ("broker/empty/__init__.py", ""),
        ("broker/f.py", OK + "import asyncio\nimport os\n"),
        ("broker/f.py", OK + "from lockstep import testing\nfrom lockstep.testing import tests\n"),
        ("compat_tests/f.py", OK + "import bench.settings\nimport tests.tidy\n"),
        ("storage/log/data_log.py", OK + "import os\nimport threading\n"),
        ("broker/f.py", OK + "def f() -> None:\n" + "    g()\n" * 59),
        ("broker/f.py", OK + "class Implicit:\n    pass\n\n\nclass ReplicaManager:\n    pass\n"),
    ],
)
def test_what_is_allowed_is_not_reported(name: str, text: str) -> None:
    assert list(tidy.python_findings(name, text)) == []


def test_what_a_pure_module_imports_by_way_of_others_is_caught() -> None:
    texts = {
        "broker/produce/appender.py": OK
        + "from lockstep.storage import log_group\nfrom lockstep.storage.types import Buffer\n",
        "storage/log_group.py": OK + "import logging\nfrom lockstep.storage.replica import Replica\n",
        "storage/replica.py": OK + "def f() -> None:\n    import time\n",
        "storage/types.py": OK,
    }
    assert list(tidy.reach_findings(texts)) == [
        "broker/produce/appender.py: a pure module imports time by way of "
        "storage/log_group.py, storage/replica.py"
    ]
    only_types = "if TYPE_CHECKING:\n    from lockstep.storage.log_group import LogGroup\n"
    texts["broker/produce/appender.py"] = OK + "from lockstep.storage.types import Buffer\n" + only_types
    assert list(tidy.reach_findings(texts)) == []


@each_case(
    "line",
    [
        "data in " + "/".join(("", "root", "lockstep", "data")),
        "cd " + "/".join(("", "home", "ann", "lockstep")),
        "open(" + repr("/".join(("", "work", "main"))) + ")",
        "https://files.python" + "hosted.org/packages/x.whl",
        "https://py" + "pi.org/project/x",
        "https://repo1.maven" + ".apache/maven2",
        "--extra-index" + "-url=https://mirror.example/simple",
        "--find" + "-links /srv/wheels",
    ],
)
def test_a_planted_trace_of_a_machine_or_registry_is_caught(line: str) -> None:
    assert list(tidy.text_findings("docs/page.md", "fine\n" + line + "\n"))


@each_case(
    "line",
    [
        '<project xmlns="http://maven.apache.org/POM/4.0.0">',
        "pip-compile --generate-hashes --no-emit-find-links --no-emit-index-url",
        "url = 'https://example.org/a/work-of-art'",
        "frame/work/path",
    ],
)
def test_harmless_text_is_not_reported(line: str) -> None:
    assert list(tidy.text_findings("docs/page.md", line)) == []


def test_a_target_missing_from_help_is_caught() -> None:
    makefile = ".PHONY: help serve\nhelp: ## list\nserve: x ## run\nhidden:\n\ttrue\nVENV := x\n"
    found = list(tidy.makefile_findings(makefile, "  make help   list\n  make serve   run\n"))
    assert found == ["Makefile: hidden is not in `make help`", "Makefile: hidden is not .PHONY"]


def test_a_dead_link_is_caught_and_a_living_one_is_not() -> None:
    text = "[a](docs/a.md) [b](docs/gone.md#part) [c](https://example.org) [d](docs) [e](../up.md)"
    found = list(tidy.link_findings("README.md", text, {"docs/a.md"}))
    assert found == [
        "README.md: link to docs/gone.md, which is not there",
        "README.md: link to ../up.md, which is not there",
    ]


def test_a_module_that_its_package_does_not_name_is_caught() -> None:
    names = ("__init__.py", "group.py", "types.py", "gaps.py", "log/scan.py", "page.md")
    files = {f"storage/{name}" for name in names}
    text = "`group` asks, `types.Frame` is a word; gaps are read over, `log/` is below"
    found = list(tidy.listing_findings("storage", text, files))
    assert found == ["storage/__init__.py: gaps is not named"]
    assert list(tidy.listing_findings("storage", text + ", by `gaps`", files)) == []


def test_a_file_that_a_docstring_names_is_there() -> None:
    files = {"broker/a.py", "broker/room/b.py", "storage/c.py"}
    text = "`b.py`, `a.py`, `room/b.py`, `storage/c.py`; as `a.py:Name`"
    assert list(tidy.mention_findings("broker/room/b.py", text, files)) == []
    found = list(tidy.mention_findings("broker/room/b.py", "one\n`c.py` and `room/d.py`", files))
    assert found == [
        "broker/room/b.py:2: `c.py` is not there",
        "broker/room/b.py:2: `room/d.py` is not there",
    ]
