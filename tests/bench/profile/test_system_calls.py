"""What the kernel did for the loop's thread: perf's samples, by call and by group commit."""

from __future__ import annotations

import pytest

from bench.profile import stages, system_calls

SCRIPT = """\
lockstep  71 61053.770044: cpu-clock:
\t          1aee6b _PyObject_Free (/usr/lib/libpython3.11.so.1.0)

lockstep  71 61053.772626: cpu-clock:
\tffffffff821faaa2 tcp_recvmsg
\tffffffff82100001 ksys_read ([kernel.kallsyms])
\tffffffff82100000 do_syscall_64 ([kernel.kallsyms])
\t          140651 uv__read (/site-packages/uvloop/loop.so)

lockstep  71 61053.774626: cpu-clock:
\tffffffff821fab00 ext4_sync_file
\tffffffff82100011 __x64_sys_fdatasync

lockstep  71 61053.776626: cpu-clock:
\tffffffff821faaa2 clear_page
\tffffffff81000e06 asm_exc_page_fault
\t          1af833 _PyObject_Malloc

lockstep  71 61053.777626: cpu-clock:
\t          140651 uv__read (/site-packages/uvloop/loop.so)

lockstep  71 61053.778626: cpu-clock:
\tffffffff821fab00 do_futex
\tffffffff82100011 __x64_sys_futex

"""


def test_samples_are_grouped_by_their_system_call() -> None:
    found = system_calls.count_samples(SCRIPT)
    assert found == {
        system_calls.PYTHON: 1,
        system_calls.LOOP: 1,
        "reads from sockets": 1,
        "flushes, without waiting": 1,
        system_calls.OTHER: 2,
    }
    assert not system_calls.count_samples("")


def test_a_commit_has_each_call_by_its_share_of_the_processor_time() -> None:
    spent = system_calls.per_commit(system_calls.count_samples(SCRIPT), 0.5, 1000.0)
    assert spent[system_calls.OTHER] == pytest.approx(1000 / 6)
    assert sum(spent.values()) == pytest.approx(500.0)
    with pytest.raises(ValueError, match="no samples"):
        system_calls.per_commit(system_calls.count_samples(""), 0.5, 1000.0)


def test_the_page_has_calls_where_perf_saw_some_and_the_rates_with_and_without_a_sampler() -> None:
    one = {
        "nodes": 1,
        "work": "latency16",
        "per_commit_us": {"parse": 40.0},
        "commit_us": 1000.0,
        "writes_per_commit": 15.8,
        "requests_per_s": 22_000.0,
    }
    told = {**one, "requests_per_s_alone": 23_456.0, "calls_per_commit_us": {"reads from sockets": 60.25}}
    rows = [stages.table({"splits": [each]}) for each in (one, told)]
    assert "22,000" in rows[0] and "23,456" not in rows[0]
    assert "22,000" in rows[1] and "23,456" in rows[1]
    assert system_calls.table({"splits": [one]}) == ""
    calls = system_calls.table({"splits": [one, told]})
    assert "reads from sockets" in calls and "60.2 us" in calls
