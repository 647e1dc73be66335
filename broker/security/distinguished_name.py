"""The subject of a certificate as text, as Kafka's principal has it: Java's X500Principal.getName (RFC 2253).

Pure. The most specific name comes first. Java escapes more than RFC 4514 requires (`=`, and `#` anywhere),
reads every text as UTF-8, and writes types other than nine as `OID=#` and the value's bytes; access rules
name principals by that text, so it is the same here. Source: sun.security.x509.AVA.toRFC2253String, compared
with Java 17.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8, Printable, T61, IA5, General, Universal and BMP strings."""
_LONG_LENGTH: Final = 0x80


class MalformedName(ValueError):
    """Bytes that are no distinguished name."""


def distinguished_name(der: bytes) -> str:
    """The text of a Name in DER. Raises MalformedName."""
    try:
        (name,) = _elements(der)
        return ",".join(reversed([_relative_name(each) for _, each, _ in _elements(name[1])]))
    except (IndexError, ValueError) as error:
        raise MalformedName(str(error)) from None


def _relative_name(attributes: bytes) -> str:
    return "+".join(_attribute(each) for _, each, _ in _elements(attributes))


def _attribute(der: bytes) -> str:
    (_, oid_bytes, _), (tag, value, encoded) = _elements(der)
    oid = _oid(oid_bytes)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXT_TAGS:
        return f"{keyword or oid}=#{encoded.hex()}"
    return f"{keyword}={_escape(value.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    trail = lead + len(inner)
    escaped = []
    for index, character in enumerate(text):
        if character == "\0":
            escaped.append("\\00")
        elif character in _ESCAPED or not lead <= index < trail:
            escaped.append("\\" + character)
        else:
            escaped.append(character)
    return "".join(escaped)


def _elements(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, content and whole encoding of each element of a sequence. Raises IndexError, ValueError."""
    position = 0
    while position < len(der):
        start = position
        tag, length = der[position], der[position + 1]
        position += 2
        if length & _LONG_LENGTH:
            count = length - _LONG_LENGTH
            length = int.from_bytes(der[position : position + count], "big")
            position += count
        if position + length > len(der):
            raise ValueError("an element ends behind the bytes")
        yield tag, der[position : position + length], der[start : position + length]
        position += length


def _oid(encoded: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
