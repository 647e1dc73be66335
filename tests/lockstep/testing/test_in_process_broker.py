"""The broker that applications' tests start."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

import lockstep.testing
from lockstep.broker.settings.properties import ConfigError
from lockstep.kafka_client.client import LATEST, Client


async def produce(bootstrap: str, topic: str, value: bytes) -> int:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        return int((await producer.send_and_wait(topic, value)).offset)


async def test_a_client_writes_to_it_and_nothing_is_left_behind() -> None:
    async with lockstep.testing.broker() as broker:
        assert await produce(broker.bootstrap_servers, "t", b"hello") == 0
        directory = broker.directory
        assert directory.is_dir()
        port = broker.port
    assert not directory.exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("localhost", port)) != 0
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_two_at_once() -> None:
    async with lockstep.testing.broker() as one, lockstep.testing.broker() as other:
        await produce(one.bootstrap_servers, "t", b"hello")
        async with Client(other.bootstrap_servers) as client:
            assert await client.topics() == []


async def test_data_outlive_it_where_a_directory_is_given(tmp_path: Path) -> None:
    for number in range(3):
        async with lockstep.testing.broker(data_dir=tmp_path / "data") as broker:
            assert await produce(broker.bootstrap_servers, "t", b"hello") == number
    assert (tmp_path / "data").is_dir()


async def test_settings_reach_it() -> None:
    async with lockstep.testing.broker(num_partitions=7, message_max_bytes=5_000_000) as broker:
        async with Client(broker.bootstrap_servers) as client:
            topic = await client.topic("t", create=True)
            assert len(topic.partitions) == 7
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, max_request_size=5_000_000)
        async with producer:
            await producer.send_and_wait("t", bytes(4_900_000))
    with pytest.raises(ConfigError, match="no_such_setting"):
        async with lockstep.testing.broker(no_such_setting=1):
            pass


async def test_a_test_that_fails_still_stops_it() -> None:
    with pytest.raises(ZeroDivisionError):
        async with lockstep.testing.broker() as broker:
            port = broker.port
            raise ZeroDivisionError
    with socket.socket() as probe:
        assert probe.connect_ex(("localhost", port)) != 0


def test_in_a_thread_for_clients_that_block() -> None:
    with lockstep.testing.broker_in_thread() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        assert producer.send("t", b"hello").get(10).offset == 0
        producer.close()
        directory = broker.directory
    assert not directory.exists()


def test_in_a_thread_an_invalid_setting_is_reported() -> None:
    with pytest.raises(ConfigError, match="bogus"), lockstep.testing.broker_in_thread(log_flush="bogus"):
        pass


async def test_an_offset_of_an_empty_topic() -> None:
    async with lockstep.testing.broker() as broker, Client(broker.bootstrap_servers) as client:
        topic = await client.topic("t", create=True)
        assert await client.offsets(topic, [0], LATEST) == {0: 0}
