"""Freed memory goes back to the system: judged in other processes, by what the C library and Linux say."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import platform
import subprocess
import sys

import pytest

from lockstep.broker.server import Broker
from tests.broker.maintenance.test_compaction import broker, client, compaction_of, filler, keyed  # noqa: F401
from tests.broker.wire import Client

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these functions")

HEAPS = """
import ctypes, os, sys, threading
from lockstep.broker.process import heap
if sys.argv[1] == "shared":
    heap.share_arenas()
began, ended = threading.Barrier(7), threading.Barrier(7)
def work():
    began.wait()
    kept = [bytearray(5000 + i) for i in range(50)]
    ended.wait()
threads = [threading.Thread(target=work) for _ in range(6)]
for each in threads: each.start()
began.wait()
ended.wait()
for each in threads: each.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
read, write = os.pipe()
stream = ctypes.c_void_p(libc.fdopen(write, b"w"))
libc.malloc_info(0, stream)
libc.fclose(stream)
print(os.read(read, 1 << 16).count(b"<heap nr="))
"""
FREED = """
from lockstep.broker.process import heap
def resident():
    return int(open("/proc/self/statm").read().split()[1]) // 256
heap.keep_large_blocks_apart()
blocks = [bytearray(100_000) for _ in range(640)]
highest = blocks[-1]
full = resident()
del blocks
freed = resident()
heap.trim_heap()
print(full - freed, full - resident())
"""


def run(program: str, *words: str, **variables: str) -> list[int]:
    environment = {**{k: v for k, v in os.environ.items() if k != "MALLOC_ARENA_MAX"}, **variables}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def test_all_threads_but_the_first_share_a_heap() -> None:
    assert run(HEAPS, "apart")[0] > 2
    assert run(HEAPS, "shared")[0] <= 2


def test_a_number_of_heaps_in_the_environment_stays() -> None:
    assert run(HEAPS, "shared", MALLOC_ARENA_MAX="5")[0] > 2


def test_blocks_freed_below_a_living_one_go_back_to_the_system() -> None:
    before, after = run(FREED)
    assert before < 10 < 50 < after, "MiB"


@pytest.mark.parametrize("is_busy", [False, True])
async def test_memory_of_a_cleaning_pass_goes_back_once_the_broker_is_idle(
    broker: Broker,  # noqa: F811
    client: Client,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    is_busy: bool,
) -> None:
    given_back: list[None] = []
    monkeypatch.setattr("lockstep.broker.maintenance.compaction.trim_heap", lambda: given_back.append(None))
    monkeypatch.setattr("lockstep.broker.maintenance.compaction.BUSY_SHARE", -1 if is_busy else 1000)
    await client.create("c", cleanup_policy="compact")
    for value in (b"1", b"2"):
        await client.produce("c", keyed([(b"k", value)]))
        await filler(client)
    compaction = compaction_of(broker)
    assert await broker.compact() > 0
    cluster = compaction._cluster
    monkeypatch.setattr(cluster, "settings", dataclasses.replace(cluster.settings, log_cleaner_backoff_ms=10))
    running = asyncio.ensure_future(compaction.run())
    await asyncio.sleep(0.3)
    running.cancel()
    assert len(given_back) == (0 if is_busy else 1)
