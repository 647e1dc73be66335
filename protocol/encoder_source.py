"""Writes the encode function of one class and version: straight-line code, nested structs inlined.

Small parts gather in one bytearray; data longer than `BY_REFERENCE_BYTES` is put between two of them
as it is, never copied. Runs of fixed-width fields are packed with one call.

A field the version does not carry must hold its default unless it is ignorable, as in Kafka: silently
dropping it would change what the message means.

Not here: the wording of errors (`lockstep.protocol.source_text`).
"""

from __future__ import annotations

import struct as binary

from lockstep.protocol import primitives
from lockstep.protocol.fields import Field, Schema, Struct, WireType
from lockstep.protocol.primitives import BY_REFERENCE_BYTES, MAX_STRING_BYTES, MalformedMessage
from lockstep.protocol.source_text import FORMATS, SourceText, is_scalar_array


class Encoder(SourceText):
    """Generates `encode(m)` for `cls` at `version`."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__(cls.SCHEMA, version)
        self._in_tag = False

    def generate(self) -> None:
        self.bind("Malformed", MalformedMessage)
        self.bind("StructError", binary.error)
        self.bind("pack", binary.pack)
        for helper in (primitives.uvarint_bytes, primitives.write_tags, primitives.with_unknown_tags):
            self.bind(helper.__name__, helper)
        with self.block("def encode(m):"):
            self.emit("out = bytearray()")
            self.emit("chunks = []")
            with self.block("try:"):
                self._body(self.schema, "m")
                self._flush()
                with self.block("if out or not chunks:"):
                    self.emit("chunks.append(out)")
                self.emit("return chunks")
            errors = "(ValueError, TypeError, AttributeError, OverflowError, StructError)"
            with self.block(f"except {errors} as error:"):
                self.emit("raise explain(error, None) from error")

    # Struct bodies.

    def _body(self, schema: Schema, target: str) -> None:
        for field in self.absent_fields(schema):
            if not field.ignorable:
                with self.about(field):
                    self._require_default(field, f"{target}.{field.slot}")
        for field in self.untagged_fields(schema):
            with self.about(field):
                slot = field.name if field.lazy else field.slot
                self._field(field, f"{target}.{slot}")
        if self.flexible:
            self._tags(schema, target)
        else:
            with self.block(f"if {target}._unknown_tags:"):
                self.emit("raise Malformed('tagged fields in a version that has none')")

    def _is_set(self, field: Field, value: str) -> str:
        """An expression: does `value` differ from the field's default?"""
        if field.lazy:
            assert field.wire.struct is not None
            plain = self.bind(f"plain_{field.wire.struct.SCHEMA.name}", field.wire.struct())
            return f"{value} is not None and {value} != {plain}"
        if field.default is None:
            return f"{value} is not None"
        if field.wire.name == "uuid":
            return f"{value} != {self.bind('ZERO_UUID', primitives.ZERO_UUID)}"
        return f"{value} != {field.default!r}"

    def _require_default(self, field: Field, value: str) -> None:
        with self.block(f"if {self._is_set(field, value)}:"):
            self.emit(f"raise Malformed('set, but only versions {field.versions} have it')")

    def _tags(self, schema: Schema, target: str) -> None:
        self._flush()
        everywhere = self.fields_with_tags(schema)
        if not everywhere:
            with self.block(f"if {target}._unknown_tags:"):
                self.emit(f"write_tags(out, {target}._unknown_tags)")
            with self.block("else:"):
                self.emit("out.append(0)")
            return
        tags = self.fresh("t")
        self.emit(f"{tags} = None")
        for field in self.tagged_fields(schema):
            with self.about(field), self.block(f"if {self._is_set(field, f'{target}.{field.slot}')}:"):
                self._defined_tag(field, f"{target}.{field.slot}", tags)
        with self.block(f"if {target}._unknown_tags:"):
            defined = self.bind(f"tags_of_{schema.name}", frozenset(field.tag for field in everywhere))
            self.emit(f"{tags} = with_unknown_tags({tags} or {{}}, {target}._unknown_tags, {defined})")
        with self.block(f"if {tags}:"):
            self.emit(f"write_tags(out, {tags})")
        with self.block("else:"):
            self.emit("out.append(0)")

    def _defined_tag(self, field: Field, value: str, tags: str) -> None:
        outer, was_in_tag = self.fresh("outer"), self._in_tag
        self._in_tag = True
        self.emit(f"{outer} = out")
        self.emit("out = bytearray()")
        self._field(field, value)
        self._flush()
        with self.block(f"if {tags} is None:"):
            self.emit(f"{tags} = {{}}")
        self.emit(f"{tags}[{field.tag}] = out")
        self.emit(f"out = {outer}")
        self._in_tag = was_in_tag

    # Fields.

    def _field(self, field: Field, value: str) -> None:
        nullable = self.version in field.nullable
        wire = field.wire
        if wire.name in FORMATS:
            self._fixed_width(wire, value)
        elif wire.name == "string":
            self._string(value, nullable, self.compact(field))
        elif wire.name in ("bytes", "records"):
            self._bytes(value, nullable, self.compact(field))
        elif wire.name == "array":
            self._array(field, value, nullable)
        else:
            self._nested_struct(wire, value, nullable)

    def _fixed_width(self, wire: WireType, value: str) -> None:
        if wire.name == "uuid":
            with self.block(f"if len({value}) != 16:"):
                self.emit(f"raise Malformed(f'{{len({value})}} bytes where a UUID has 16')")
        self.postpone(FORMATS[wire.name], value)

    def _flush(self) -> None:
        forms, values, about = self.take_run()
        if forms:
            name, _ = self.codec("pack", "pack", forms)
            self.emit(f"out += {name}({', '.join(values)})", about)

    def _length(self, n: str, wire_name: str, compact: bool) -> None:
        """Write the length in variable `n`; minus one is null."""
        if not compact:
            self.postpone("h" if wire_name == "string" else "i", n)
            self._flush()
            return
        self._flush()
        with self.block(f"if {n} < 127:"):
            self.emit(f"out.append({n} + 1)")
        with self.block("else:"):
            self.emit(f"out += uvarint_bytes({n} + 1)")

    def _string(self, value: str, nullable: bool, compact: bool) -> None:
        s, n = self.fresh("s"), self.fresh("n")
        self.emit(f"{s} = {value}")
        if nullable:
            with self.block(f"if {s} is None:"):
                self.emit(f"{s}, {n} = b'', -1")
            with self.block("else:"):
                self._encode_text(s, n)
        else:
            self._encode_text(s, n)
        self._length(n, "string", compact)
        self.emit(f"out += {s}")

    def _encode_text(self, s: str, n: str) -> None:
        self.emit(f"{s} = {s}.encode()")
        self.emit(f"{n} = len({s})")
        with self.block(f"if {n} > {MAX_STRING_BYTES}:"):
            self.emit(f"raise Malformed(f'string of {{{n}}} bytes, at most {MAX_STRING_BYTES}')")

    def _bytes(self, value: str, nullable: bool, compact: bool) -> None:
        b, n = self.fresh("b"), self.fresh("n")
        self.emit(f"{b} = {value}")
        if nullable:
            with self.block(f"if {b} is None:"):
                self.emit(f"{b}, {n} = (), -1")
            with self.block("else:"):
                self._gather(b, n)
        else:
            self._gather(b, n)
        self._length(n, "bytes", compact)
        with self.block(f"for {b} in {b}:"):
            if self._in_tag:
                self.emit(f"out += {b}")
                return
            with self.block(f"if len({b}) > {BY_REFERENCE_BYTES}:"):
                self.emit("chunks.append(out)")
                self.emit(f"chunks.append({b})")
                self.emit("out = bytearray()")
            with self.block("else:"):
                self.emit(f"out += {b}")

    def _gather(self, b: str, n: str) -> None:
        """Make `b` a sequence of buffers and `n` their length together."""
        with self.block(f"if type({b}) is list:"):
            self.emit(f"{n} = sum(map(len, {b}))")
        with self.block("else:"):
            self.emit(f"{n} = len({b})")
            self.emit(f"{b} = ({b},)")

    def _nested_struct(self, wire: WireType, value: str, nullable: bool) -> None:
        assert wire.struct is not None
        o = self.fresh("o")
        self._flush()
        self.emit(f"{o} = {value}")
        if not nullable:
            self._body(wire.struct.SCHEMA, o)
            return
        with self.block(f"if {o} is None:"):
            self.emit("out.append(255)")
        with self.block("else:"):
            self.emit("out.append(1)")
            self._body(wire.struct.SCHEMA, o)
            self._flush()

    def _array(self, field: Field, value: str, nullable: bool) -> None:
        element = field.wire.element
        assert element is not None
        a, n = self.fresh("a"), self.fresh("n")
        self.emit(f"{a} = {value}")
        if nullable:
            with self.block(f"if {a} is None:"):
                self.emit(f"{a}, {n} = (), -1")
            with self.block("else:"):
                self.emit(f"{n} = len({a})")
        else:
            self.emit(f"{n} = len({a})")
        compact = self.compact(field)
        self._length(n, "array", compact)
        if is_scalar_array(element):
            with self.block(f"if {n} > 0:"):
                self.emit(f"out += pack(f'>{{{n}}}{FORMATS[element.name]}', *{a})")
            return
        o = self.fresh("o")
        with self.block(f"for {o} in {a}:"):
            if element.struct is not None:
                self._body(element.struct.SCHEMA, o)
            elif element.name == "string":
                self._string(o, False, compact)
            elif element.name in ("bytes", "records"):
                self._bytes(o, False, compact)
            else:
                self._fixed_width(element, o)
            self._flush()
