"""Compiles message tables to functions, once per (class, version), and runs them.

`python -m lockstep.protocol.compiler produce 9` prints the generated code of an API's request and response.

Invariants: any bytes that do not decode raise MalformedMessage and nothing else; a decoded message
holds views of the input for fields of type `bytes` or `records`, copies for all others.

Not here: frame lengths and headers (`lockstep.protocol.frame_reader`, `lockstep.protocol.api`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lockstep.protocol.decoder_source import Decoder
from lockstep.protocol.encoder_source import Encoder
from lockstep.protocol.fields import Struct
from lockstep.protocol.primitives import Buffer, MalformedMessage

T = TypeVar("T", bound=Struct)

_decoders: dict[tuple[type[Struct], int], Callable[..., Struct]] = {}
_encoders: dict[tuple[type[Struct], int], Callable[[Struct], list[Buffer]]] = {}


def decoder(cls: type[T], version: int) -> Callable[..., T]:
    """The compiled `decode(buf, pos, trailing=False)`; raises MalformedMessage where there is none."""
    function = _decoders.get((cls, version))
    if function is None:
        text = Decoder(cls, version)
        text.generate()
        function = _decoders[cls, version] = text.finish("decode")
    return function  # type: ignore[return-value]


def encoder(cls: type[Struct], version: int) -> Callable[[Struct], list[Buffer]]:
    """The compiled `encode(message)` of a class and version; raises MalformedMessage where there is none."""
    function = _encoders.get((cls, version))
    if function is None:
        text = Encoder(cls, version)
        text.generate()
        function = _encoders[cls, version] = text.finish("encode")
    return function


def decode(cls: type[T], version: int, buf: Buffer, pos: int = 0, *, trailing: bool = False) -> T:
    """Decode `buf[pos:]`, all of it, as `cls` at `version`. Raises MalformedMessage.

    `trailing` skips bytes that follow the message. A broker must: Kafka does, and librdkafka's Metadata
    request for all topics (version 9 and up) ends in three bytes too many.
    """
    function = _decoders.get((cls, version))
    if function is None:
        function = decoder(cls, version)
    return function(buf, pos, trailing)  # type: ignore[return-value]


def encode(message: object, version: int) -> list[Buffer]:
    """The buffers that make up `message` at `version`, to be sent one after the other.

    Data longer than 4 KiB is passed by reference: do not change it until it is sent.
    Raises MalformedMessage when a value does not fit its field or its version.
    """
    function = _encoders.get((type(message), version))  # type: ignore[arg-type]
    if function is None:
        if not isinstance(message, Struct):
            raise MalformedMessage(f"{type(message).__name__} is not a message")
        function = encoder(type(message), version)
    return function(message)  # type: ignore[arg-type]


def encode_bytes(message: object, version: int) -> bytes:
    """Like `encode`, joined."""
    return b"".join(encode(message, version))


def generated_source(cls: type[Struct], version: int) -> str:
    """The text of both functions, for a reader."""
    decoding, encoding = Decoder(cls, version), Encoder(cls, version)
    decoding.generate()
    encoding.generate()
    return f"# {cls.SCHEMA.name} v{version}\n{decoding.text()}\n{encoding.text()}"


def _main(arguments: list[str]) -> int:
    """Print generated code; returns the exit status."""
    from lockstep.protocol.api import api_key_named, messages_for

    usage = "usage: python -m lockstep.protocol.compiler API VERSION     (for example: produce 9)"
    if len(arguments) != 2 or not arguments[1].isdigit():
        print(usage)
        return 2
    try:
        for cls in messages_for(api_key_named(arguments[0])):
            print(generated_source(cls, int(arguments[1])))
    except (KeyError, MalformedMessage) as error:
        print(f"{error.args[0]}\n{usage}")
        return 2
    return 0


if __name__ == "__main__":
    import sys

    sys.exit(_main(sys.argv[1:]))
