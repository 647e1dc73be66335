"""Long campaigns against a real broker process, and the checkers that judge them.

Each campaign prints its seed, adds what it measured to docs/evidence/, and ends with status 1 when a
promise was broken. The tests beside them run a short cut of each and plant faults in the checkers.
"""
