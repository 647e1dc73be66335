"""A shard that a player sends to: the newest value of each key, and a log of what was applied, for audits.

    python -m lockstep.demo.shard --store sqlite:///shard.db --listen localhost:7100

`tables` owns the state, `__main__` the command line. It uses what any application may use: `lockstep.target`.
"""
