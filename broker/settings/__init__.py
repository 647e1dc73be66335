"""Every setting: of a broker, a topic, a group; how each is read, changed and described to clients.

Nothing here knows of a running broker; changes that go through the cluster are
`broker/controller/config_changes.py`.

| concern | files |
|---|---|
| one setting: declared, read from text, shown | `properties`, `addresses` |
| a broker's, all of them | `config`; `settings_reader` (from names and text), `settings_checks` |
| where they come from: a file, the command line, references | `loader`, `config_providers` |
| its parts: this node and its peers | `peer_settings` |
| its parts: the log | `data_log_settings`, `cleaner_settings` |
| its parts: what topics follow, and little besides | `topic_default_settings` |
| its parts: clients | `connection_settings`, `consumer_group_settings`, `transaction_settings` |
| its parts: encryption and who a client is | `security_settings`, `oauthbearer_settings` |
| its parts: who may do what | `authorizer_settings`, `delegation_token_settings` |
| its parts: how much of it | `quota_settings` |
| its parts: beside the broker | `metrics_settings`, `player_settings` |
| names that have no effect here: Kafka's; those of others, and mistakes | `kafka_names`, `foreign_names` |
| what is meant by a name that there is not | `suggestions` |
| a topic's, a group's, a logger's | `topic_config`, `group_config`, `log_levels` |
| what may change while the broker runs, and what is in force | `dynamic_config`, `stored_settings` |
| as DescribeConfigs reports them | `described_config` |
"""
