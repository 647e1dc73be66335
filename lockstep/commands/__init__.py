"""One module per family of commands: `add_to(families)` declares it, its `run` does it.

At import they may import nothing but argparse and the like; see `lockstep.cli`.
"""
