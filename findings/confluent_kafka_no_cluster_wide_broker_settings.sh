#!/usr/bin/env bash
# confluent-kafka 2.16.1: the settings that hold for all brokers cannot be named, so neither described nor changed.
#
# Expected: ConfigResource("broker", "") stands for all brokers, as in Kafka's Admin and `kafka-configs --entity-default`. Seen: ValueError before anything is sent;
# only the settings of one broker, by its id, are within reach.
. "$(dirname "$0")/lib.sh"

python_with confluent-kafka==2.16.1
"$PYTHON" - >"$WORK/out.txt" <<'PROGRAM'
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})  # nobody listens there: what is refused is refused before
entry = ConfigEntry("log.retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
for name in ("1", ""):
    for ask in (admin.describe_configs, admin.incremental_alter_configs):
        try:
            ask([ConfigResource(ConfigResource.Type.BROKER, name, incremental_configs=[entry])])
            print(repr(name), ask.__name__, "is sent")
        except ValueError as error:
            print(repr(name), ask.__name__, error)
PROGRAM
cat "$WORK/out.txt"
expect "describe one broker" "$(sed -n 1p "$WORK/out.txt")" "'1' describe_configs is sent"
expect "alter one broker" "$(sed -n 2p "$WORK/out.txt")" "'1' incremental_alter_configs is sent"
expect "describe all brokers" "$(sed -n 3p "$WORK/out.txt")" "'' describe_configs Invalid ConfigResource(4,)"
expect "alter all brokers" "$(sed -n 4p "$WORK/out.txt" | sed 's/ Invalid.*/ refused/')" "'' incremental_alter_configs refused"
