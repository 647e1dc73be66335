"""The Raft state machine: no clock, no randomness, no input or output.

It knows entries as (index, term) pairs and never sees a payload. Source: Ongaro and Ousterhout, "In search of
an understandable consensus algorithm"; seed 001 for the shared log.
"""
