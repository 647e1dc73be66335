"""Compiles the modules of the hot paths with mypyc into `.native`: what `make native` runs (decision 29).

The sources are the packages' own files, unchanged. Needs a C compiler. `LOCKSTEP_NATIVE=1` then uses the
result; `lockstep/native.py` refuses it once a source has changed. Takes about a minute on one core.
"""

from __future__ import annotations

import ast
import glob
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lockstep.native import DIRECTORY, MANIFEST, SUFFIX, checksum, source_of  # noqa: E402

WANTED = (
    "lockstep/protocol/frame_reader.py",
    "lockstep/protocol/decoder_source.py",
    "lockstep/protocol/encoder_source.py",
    "lockstep/protocol/primitives.py",
    "lockstep/protocol/records/batch.py",
    "lockstep/storage/raft/*.py",
    "lockstep/storage/log/batch_index.py",
    "lockstep/storage/log/index_file.py",
    "lockstep/storage/log/batch_runs.py",
    "lockstep/storage/log/data_log.py",
    "lockstep/storage/log/format.py",
    "lockstep/storage/log/frame_reader.py",
    "lockstep/storage/log/marker.py",
    "lockstep/storage/log/batch_reader.py",
    "lockstep/storage/log/batch_verification.py",
    "lockstep/storage/log/partition_spans.py",
    "lockstep/storage/log/read_plan.py",
    "lockstep/storage/log/recent_frames.py",
    "lockstep/storage/log/run_table.py",
    "lockstep/storage/log/log_truncation.py",
    "lockstep/storage/log/segment_maintenance.py",
    "lockstep/storage/log/segments.py",
    "lockstep/storage/log/shared_reads.py",
    "lockstep/storage/log/tail_cache.py",
    "lockstep/storage/log/writer.py",
    "lockstep/storage/applier.py",
    "lockstep/storage/state_machines.py",
    "lockstep/storage/append_codec.py",
    "lockstep/storage/log_group.py",
    "lockstep/storage/open_frame.py",
    "lockstep/storage/partition.py",
    "lockstep/storage/read_ahead.py",
    "lockstep/storage/replica.py",
    "lockstep/storage/aborted_transactions.py",
    "lockstep/storage/types.py",
    "lockstep/storage/waiters.py",
    "lockstep/broker/produce/appender.py",
    "lockstep/broker/produce/batch_validation.py",
    "lockstep/broker/fetch/fetch_purgatory.py",
    "lockstep/broker/fetch/fetch_session.py",
    "lockstep/broker/produce/marker_batches.py",
)
LEFT_OUT = {
    "lockstep/broker/produce/producer_state.py": "an exception's attribute with a default",
    "lockstep/storage/log/segment_scan.py": "a module that is not compiled (damage_search) inherits from it",
    "lockstep/storage/types.py": "a protocol that is checked at run time",
    "lockstep/storage/raft/__init__.py": "nothing in it",
    "lockstep/storage/raft/configuration.py": "a dataclass: mypyc cannot make some of its fields",
    "lockstep/storage/raft/messages.py": "dataclasses with fields of type object, which mypyc cannot make",
    "lockstep/storage/raft/settings.py": "a dataclass that is read once",
    "lockstep/storage/raft/transitions.py": "inherits from AssertionError, which mypyc has not",
}


def modules() -> list[str]:
    """Paths of the sources, from the root, sorted."""
    found = {str(path.relative_to(ROOT)) for pattern in WANTED for path in ROOT.glob(pattern)}
    return sorted(found - set(LEFT_OUT))


def _is_exception(made: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Error", "Exception")) for base in made.bases)


def misread(source: str) -> list[str]:
    """Returns the places that mypyc refuses, or compiles and then fails.

    It refuses `break` and `continue` out of try/finally or `with`. It gives a name that one function binds to
    different exceptions the type of the first, and does not set defaults for attributes of exceptions. Its
    protocols are none to `runtime_checkable`.
    """
    tree = ast.parse(source)
    found = _jumps(tree, False)
    for function in ast.walk(tree):
        if isinstance(function, ast.ClassDef) and "runtime_checkable" in map(
            ast.unparse, function.decorator_list
        ):
            found.append(f"{function.name}: checked at run time")
        if isinstance(function, ast.ClassDef) and _is_exception(function):
            given = (each for each in function.body if isinstance(each, ast.Assign | ast.AnnAssign))
            found += [f"{function.name}: a default" for each in given if each.value is not None]
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        bound: dict[str, str] = {}
        for each in ast.walk(function):
            if isinstance(each, ast.ExceptHandler) and each.name is not None and each.type is not None:
                kind = ast.unparse(each.type)
                if bound.setdefault(each.name, kind) != kind:
                    found.append(f"{function.name}: `{each.name}` is {bound[each.name]} and {kind}")
    return found


def _jumps(node: ast.AST, inside: bool) -> list[str]:
    """`break` and `continue` whose loop is outside of a try/finally or `with` that they leave.

    `inside`: the node is in such a block, without a loop in between.
    """
    if isinstance(node, ast.Break | ast.Continue):
        name = type(node).__name__.lower()
        return [f"line {node.lineno}: {name} inside try/finally or with"] if inside else []
    found = []
    for name, value in ast.iter_fields(node):
        within = inside
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            within = inside and name == "orelse"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = False
        elif isinstance(node, ast.With | ast.AsyncWith) or (isinstance(node, ast.Try) and node.finalbody):
            within = inside or name != "finalbody"
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                found += _jumps(each, within)
    return found


def interpreted_subclasses(sources: Mapping[str, str], compiled: Collection[str]) -> list[str]:
    """Classes of modules that stay Python with a base of a compiled class's name, which mypyc lets nothing
    inherit from; exceptions and protocols are free of that. `sources`: texts by path from the root."""
    classes = {
        path: [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)]
        for path, text in sources.items()
    }
    closed = {
        made.name
        for path in compiled
        for made in classes[path]
        if not _is_exception(made) and "Protocol" not in map(_name, made.bases)
    }
    return [
        f"{path}: {made.name} inherits from {_name(base)}"
        for path in sorted(set(sources) - set(compiled))
        for made in classes[path]
        for base in made.bases
        if _name(base) in closed
    ]


def _name(base: ast.expr) -> str:
    """`Base` of `module.Base[int]`."""
    return ast.unparse(base).split("[")[0].split(".")[-1]


def product() -> dict[str, str]:
    """The texts of the package's sources by path from the root, through the links too."""
    paths = glob.glob("lockstep/**/*.py", root_dir=ROOT, recursive=True)
    return {path: (ROOT / path).read_text() for path in paths}


def build(directory: Path) -> int:
    """Compile into a directory of its own, and put it in the place of the former one; how many modules."""
    from mypyc.build import mypycify
    from setuptools import setup

    os.chdir(ROOT)
    paths = modules()
    sources = product()
    problems = [f"{path}: {each}" for path in paths for each in misread(sources[path])]
    problems += interpreted_subclasses(sources, paths)
    if problems:
        raise SystemExit("\n".join(problems))
    with tempfile.TemporaryDirectory(prefix="lockstep-native-") as work:
        options = ["--explicit-package-bases", "--cache-dir", f"{work}/cache"]
        extensions = mypycify([*options, *paths], opt_level="2", multi_file=True, target_dir=f"{work}/c")
        command = ["build_ext", "--build-lib", f"{work}/lib", "--build-temp", f"{work}/temp", "-j", "2"]
        setup(
            name="lockstep-native",
            packages=[],
            ext_modules=extensions,
            script_args=["--quiet", *command],
        )
        names = [path.removesuffix(".py").replace("/", ".") for path in paths]
        shared = next(Path(work, "lib").glob(f"*__mypyc{SUFFIX}")).name.removesuffix(SUFFIX)
        sums = {name: checksum(source_of(ROOT, name)) for name in names}
        manifest = {"suffix": SUFFIX, "shared": shared, "sources": sums}
        Path(work, "lib", MANIFEST).write_text(json.dumps(manifest, indent=1))
        shutil.rmtree(directory, ignore_errors=True)
        shutil.move(f"{work}/lib", directory)
    return len(names)


if __name__ == "__main__":
    print(f"compiled {build(DIRECTORY)} modules into {DIRECTORY.name}; LOCKSTEP_NATIVE=1 uses them")
