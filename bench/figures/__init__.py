"""From measurements to the texts, tables and pictures of them; measures nothing.

| module | |
|---|---|
| `ratios`, `intervals` | medians, ratios, goals; how sure a ratio is. Pure |
| `kills` | seconds from a kill to the next acknowledgement, of several kills. Pure |
| `origins` | may rows of several runs stand side by side. Pure |
| `contention` | goodput, refusals, shares and waits of many clients. Pure |
| `tables`, `pictures`, `templates` | what results of all kinds have in common, for readers |
"""
