#!/usr/bin/env bash
# kafka-python 3.0.12 (Apache Kafka 4.4.0): with a wrong password the application reads "Unable to bootstrap", and nothing of a login.
#
# Expected, as of librdkafka: the broker's text of the failed login, "Invalid username or password", reaches the application. Seen: KafkaAdminClient and KafkaProducer try again
# until their time is over and raise KafkaTimeoutError about the address. The log says "socket disconnected" at each try; the reason is there only where the
# answer and the end of the connection happen to be read apart.
. "$(dirname "$0")/lib.sh"

python_with kafka-python==3.0.12 confluent-kafka==2.16.1
LOGIN='org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret" user_alice="secret";'
kafka_broker 4.4.0 offsets.topic.replication.factor=1 listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT \
    inter.broker.listener.name=PLAINTEXT sasl.mechanism.inter.broker.protocol=PLAIN sasl.enabled.mechanisms=PLAIN \
    "listener.name.plaintext.plain.sasl.jaas.config=$LOGIN"
cat >"$WORK/login.py" <<'PROGRAM'
import logging, sys
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

server = sys.argv[1]
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("kafka").addHandler(handler)

said = []
other = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "wrong"}
producer = Producer({"bootstrap.servers": server, "error_cb": lambda error: said.append(error.str()), **other})
producer.poll(5)
print("librdkafka", any("Invalid username or password" in each for each in said))
words = dict(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_plain_username="alice", sasl_plain_password="wrong")
for name, make in (
    ("admin", lambda: KafkaAdminClient(bootstrap_servers=server, bootstrap_timeout_ms=5000, **words)),
    ("producer", lambda: KafkaProducer(bootstrap_servers=server, max_block_ms=5000, **words).send("t", b"v").get(10)),
):
    lines.clear()
    try:
        make()
        said = "made"
    except Exception as error:
        said = f"{type(error).__name__}, {'with' if 'password' in str(error) else 'without'} the reason"
    print(name, said)
    print(name, "log", any("socket disconnected" in each for each in lines))
PROGRAM
"$PYTHON" "$WORK/login.py" "$SERVER" >"$WORK/out.txt" 2>"$WORK/err.txt" || { tail -3 "$WORK/err.txt"; exit 2; }
expect "librdkafka's application hears the reason" "$(sed -n 1p "$WORK/out.txt")" "librdkafka True"
expect "kafka-python's admin" "$(sed -n 2p "$WORK/out.txt")" "admin KafkaTimeoutError, without the reason"
expect "kafka-python's log has a lost connection" "$(sed -n 3p "$WORK/out.txt")" "admin log True"
expect "kafka-python's producer" "$(sed -n 4p "$WORK/out.txt")" "producer KafkaTimeoutError, without the reason"
