"""What `python -m tests.player.generate` makes of `player/player.proto`; never edited by hand.

Messages alone: a service's generated stub needs a grpcio as new as the generator, which users need not
have; `player.transport` names the one method itself.
"""
