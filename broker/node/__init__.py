"""This node's life in a cluster: its first start, its data directory and the log groups that it opens.

| file | owns |
|---|---|
| `cluster_node` | registering, opening and closing log groups as they are placed |
| `first_start` | the part of a node with an empty directory (pure) |
| `data_directory` | what a data directory belongs to |
| `properties_file` | reading the properties files of a data directory |
| `missing_records` | the records missing in salvaged logs, once the topics are known |
| `local_groups` | the open log groups of this node, with their state machines |
"""
