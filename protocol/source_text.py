"""The common part of the two code generators: lines of Python that remember their field, and wire facts.

Not here: the content of the lines (`lockstep.protocol.decoder_source`, `lockstep.protocol.encoder_source`).
"""

from __future__ import annotations

import struct as binary
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lockstep.protocol.fields import Field, Schema, Struct, WireType
from lockstep.protocol.primitives import MalformedMessage

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}
"""struct format of every fixed-width type."""


class SourceText:
    """A function under construction. Each line carries the path of the field it handles."""

    def __init__(self, schema: Schema, version: int) -> None:
        if version not in schema.versions:
            raise MalformedMessage(f"{schema.name} has no version {version}, only {schema.versions}")
        self.schema = schema
        self.version = version
        self.flexible = version in schema.flexible
        self.scope: dict[str, Any] = {}
        self.path = [schema.name]
        self._lines: list[str] = []
        self._paths: list[str] = []
        self._run: list[tuple[str, str, str]] = []
        self._indent = 0
        self._names = 0

    def emit(self, text: str, path: str | None = None) -> None:
        """Add one line, at the present depth, about the present field or the one named."""
        self._lines.append("    " * self._indent + text)
        self._paths.append(path or ".".join(self.path))

    def postpone(self, form: str, value: str) -> None:
        """Add a fixed-width value (or target) to the run that the next flush reads or writes at once."""
        self._run.append((form, value, ".".join(self.path)))

    def take_run(self) -> tuple[list[str], list[str], str]:
        """The run so far, which begins anew: formats, values and the fields it is about."""
        run, self._run = self._run, []
        paths = [path for _, _, path in run]
        about = paths[0] if run else ""
        if run and paths[-1] != about:
            about += f" to {paths[-1]}"
        return [form for form, _, _ in run], [value for _, value, _ in run], about

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines inside `head`, which ends in a colon."""
        self.emit(head)
        self._indent += 1
        yield
        self._indent -= 1

    @contextmanager
    def about(self, field: Field) -> Iterator[None]:
        """Lines inside are about `field`."""
        self.path.append(field.name)
        yield
        self.path.pop()

    def fresh(self, stem: str) -> str:
        """A variable name that is not used yet."""
        self._names += 1
        return f"{stem}{self._names}"

    def bind(self, name: str, value: Any) -> str:
        """Make `value` a global of the generated function."""
        self.scope[name] = value
        return name

    def struct_name(self, cls: type[Struct]) -> str:
        """The generated code's name of a table class."""
        return self.bind(cls.SCHEMA.name, cls)

    def codec(self, stem: str, method: str, formats: list[str]) -> tuple[str, int]:
        """A bound struct method for big-endian `formats`; returns its name and the bytes it covers."""
        packer = binary.Struct(">" + "".join(formats))
        name = f"{stem}_{''.join(formats).replace('?', 'o')}"
        return self.bind(name, getattr(packer, method)), packer.size

    def compact(self, field: Field | None) -> bool:
        """Returns whether lengths of this field are varints in this version."""
        if field is None or field.flexible is None:
            return self.flexible
        return self.flexible and self.version in field.flexible

    def untagged_fields(self, schema: Schema) -> list[Field]:
        return [f for f in schema.fields if self.version in f.versions and self.version not in f.tagged]

    def fields_with_tags(self, schema: Schema) -> list[Field]:
        """Fields with a tag in some version, by tag: elsewhere their tags may not be used, as in Kafka."""
        return sorted((f for f in schema.fields if f.tag is not None), key=lambda f: f.tag or 0)

    def tagged_fields(self, schema: Schema) -> list[Field]:
        return [
            f
            for f in self.fields_with_tags(schema)
            if self.version in f.versions and self.version in f.tagged
        ]

    def absent_fields(self, schema: Schema) -> list[Field]:
        return [f for f in schema.fields if self.version not in f.versions]

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def finish(self, function_name: str) -> Any:
        """Compile the text and return the function it defines."""
        code = compile(self.text(), f"<{self.schema.name} v{self.version} {function_name}>", "exec")
        paths, title = self._paths, f"{self.schema.name} v{self.version}"

        def explain(error: BaseException, pos: int | None) -> MalformedMessage:
            trace = error.__traceback__
            path = paths[trace.tb_lineno - 1] if trace is not None else self.schema.name
            where = "" if pos is None else f" at byte {pos}"
            return MalformedMessage(f"{title}: {path}{where}: {_error_text(error, decoding=pos is not None)}")

        self.scope["explain"] = explain
        exec(code, self.scope)
        return self.scope[function_name]


def _error_text(error: BaseException, *, decoding: bool) -> str:
    if decoding and isinstance(error, IndexError | binary.error):
        return "the bytes end here"
    if isinstance(error, UnicodeError):
        return "not UTF-8"
    return str(error)


def is_scalar_array(wire: WireType) -> bool:
    """Returns whether the elements can be read and written with one struct call."""
    return wire.name in FORMATS and wire.name != "uuid"
