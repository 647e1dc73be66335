"""The TLA+ models of `model/`: running TLC over them, and judging the simulator's traces by them."""
