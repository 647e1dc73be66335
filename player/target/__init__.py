"""The target's side of a player's stream: what every target must do, in whatever it stores.

| module | owns |
|---|---|
| `marks` | the rule (pure): terms, gaps, duplicates, what to store together, what to acknowledge |
"""
