from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromPlayer(_message.Message):
    __slots__ = ("hello", "batch", "heartbeat")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    batch: Batch
    heartbeat: Heartbeat
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class FromTarget(_message.Message):
    __slots__ = ("greeted", "stale", "acknowledged")
    GREETED_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    greeted: Greeted
    stale: Stale
    acknowledged: Acknowledged
    def __init__(self, greeted: _Optional[_Union[Greeted, _Mapping]] = ..., stale: _Optional[_Union[Stale, _Mapping]] = ..., acknowledged: _Optional[_Union[Acknowledged, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("log_id", "player_term", "target_term", "first_position", "topic", "partition")
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    PLAYER_TERM_FIELD_NUMBER: _ClassVar[int]
    TARGET_TERM_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    log_id: str
    player_term: int
    target_term: int
    first_position: int
    topic: str
    partition: int
    def __init__(self, log_id: _Optional[str] = ..., player_term: _Optional[int] = ..., target_term: _Optional[int] = ..., first_position: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("previous_position", "parts")
    PREVIOUS_POSITION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    previous_position: int
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, previous_position: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("position", "records", "partition")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    position: int
    records: bytes
    partition: int
    def __init__(self, position: _Optional[int] = ..., records: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Greeted(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: int
    def __init__(self, position: _Optional[int] = ...) -> None: ...

class Stale(_message.Message):
    __slots__ = ("player_term", "target_term")
    PLAYER_TERM_FIELD_NUMBER: _ClassVar[int]
    TARGET_TERM_FIELD_NUMBER: _ClassVar[int]
    player_term: int
    target_term: int
    def __init__(self, player_term: _Optional[int] = ..., target_term: _Optional[int] = ...) -> None: ...

class Acknowledged(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: int
    def __init__(self, position: _Optional[int] = ...) -> None: ...
