"""A node among others: how it finds its part, whom it knows, what is carried where (decision 19).

What is recorded of the cluster is `broker/cluster_image.py`, what clients see of it `Cluster` in
`broker/metadata.py`; both are there for a node alone, too. Here is what several nodes need beside that.

| file | owns |
|---|---|
| `node` | this node's life: its first start, registering, opening and giving up groups as they are placed |
| `joining` | what a node with an empty directory is (pure) |
| `nodes` | the others as this node sees them: who lives, who leads, where clients reach them |
| `majority` | what is said while too few nodes are reached |
| `lagging` | whose copy of a log group lags, as its leader sees it: who is not in sync (pure) |
| `node_status` | what nodes tell each other of themselves (pure) |
| `peering` | the talk: telling, asking whoever leads a group, greetings |
| `controller` | requests on their way to the leader of group 0 |
| `group_commands` | the controller's commands on their way to the leaders of data groups |
| `orphans` | partitions that no topic knows of, found and closed |
| `group_report` | one log group as its leader can tell it |
| `reports` | the cluster as one node can tell it, for `lockstep cluster status` |
| `damage_reports` | what each node knows to be damaged on its disk, and giving it up |
| `reassigning` | partitions that clients have moved, by whole log groups |
| `admin` | nodes added and removed, groups led by another, for the rest of `lockstep cluster` |

Of these a node alone has `nodes`, `controller` and `group_commands`, with nobody to ask, and `reports`. Who
is a member of a log group is decided in `broker/membership/`.
"""
