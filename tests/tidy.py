"""The house rules a linter has no rule for, as functions from text to findings (`python -m tests.tidy`).

Owns: sizes, banned names, module docstrings, what the pure modules may import, also by way of others, that
the product imports no test and no benchmark, no trace of one machine or of a package registry in tracked
text, `make help` lists every target, the documents' links and the files that docstrings name are there,
packages that list their modules list all of them. Each rule is shown to catch a planted violation in
`test_tidy.py`. Does not: style and complexity (ruff), types (mypy), direction of imports (import-linter).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 600
MAX_PRODUCT_FILE_LINES = 549
MAX_FUNCTION_LINES = 60
BANNED_NAME = re.compile(r"(Helper|Util|Utils|Impl)(?![a-z])")
BANNED_MODULES = frozenset({"util", "utils", "helper", "helpers", "manager", "impl", "misc", "common"})
PURE_FORBIDDEN = frozenset(
    {
        "asyncio",
        "socket",
        "os",
        "time",
        "random",
        "logging",
        "threading",
        "uvloop",
        "grpc",
        "select",
        "secrets",
    }
)
PRODUCT = ("broker/", "lockstep/", "player/", "protocol/", "spark_connector/", "storage/")
WITHIN_LOCKSTEP = ("broker/", "player/", "protocol/", "storage/")
"""Packages of `lockstep`, by links of these names in its folder."""
OUTSIDE_NAMES = frozenset({"broker", "player", "protocol", "storage"})
"""Nothing is imported by these names: a module would exist twice, and users have modules of these names."""
BESIDE_THE_PRODUCT = frozenset({"bench", "compat_tests", "conftest", "tests"})
"""What is not installed with it, so that nothing of it may be imported there, not even within a function."""
LOGS_BY_ITSELF = frozenset({"logging"})
"""What a module that a pure one imports may import: it may write a log, but no decision hangs on that."""
PURE = (
    "player/core/",
    "player/routing/",
    "player/source/batch_entries.py",
    "player/source/log_id.py",
    "player/target/guard.py",
    "player/target/target_position.py",
    "player/target/records.py",
    "player/transport/addresses.py",
    "player/transport/frames.py",
    "player/transport/wire.py",
    "protocol/",
    "storage/raft/",
    "storage/compaction_rules.py",
    "storage/log/batch_index.py",
    "storage/log/index_file.py",
    "storage/log/batch_runs.py",
    "storage/log/format.py",
    "storage/log/marker.py",
    "storage/log/batch_flags.py",
    "storage/log/recent_frames.py",
    "storage/log/run_table.py",
    "storage/log/segment_scan.py",
    "storage/log/tail_cache.py",
    "storage/control_partition.py",
    "storage/state_machines.py",
    "storage/group_options.py",
    "storage/open_frame.py",
    "storage/peers/envelope.py",
    "storage/peers/peer_identity.py",
    "storage/partition.py",
    "storage/aborted_transactions.py",
    "storage/types.py",
    "storage/waiters.py",
    "broker/authorization/acl.py",
    "broker/authorization/acl_cache.py",
    "broker/produce/appender.py",
    "broker/produce/batch_validation.py",
    "broker/produce/batch_times.py",
    "broker/node/first_start.py",
    "broker/peers/in_sync_replicas.py",
    "broker/peers/metadata_versions.py",
    "broker/peers/node_status.py",
    "broker/peers/node_registry.py",
    "broker/metadata/metadata_image.py",
    "broker/metadata/metadata_version.py",
    "broker/metadata/token_commands.py",
    "broker/coordination/key_hash.py",
    "broker/fetch/fetch_session.py",
    "broker/metadata/lowest_sequences.py",
    "broker/groups/classic_group.py",
    "broker/groups/consumer/assignor.py",
    "broker/groups/consumer/consumer_group.py",
    "broker/groups/consumer/consumer_group_description.py",
    "broker/groups/consumer/consumer_group_records.py",
    "broker/groups/consumer/consumer_groups_state.py",
    "broker/groups/consumer/current_assignment_builder.py",
    "broker/groups/consumer/heartbeat.py",
    "broker/groups/consumer/membership.py",
    "broker/groups/consumer/offset_checks.py",
    "broker/groups/consumer/range_assignor.py",
    "broker/groups/consumer/request_checks.py",
    "broker/groups/consumer/subscribed_regex.py",
    "broker/groups/consumer/subscribed_topics.py",
    "broker/groups/consumer/target_assignment.py",
    "broker/groups/consumer/uniform_assignor.py",
    "broker/groups/group_records.py",
    "broker/groups/subscription.py",
    "broker/membership/transfer_backoff.py",
    "broker/membership/placement.py",
    "broker/membership/next_change.py",
    "broker/membership/group_view.py",
    "broker/metrics/exposition.py",
    "broker/metrics/health.py",
    "broker/produce/producer_state.py",
    "broker/produce/recompression.py",
    "broker/metadata/quota_commands.py",
    "broker/quotas/",
    "broker/requests/errors.py",
    "broker/requests/kafka_principal.py",
    "broker/security/cipher_suites.py",
    "broker/security/delegation_tokens.py",
    "broker/security/distinguished_name.py",
    "broker/security/oauthbearer.py",
    "broker/security/plain.py",
    "broker/security/principal_rules.py",
    "broker/security/sasl_exchange.py",
    "broker/security/sasl_session.py",
    "broker/security/scram.py",
    "broker/security/scram_credentials.py",
    "broker/security/scram_users.py",
    "broker/security/token_validator.py",
    "broker/settings/dynamic_config.py",
    "broker/settings/group_config.py",
    "broker/settings/suggestions.py",
    "broker/metadata/topic_names.py",
    "broker/metadata/topic_validation.py",
    "broker/produce/marker_batches.py",
    "broker/transactions/id_pattern.py",
    "broker/transactions/transaction_records.py",
    "broker/transactions/transaction_state.py",
    "broker/transactions/transaction_rules.py",
    "lockstep/demo/bank/table.py",
    "lockstep/kafka_client/property_names.py",
    "lockstep/player_host/group_entries.py",
    "lockstep/supervisor/node_plan.py",
    "lockstep/supervisor/restart_policy.py",
    "lockstep/testing/memory_partition.py",
    "lockstep/transactions/draft.py",
    "lockstep/transactions/contention_backoff.py",
    "lockstep/transactions/monitor.py",
    "lockstep/transactions/records.py",
    "spark_connector/options.py",
    "spark_connector/sink/batch_encoder.py",
    "spark_connector/source/batch_decoder.py",
    "spark_connector/source/range_plan.py",
)
LISTING = (
    "bench/figures",
    "bench/growth",
    "bench/machine",
    "bench/player",
    "bench/spark",
    "broker",
    "broker/controller",
    "broker/controller/api",
    "broker/coordination",
    "broker/fetch",
    "broker/fetch/api",
    "broker/groups",
    "broker/groups/api",
    "broker/groups/consumer",
    "broker/maintenance",
    "broker/metadata",
    "broker/metadata/api",
    "broker/network",
    "broker/node",
    "broker/peers",
    "broker/process",
    "broker/produce",
    "broker/produce/api",
    "broker/quotas",
    "broker/requests",
    "broker/security",
    "broker/security/api",
    "broker/settings",
    "broker/staging",
    "broker/transactions",
    "broker/transactions/api",
    "lockstep/kafka_client",
    "lockstep/player_host",
    "player/core",
    "player/driver",
    "player/routing",
    "player/source",
    "player/target",
    "player/transport",
    "spark_connector/connection",
    "spark_connector/pipelines",
    "spark_connector/sink",
    "spark_connector/source",
    "storage",
    "storage/log",
    "storage/raft",
)
"""Packages whose docstring is the list of their modules, as ARCHITECTURE.md says."""

# Written in pieces, so that this file does not contain what it looks for.
_MACHINE_PATHS = "|".join(re.escape("/" + name + "/") for name in ("work", "root", "home", "Users"))
MACHINE_PATH = re.compile(rf"(?<![\w.}}>$*])(?:{_MACHINE_PATHS}|{re.escape('/tmp' + '/plan')})")
REGISTRY_HOST = re.compile(
    "|".join(
        (
            "py" + r"pi\.(?:org|io)",
            "python" + r"hosted\.org",
            r"\brepo\d*\.maven" + r"\.",
            r"maven\." + r"org/maven2",
            r"registry\." + r"npm",
            r"proxy\." + r"golang",
            r"crates\." + r"io",
            r"deb\." + r"debian",
            r"\bartifact" + r"ory\b",
            r"--(?:extra-)?index" + r"-url[ =]+\S*://",
            r"--find" + r"-links[ =]+\S*/",
        )
    ),
    re.IGNORECASE,
)
TEXT_SUFFIXES = frozenset({".bin", ".png", ".jar", ".class", ".gz", ".zst"})


def tracked_files(root: Path = ROOT) -> list[Path]:
    """Files git tracks or would track (so that a new file is judged before its first commit)."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = (root / name for name in sorted(set(listing.split("\0"))) if name)
    return [path for path in paths if path.is_file()]


def python_findings(name: str, text: str) -> Iterator[str]:
    """Everything wrong with one Python file; `name` is its path from the root, with slashes."""
    line_count = len(text.splitlines())
    max_lines = MAX_PRODUCT_FILE_LINES if name.startswith(PRODUCT) else MAX_FILE_LINES
    if line_count > max_lines:
        yield f"{name}: {line_count} lines, at most {max_lines}"
    tree = ast.parse(text, name)
    if tree.body and not ast.get_docstring(tree):
        yield f"{name}: no module docstring"
    if Path(name).stem in BANNED_MODULES:
        yield f"{name}: a module is named after what it owns, not {Path(name).stem!r}"
    for node in ast.walk(tree):
        yield from _node_findings(name, node)
    yield from _import_findings(name, tree, OUTSIDE_NAMES, "a module")
    if name.startswith(PURE):
        yield from _import_findings(name, tree, PURE_FORBIDDEN, "a pure module")
    if name.startswith(PRODUCT):
        yield from _import_findings(name, tree, BESIDE_THE_PRODUCT, "the product")


def _node_findings(name: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef) and BANNED_NAME.search(node.name):
        yield f"{name}:{node.lineno}: class {node.name}: no Helper, Util, Impl"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield f"{name}:{node.lineno}: {node.name}() has {lines} lines, at most {MAX_FUNCTION_LINES}"


def _import_findings(name: str, tree: ast.Module, forbidden: frozenset[str], who: str) -> Iterator[str]:
    for node in ast.walk(tree):
        for module, line in _imported(node):
            if module.split(".")[0] in forbidden:
                yield f"{name}:{line}: {who} imports {module}"


def _imported(node: ast.AST) -> list[tuple[str, int]]:
    """The modules that one statement imports, and its line."""
    if isinstance(node, ast.Import):
        return [(alias.name, node.lineno) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [(node.module or "", node.lineno)]
    return []


def _imported_at_run_time(tree: ast.AST) -> Iterator[str]:
    """All modules that a file imports but under `if TYPE_CHECKING:`; of `from a import b`, a and a.b."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield from (module for module, _ in _imported(node))
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from _imported_at_run_time(node)


def module_of(name: str) -> str:
    """The module of a file, by its path from the root: the product's folders are packages of `lockstep`."""
    dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"lockstep.{dotted}" if name.startswith(WITHIN_LOCKSTEP) else dotted


def reach_findings(texts: Mapping[str, str]) -> Iterator[str]:
    """What pure modules import by way of other modules of ours, the shortest way to each; `texts` has all of
    ours, by path.

    A package's own `__init__` on the way to a module counts only where it is named.
    """

    @cache
    def imports(name: str) -> list[str]:
        return list(dict.fromkeys(_imported_at_run_time(ast.parse(texts[name]))))

    files = {module_of(name): name for name in texts}
    for pure in sorted(name for name in texts if name.startswith(PURE)):
        ways, told = {pure: ""}, set[str]()
        for name in (ordered := [pure]):
            for module in imports(name):
                top = module.split(".")[0]
                if name != pure and top in PURE_FORBIDDEN - LOGS_BY_ITSELF - told:
                    told.add(top)
                    yield f"{pure}: a pure module imports {module} by way of {ways[name]}"
                if (file := files.get(module)) is not None and file not in ways:
                    ways[file] = file if name == pure else f"{ways[name]}, {file}"
                    ordered.append(file)


def mention_findings(name: str, text: str, exists: Iterable[str]) -> Iterator[str]:
    """Files in backticks that are not there: beside the file, in its package, or from the root."""
    known = set(exists)
    places = ("", f"{name.split('/')[0]}/", f"{Path(name).parent.as_posix()}/")
    for number, line in enumerate(text.splitlines(), 1):
        for mentioned in re.findall(r"`([\w/]+\.py)\b", line):
            if not known.intersection(place + mentioned for place in places):
                yield f"{name}:{number}: `{mentioned}` is not there"


def text_findings(name: str, text: str) -> Iterator[str]:
    """Traces of one machine or of a package registry in any tracked text."""
    for number, line in enumerate(text.splitlines(), 1):
        for rule, words in (
            (MACHINE_PATH, "a path of one machine"),
            (REGISTRY_HOST, "a package registry's host"),
        ):
            found = rule.search(line)
            if found:
                yield f"{name}:{number}: {words}: {found.group()!r}"


def makefile_findings(makefile: str, help_output: str) -> Iterator[str]:
    """Every target a person may type is listed by `make help`, and is phony."""
    targets = set(re.findall(r"^([a-zA-Z][\w-]*)\s*:(?!=)", makefile, re.MULTILINE))
    phony = {word for line in re.findall(r"^\.PHONY:(.*)$", makefile, re.MULTILINE) for word in line.split()}
    listed = set(re.findall(r"^\s*make ([\w-]+)\s+\S", help_output, re.MULTILINE))
    for target in sorted(targets - listed):
        yield f"Makefile: {target} is not in `make help`"
    for target in sorted(targets - phony):
        yield f"Makefile: {target} is not .PHONY"


def link_findings(name: str, text: str, exists: Iterable[str]) -> Iterator[str]:
    """Relative links of a Markdown file that lead nowhere; `exists` holds paths from the root."""
    known = set(exists)
    folder = Path(name).parent
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = _normal(folder / target)
        if path not in known and not any(other.startswith(path.rstrip("/") + "/") for other in known):
            yield f"{name}: link to {target}, which is not there"


def listing_findings(package: str, docstring: str, names: Iterable[str]) -> Iterator[str]:
    """Modules of a package that its docstring does not name in backticks; `names` are paths from the root."""
    named = {"__init__", *re.findall(r"`(\w+)[`.]", docstring)}
    for path in map(Path, sorted(names)):
        if path.parent.as_posix() == package and path.suffix == ".py" and path.stem not in named:
            yield f"{package}/__init__.py: {path.stem} is not named"


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def findings(root: Path = ROOT) -> list[str]:
    """All findings over the tracked tree, sorted."""
    found: list[str] = []
    paths = tracked_files(root)
    sources: dict[str, str] = {}
    names = {path.relative_to(root).as_posix() for path in paths}
    for path in paths:
        if path.suffix in TEXT_SUFFIXES:
            continue
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        found += text_findings(name, text)
        if path.suffix == ".py":
            found += python_findings(name, text)
            if name.startswith(PRODUCT):
                found += mention_findings(name, text, names)
            sources[name] = text
        if path.suffix == ".md":
            found += link_findings(name, text, names)
    found += reach_findings(sources)
    for package in LISTING:
        text = (root / package / "__init__.py").read_text(encoding="utf-8")
        found += listing_findings(package, ast.get_docstring(ast.parse(text)) or "", names)
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    listing = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=root, capture_output=True, check=True
    )
    found += makefile_findings(makefile, listing.stdout.decode())
    return sorted(found)


def main() -> int:
    """Prints what it found; the exit status says whether there was anything."""
    found = findings()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
