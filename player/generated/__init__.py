"""What `python -m tests.player.generate` makes of `player/player.proto`; never edited by hand.

Messages alone: a service's generated stub asks for a grpcio as new as the generator, which nobody needs to
have; `player.transport` names the one method itself.
"""
