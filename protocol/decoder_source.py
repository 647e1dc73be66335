"""Writes the decode function of one class and version: straight-line code, nested structs inlined.

Runs of fixed-width fields are read with one `unpack_from`, together with the first byte of whatever
length follows them. A field's default is stored where the version does not carry it.

Bounds, in the order the generated code checks them: a count times its element's smallest size must fit the
remaining bytes; what the elements cost in memory is taken from `room` (eight times a request, see
`lockstep.protocol.primitives`); only then is a list made. Strings inside arrays are charged for as they are
read.

Not here: the wording of errors (`lockstep.protocol.source_text`).
"""

from __future__ import annotations

import struct as binary

from lockstep.protocol import primitives
from lockstep.protocol.fields import Field, Schema, Struct, WireType
from lockstep.protocol.primitives import (
    ALLOCATION_FLOOR_BYTES,
    EVERY_PARTITION_FLOORS,
    MAX_REQUEST_ALLOCATION_BYTES,
    MAX_STRING_BYTES,
    NAMES_EVERY_PARTITION,
    READ_BACK_KINDS,
    REQUEST_ALLOCATION_RATIO,
    RESPONSE_ALLOCATION_RATIO,
    TOO_MUCH_MEMORY,
    MalformedMessage,
)
from lockstep.protocol.source_text import FORMATS, SourceText, is_scalar_array

_INT_COSTS = {"int8": 28, "int16": 28, "uint16": 28, "int32": 32, "uint32": 32, "int64": 36}
_FIXED_COSTS = {**_INT_COSTS, "bool": 0, "float64": 24, "uuid": 49}
_STRING_COST = 76
_STRING_COST_PER_BYTE = 4
"""Text of one character outside the BMP takes four bytes for each of its ASCII characters too."""
_VIEW_COST = 192
_LIST_COST = 56
_OBJECT_COST = 32
_POINTER_COST = 8


class Decoder(SourceText):
    """Generates `decode(buf, pos)` for `cls` at `version`."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__(cls.SCHEMA, version)
        self.cls = cls
        self._array_depth = 0

    def generate(self) -> None:
        self.bind("Malformed", MalformedMessage)
        self.bind("StructError", binary.error)
        self.bind("TOO_MUCH_MEMORY", TOO_MUCH_MEMORY)
        self.bind("unpack_from", binary.unpack_from)
        self.bind("new", object.__new__)
        for helper in (
            primitives.length_rest,
            primitives.read_tags,
            primitives.tag_count,
            primitives.tag_and_end,
            primitives.keep_tag,
        ):
            self.bind(helper.__name__, helper)
        kind = self.schema.kind
        ratio = RESPONSE_ALLOCATION_RATIO if kind in READ_BACK_KINDS else REQUEST_ALLOCATION_RATIO
        with self.block("def decode(buf, p, trailing=False):"):
            self.emit("buf = memoryview(buf)")
            self.emit("end = len(buf)")
            floor = ALLOCATION_FLOOR_BYTES
            if kind == "request" and self.schema.api_key in NAMES_EVERY_PARTITION:
                floor *= EVERY_PARTITION_FLOORS
            grown = f"{ratio} * end"
            if kind == "request":
                grown = f"min({grown}, {MAX_REQUEST_ALLOCATION_BYTES})"
            self.emit(f"room = {floor} if end < {floor // ratio} else {grown}")
            with self.block("try:"):
                self.emit(f"m = new({self.struct_name(self.cls)})")
                self._body(self.schema, "m")
                self._flush()
                with self.block("if p != end and not trailing:"):
                    self.emit("raise Malformed(f'{end - p} bytes too many')")
                self.emit("return m")
            with self.block("except (ValueError, IndexError, StructError) as error:"):
                self.emit("raise explain(error, p) from None")

    # Struct bodies.

    def _body(self, schema: Schema, target: str) -> None:
        for field in self.untagged_fields(schema):
            with self.about(field):
                self._field(field, f"{target}.{field.slot}")
        for field in self.absent_fields(schema):
            self._store_default(field, f"{target}.{field.slot}")
        for field in self.tagged_fields(schema):
            self._store_default(field, f"{target}.{field.slot}")
        self.emit(f"{target}._unknown_tags = None")
        if self.flexible:
            self._tags(schema, target)

    def _store_default(self, field: Field, slot: str) -> None:
        if field.lazy:
            self.emit(f"{slot} = None")
        elif field.wire.name == "uuid":
            self.emit(f"{slot} = {self.bind('ZERO_UUID', primitives.ZERO_UUID)}")
        else:
            self.emit(f"{slot} = {field.default!r}")

    def _tags(self, schema: Schema, target: str) -> None:
        count = self.fresh("t")
        self._lead("B", count)
        everywhere = self.fields_with_tags(schema)
        with self.block(f"if {count}:"):
            if not everywhere:
                self.emit(f"{target}._unknown_tags, p, room = read_tags(buf, p, {count}, room)")
                return
            tag, stop = self.fresh("tag"), self.fresh("e")
            self.emit(f"{count}, p = tag_count(buf, p, {count})")
            with self.block(f"for _ in range({count}):"):
                self.emit(f"{tag}, {stop}, p = tag_and_end(buf, p)")
                word = "if"
                for field in everywhere:
                    with self.block(f"{word} {tag} == {field.tag}:"), self.about(field):
                        self._defined_tag(field, f"{target}.{field.slot}", stop)
                    word = "elif"
                with self.block("else:"):
                    self.emit(f"room = keep_tag({target}.unknown_tags, {tag}, buf[p:{stop}], room)")
                    self.emit(f"p = {stop}")

    def _defined_tag(self, field: Field, slot: str, stop: str) -> None:
        if self.version not in field.tagged:
            self.emit(f"raise Malformed('tag {field.tag} is not valid in version {self.version}')")
            return
        self._charge(str(self._cost(field.wire)))
        self._field(field, slot)
        self._flush()
        with self.block(f"if p != {stop}:"):
            self.emit(f"raise Malformed(f'tagged field is {{{stop} - p}} bytes longer than its content')")

    # Fields.

    def _field(self, field: Field, slot: str) -> None:
        nullable = self.version in field.nullable
        wire = field.wire
        if wire.name in FORMATS:
            self.postpone(FORMATS[wire.name], slot)
        elif wire.name == "string":
            self._string(slot, nullable, self.compact(field))
        elif wire.name in ("bytes", "records"):
            self._bytes(slot, nullable, self.compact(field))
        elif wire.name == "array":
            self._array(field, slot, nullable)
        else:
            self._nested_struct(wire, slot, nullable)

    def _lead(self, form: str, name: str) -> None:
        """Read what is pending and, with it, the fixed-width start of a variable part into `name`."""
        self.postpone(form, name)
        self._flush()

    def _flush(self) -> None:
        forms, targets, about = self.take_run()
        if not forms:
            return
        if forms == ["B"]:
            self.emit(f"{targets[0]} = buf[p]", about)
            self.emit("p += 1")
            return
        name, size = self.codec("unpack", "unpack_from", forms)
        self.emit(f"{', '.join(targets)}{',' if len(forms) == 1 else ''} = {name}(buf, p)", about)
        self.emit(f"p += {size}")

    def _length(self, wire_name: str, compact: bool, slot: str, nullable: bool) -> str:
        """Read a length and deal with null; what follows the call goes under `if length >= 0:`."""
        n = self.fresh("n")
        if compact:
            self._lead("B", n)
            with self.block(f"if {n} > 127:"):
                self.emit(f"{n}, p = length_rest(buf, p, {n})")
            self.emit(f"{n} -= 1")
        else:
            self._lead("h" if wire_name == "string" else "i", n)
        with self.block(f"if {n} < 0:"):
            if nullable and compact:
                self.emit(f"{slot} = None")
            elif nullable:
                with self.block(f"if {n} != -1:"):
                    self.emit(f"raise Malformed(f'length {{{n}}}')")
                self.emit(f"{slot} = None")
            else:
                self.emit(f"raise Malformed(f'length {{{n}}}: neither null nor less is allowed here')")
        return n

    def _string(self, slot: str, nullable: bool, compact: bool) -> None:
        n = self._length("string", compact, slot, nullable)
        with self.block("else:"):
            stop = self.fresh("e")
            self.emit(f"{stop} = p + {n}")
            with self.block(f"if {stop} > end:"):
                self.emit(f"raise Malformed(f'string of {{{n}}} bytes, {{end - p}} remain')")
            if compact:
                with self.block(f"if {n} > {MAX_STRING_BYTES}:"):
                    self.emit(f"raise Malformed(f'string of {{{n}}} bytes, at most {MAX_STRING_BYTES}')")
            if self._array_depth:
                self._charge(f"{_STRING_COST_PER_BYTE} * {n}")
            self.emit(f"{slot} = str(buf[p:{stop}], 'utf-8')")
            self.emit(f"p = {stop}")

    def _bytes(self, slot: str, nullable: bool, compact: bool) -> None:
        n = self._length("bytes", compact, slot, nullable)
        with self.block("else:"):
            stop = self.fresh("e")
            self.emit(f"{stop} = p + {n}")
            with self.block(f"if {stop} > end:"):
                self.emit(f"raise Malformed(f'{{{n}}} bytes of data, {{end - p}} remain')")
            self.emit(f"{slot} = buf[p:{stop}]")
            self.emit(f"p = {stop}")

    def _nested_struct(self, wire: WireType, slot: str, nullable: bool) -> None:
        assert wire.struct is not None
        if nullable:
            marker = self.fresh("n")
            self._lead("b", marker)
            with self.block(f"if {marker} < 0:"):
                self.emit(f"{slot} = None")
            with self.block("else:"):
                self._new(wire.struct, slot)
                self._flush()
            return
        self._flush()
        self._new(wire.struct, slot)

    def _new(self, cls: type[Struct], slot: str) -> None:
        made = self.fresh("o")
        self.emit(f"{slot} = {made} = new({self.struct_name(cls)})")
        self._body(cls.SCHEMA, made)

    # Arrays.

    def _array(self, field: Field, slot: str, nullable: bool) -> None:
        element = field.wire.element
        assert element is not None
        n = self._length("array", self.compact(field), slot, nullable)
        with self.block("else:"):
            smallest = self._smallest(element, self.compact(field))
            with self.block(f"if {n} * {smallest} > end - p:"):
                self.emit(
                    f"raise Malformed(f'{{{n}}} elements of at least {smallest} bytes, {{end - p}} remain')"
                )
            self._charge(f"{n} * {self._cost(element) + 2 * _POINTER_COST}")
            if is_scalar_array(element):
                self._scalars(element, slot, n)
            else:
                self._elements(element, slot, n, self.compact(field))

    def _scalars(self, element: WireType, slot: str, n: str) -> None:
        form = FORMATS[element.name]
        self.emit(f"{slot} = list(unpack_from(f'>{{{n}}}{form}', buf, p))")
        self.emit(f"p += {binary.calcsize('>' + form)} * {n}")

    def _elements(self, element: WireType, slot: str, n: str, compact: bool) -> None:
        items, i = self.fresh("a"), self.fresh("i")
        self.emit(f"{slot} = {items} = [None] * {n}")
        self._array_depth += 1
        with self.block(f"for {i} in range({n}):"):
            element_name = f"{items}[{i}]"
            if element.struct is not None:
                self._new(element.struct, element_name)
            elif element.name == "string":
                self._string(element_name, False, compact)
            elif element.name in ("bytes", "records"):
                self._bytes(element_name, False, compact)
            else:
                self.postpone(FORMATS[element.name], element_name)
            self._flush()
        self._array_depth -= 1

    # Sizes and costs.

    def _charge(self, cost: str) -> None:
        self.emit(f"room -= {cost}")
        with self.block("if room < 0:"):
            self.emit("raise Malformed(TOO_MUCH_MEMORY)")

    def _smallest(self, wire: WireType, compact: bool) -> int:
        """The fewest bytes a value can have on the wire in this version."""
        if wire.name in FORMATS:
            return binary.calcsize(">" + FORMATS[wire.name])
        if wire.struct is None:
            return 1 if compact else 2 if wire.name == "string" else 4
        total = 1 if self.flexible else 0
        for field in self.untagged_fields(wire.struct.SCHEMA):
            if field.wire.struct is not None and self.version in field.nullable:
                total += 1
            else:
                total += self._smallest(field.wire, self.compact(field))
        if total == 0:
            raise TypeError(f"{wire} has no bytes in version {self.version}: its count could not be checked")
        return total

    def _cost(self, wire: WireType) -> int:
        """The most memory a value takes, without what arrays and strings in it charge themselves."""
        if wire.name in FORMATS:
            return _FIXED_COSTS[wire.name]
        if wire.struct is None:
            return {"string": _STRING_COST, "array": _LIST_COST}.get(wire.name, _VIEW_COST)
        schema = wire.struct.SCHEMA
        total = _OBJECT_COST + _POINTER_COST * (len(schema.fields) + 1)
        for field in self.untagged_fields(schema):
            total += self._cost(field.wire)
        for field in self.absent_fields(schema) + self.tagged_fields(schema):
            if field.default == []:
                total += _LIST_COST
        return total
