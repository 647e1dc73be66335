"""The members and the leader of each log group: its placement, and the steps towards it.

`placement` (pure) assigns groups to nodes. `group_view` (pure) is the state that a group's leader knows,
`next_change` (pure) the one change that is safe and useful now, `transfer_backoff` (pure) limits leadership
transfers; `reconciler` runs the change. The change itself is Raft's (`storage/raft/membership`).
"""
