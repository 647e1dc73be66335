"""A struct that the tests of the codec's parts have in common."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, int8, struct


@struct()
class Point(Struct):
    """Nested; its second field is of later versions."""

    x: int = int8()
    y: int = int8(versions="1+")
