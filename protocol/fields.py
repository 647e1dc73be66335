"""Declarative message tables: one typed class per message or nested struct, for all its versions.

    @struct()
    class Topic(Struct):
        name: str = string(versions="0-12", ignorable=True)
        topic_id: bytes = uuid(versions="13+", ignorable=True)

    @message(api_key=0, versions="3-13", flexible="9+", kind="request")
    class ProduceRequest(Struct):
        topic_data: list[Topic] = array(Topic)

The decorators turn such a class into a slotted one with a keyword constructor (Kafka's defaults),
equality, a short repr and a `SCHEMA` that `lockstep.protocol.compiler` reads. mypy sees the annotations
(PEP 681), so a field's type is checked at every use.

Invariants: field names are Kafka's JSON names in snake case; field order is wire order; an unset tagged or
plain struct field costs nothing until it is read (its slot holds None, the property
makes the default). Version ranges: "3", "3-13", "9+", "none".

Not here: bytes. Source: the message JSON of Apache Kafka; KIP-482 (tags, nullable, flexible).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import get_annotations
from typing import Any, ClassVar, TypeVar, dataclass_transform

from lockstep.protocol.primitives import ZERO_UUID

T = TypeVar("T", bound="Struct")

_UNSET: Any = object()
_NO_END = 0x7FFF


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `high < low`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read Kafka's spelling: "3", "3-13", "9+" or "none"."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _NO_END)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Any:
        return iter(range(self.low, self.high + 1))

    def __str__(self) -> str:
        if self.high < self.low:
            return "none"
        if self.high == _NO_END:
            return f"{self.low}+"
        return f"{self.low}-{self.high}" if self.high > self.low else str(self.low)


NO_VERSIONS = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class WireType:
    """The type of a field on the wire. `element` is set for arrays, `struct` for structs."""

    name: str
    element: WireType | None = None
    struct: type[Struct] | None = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"[]{self.element}"
        return self.struct.__name__ if self.struct is not None else self.name


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a message table."""

    name: str
    wire: WireType
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any
    """A plain value; [] for arrays; _UNSET means a struct's own defaults."""
    ignorable: bool
    flexible: Versions | None
    """Where compact lengths are used; None is wherever the message is flexible."""

    @property
    def lazy(self) -> bool:
        """True if the value is created when first read: for struct fields whose default is not null."""
        return self.wire.struct is not None and self.default is not None

    @property
    def slot(self) -> str:
        """The attribute that really holds the value."""
        return "_" + self.name if self.lazy else self.name

    def default_value(self) -> Any:
        """A fresh default."""
        if self.lazy:
            assert self.wire.struct is not None
            return self.wire.struct()
        return [] if self.default == [] else self.default


@dataclass(frozen=True, slots=True)
class Schema:
    """The table of one class. `versions`, `api_key` and `kind` are set for messages only."""

    name: str
    fields: tuple[Field, ...]
    api_key: int | None = None
    versions: Versions = NO_VERSIONS
    flexible: Versions = NO_VERSIONS
    kind: str = "struct"


class Struct:
    """Base of every table class: unknown tagged fields, equality, repr."""

    __slots__ = ("_unknown_tags",)

    SCHEMA: ClassVar[Schema]
    _unknown_tags: dict[int, bytes] | None

    @property
    def unknown_tags(self) -> dict[int, bytes]:
        """Tagged fields that the table does not define, by tag; encoded again unchanged."""
        if self._unknown_tags is None:
            self._unknown_tags = {}
        return self._unknown_tags

    @unknown_tags.setter
    def unknown_tags(self, tags: dict[int, bytes]) -> None:
        self._unknown_tags = tags

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Struct)
        if (self._unknown_tags or {}) != (other._unknown_tags or {}):
            return False
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.SCHEMA.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = []
        for field in self.SCHEMA.fields:
            value = getattr(self, field.name)
            if value != field.default_value():
                parts.append(f"{field.name}={value!r}")
        if self._unknown_tags:
            parts.append(f"unknown_tags={self._unknown_tags!r}")
        return f"{self.SCHEMA.name}({', '.join(parts)})"


class _Row:
    """A field as the class body declares it, without its name."""

    __slots__ = ("default", "flexible", "ignorable", "nullable", "tag", "tagged", "versions", "wire")

    def __init__(
        self,
        wire: WireType,
        default: Any,
        versions: str,
        nullable: str,
        tagged: str,
        tag: int | None,
        ignorable: bool,
        flexible: str | None,
    ) -> None:
        self.wire = wire
        self.default = default
        self.versions = Versions.parse(versions)
        self.nullable = Versions.parse(nullable)
        self.tagged = Versions.parse(tagged)
        self.tag = tag
        self.ignorable = ignorable
        self.flexible = None if flexible is None else Versions.parse(flexible)

    def to_field(self, name: str) -> Field:
        if (self.tag is None) != (self.tagged == NO_VERSIONS):
            raise TypeError(f"{name}: tag and tagged belong together")
        if self.wire.struct is not None and self.default is not None and self.nullable != NO_VERSIONS:
            raise TypeError(f"{name}: a struct that may be null must be null by default")
        return Field(
            name,
            self.wire,
            self.versions,
            self.nullable,
            self.tagged,
            self.tag,
            self.default,
            self.ignorable,
            self.flexible,
        )


class FieldType:
    """A primitive of the wire; calling it declares a field, passing it to `array` an array of it."""

    __slots__ = ("default", "wire")

    def __init__(self, name: str, default: Any) -> None:
        self.wire = WireType(name)
        self.default = default

    def __call__(
        self,
        *,
        default: Any = _UNSET,
        versions: str = "0+",
        nullable: str = "none",
        tagged: str = "none",
        tag: int | None = None,
        ignorable: bool = False,
        flexible: str | None = None,
    ) -> Any:
        chosen = self.default if default is _UNSET else default
        return _Row(self.wire, chosen, versions, nullable, tagged, tag, ignorable, flexible)


boolean = FieldType("bool", False)
int8 = FieldType("int8", 0)
int16 = FieldType("int16", 0)
int32 = FieldType("int32", 0)
int64 = FieldType("int64", 0)
uint16 = FieldType("uint16", 0)
uint32 = FieldType("uint32", 0)
float64 = FieldType("float64", 0.0)
string = FieldType("string", "")
byte_string = FieldType("bytes", b"")
"""Opaque bytes; decoded as a memoryview of the input."""
record_data = FieldType("records", None)
"""Record batches; decoded as a memoryview of the input, encoded from one buffer or several."""
uuid = FieldType("uuid", ZERO_UUID)
"""Sixteen raw bytes."""


def array(
    of: FieldType | type[Struct],
    *,
    default: Any = _UNSET,
    versions: str = "0+",
    nullable: str = "none",
    tagged: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A list of structs or of primitives."""
    element = of.wire if isinstance(of, FieldType) else WireType("struct", struct=of)
    chosen = [] if default is _UNSET else default
    return _Row(WireType("array", element), chosen, versions, nullable, tagged, tag, ignorable, None)


def struct_field(
    of: type[Struct],
    *,
    default: Any = _UNSET,
    versions: str = "0+",
    nullable: str = "none",
    tagged: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """One struct inside another."""
    return _Row(WireType("struct", struct=of), default, versions, nullable, tagged, tag, ignorable, None)


def _property_of(field: Field) -> property:
    """Reads and writes a lazy slot; the first read of an unset one makes the struct's defaults."""
    slot = field.slot

    def read(self: Any) -> Any:
        value = getattr(self, slot)
        if value is None:
            value = field.default_value()
            setattr(self, slot, value)
        return value

    def write(self: Any, value: Any) -> None:
        setattr(self, slot, value)

    return property(read, write)


def _constructor_of(fields: tuple[Field, ...]) -> Callable[..., None]:
    """A keyword-only __init__, generated so that it costs no loop."""
    scope: dict[str, Any] = {"unset": _UNSET}
    parameters, lines = [], ["    self._unknown_tags = None"]
    for field in fields:
        if field.lazy:
            parameters.append(f"{field.name}=None")
            lines.append(f"    self.{field.slot} = {field.name}")
        elif field.default == []:
            parameters.append(f"{field.name}=unset")
            lines.append(f"    self.{field.name} = [] if {field.name} is unset else {field.name}")
        else:
            parameters.append(f"{field.name}={field.default!r}")
            lines.append(f"    self.{field.name} = {field.name}")
    star = ", *, " if parameters else ""
    source = f"def __init__(self{star}{', '.join(parameters)}):\n" + "\n".join(lines)
    exec(source, scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


def _build(cls: type[T], schema_of: Callable[[str, tuple[Field, ...]], Schema]) -> type[T]:
    if not issubclass(cls, Struct):
        raise TypeError(f"{cls.__name__} must derive from Struct")
    rows = {name: cls.__dict__.get(name) for name in get_annotations(cls)}
    fields = []
    for name, row in rows.items():
        if not isinstance(row, _Row):
            raise TypeError(f"{cls.__name__}.{name} has no field type")
        fields.append(row.to_field(name))
    table = tuple(fields)
    body = {
        key: value
        for key, value in cls.__dict__.items()
        if key not in rows and key not in ("__dict__", "__weakref__")
    }
    body["__slots__"] = tuple(field.slot for field in table)
    body["__init__"] = _constructor_of(table)
    body["SCHEMA"] = schema_of(cls.__name__, table)
    for field in table:
        if field.lazy:
            body[field.name] = _property_of(field)
    made: type[T] = type(cls)(cls.__name__, cls.__bases__, body)  # type: ignore[misc]
    made.__qualname__ = cls.__qualname__
    return made


@dataclass_transform(kw_only_default=True)
def struct() -> Callable[[type[T]], type[T]]:
    """A struct that messages contain."""
    return lambda cls: _build(cls, Schema)


@dataclass_transform(kw_only_default=True)
def message(
    *, versions: str, flexible: str, kind: str, api_key: int | None = None
) -> Callable[[type[T]], type[T]]:
    """A top-level message: `kind` is "request", "response" or "header"."""

    def decorate(cls: type[T]) -> type[T]:
        return _build(
            cls,
            lambda name, table: Schema(
                name, table, api_key, Versions.parse(versions), Versions.parse(flexible), kind
            ),
        )

    return decorate
