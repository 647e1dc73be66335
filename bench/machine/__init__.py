"""The machine that measures: what it does is counted and told, and it is kept still. Knows no protocol.

| module | |
|---|---|
| `clocks` | how long one call takes, in a loop |
| `device` | flushes and bytes that reached the disk |
| `facts` | the machine and the code behind a result |
| `memory` | free memory, kept in the page cache |
| `pauses` | how long the whole machine stood still |
| `process` | a broker's CPU seconds, resident memory, compiler threads |
"""
