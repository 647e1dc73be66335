"""Functions' own time and that with callees, from folded stacks."""

from __future__ import annotations

from bench.profile.command import folded_shares


def test_folded_stacks_give_own_and_total_shares() -> None:
    own, total, samples = folded_shares(
        "main (m.py:3);turn (g.py:7);append 6\n"
        "main (m.py:3);turn (g.py:9) 3\n"
        "main (m.py:3);turn (g.py:1);turn (g.py:2) 1\n"
        "Thread._bootstrap (threading.py:1002);wait 90\n"
    )
    assert samples == 10
    assert (own["append"], own["turn (g.py)"], own["main (m.py)"]) == (6, 4, 0)
    assert (total["main (m.py)"], total["turn (g.py)"], total["append"]) == (10, 10, 6)
