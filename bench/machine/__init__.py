"""What the machine does while brokers are measured: counted, told, kept still. Knows no broker's protocol.

| module | |
|---|---|
| `device` | flushes and bytes that reached the disk |
| `facts` | the machine and the code behind a result |
| `memory` | free memory, kept in the page cache |
| `pauses` | how long the whole machine stood still |
| `process` | a broker's CPU seconds, resident memory, compiler threads |
| `timing` | how long one call takes, in a loop |
"""
