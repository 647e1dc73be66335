"""Who is a member of each log group, and who leads it: where groups belong and how they get there.

`placement` (pure) says which nodes hold which group. `view` (pure) is what a group's leader knows, `steps`
(pure) the one change that is safe and useful now, `pace` (pure) how often leadership moves; `keeper` looks
and asks the group. The change itself is Raft's (`storage/raft/membership`).
"""
