"""The machine that measures: its other work is counted and reported, and kept small. Knows no protocol.

| module | |
|---|---|
| `device` | flushes and bytes that reached the disk |
| `facts` | the machine and the code behind a result |
| `memory` | free memory, kept in the page cache |
| `pauses` | how long the whole machine stood still |
| `process` | a broker's CPU seconds, resident memory, compiler threads; the time of one call |
"""
