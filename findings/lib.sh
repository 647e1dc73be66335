# Shared by the findings: a temporary folder, a Python environment, an Apache Kafka broker of one node.
# Needs bash and, for those who ask for them, python3 (3.11 or newer), Maven with Java 17, Go. Loopback only.
set -euo pipefail

WORK=$(mktemp -d)
PIDS=()

end_all() {
    for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$WORK"
}
trap end_all EXIT

# python_with PACKAGE==VERSION...: makes $PYTHON, which has these packages.
python_with() {
    python3 -m venv "$WORK/venv"
    PYTHON="$WORK/venv/bin/python"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check "$@"
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# maven_jars DIRECTORY GROUP:ARTIFACT:VERSION...: Maven copies these jars and what they need; the first named wins.
maven_jars() {
    local directory=$1 each
    shift
    mkdir -p "$directory"
    {
        printf '<project><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>'
        printf '<version>1</version><packaging>pom</packaging><dependencies>'
        for each in "$@"; do
            printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>' \
                "$(cut -d: -f1 <<<"$each")" "$(cut -d: -f2 <<<"$each")" "$(cut -d: -f3 <<<"$each")"
        done
        printf '</dependencies></project>'
    } >"$directory/pom.xml"
    mvn -q -B -f "$directory/pom.xml" dependency:copy-dependencies -DoutputDirectory="$directory" >"$WORK/maven.log" 2>&1 ||
        { tail -5 "$WORK/maven.log"; exit 2; }
}

# kafka_jars VERSION [GROUP:ARTIFACT:VERSION...]: the broker's and the tools' jars, and others; sets $JARS.
kafka_jars() {
    local version=$1
    shift
    JARS="$WORK/jars-$version"
    maven_jars "$JARS" "org.apache.kafka:kafka_2.13:$version" "org.apache.kafka:kafka-tools:$version" "$@"
}

# kafka_broker VERSION [SETTING=VALUE...]: formats and starts one node with the broker's defaults otherwise; sets $SERVER, $BROKER_LOG.
kafka_broker() {
    local version=$1 port controller properties
    shift
    [ -n "${JARS:-}" ] || kafka_jars "$version"
    port=$(free_port)
    controller=$(free_port)
    SERVER="127.0.0.1:$port"
    BROKER_LOG="$WORK/broker.log"
    properties="$WORK/server.properties"
    {
        printf 'process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n'
        printf 'controller.quorum.voters=1@127.0.0.1:%s\n' "$controller"
        printf 'listeners=PLAINTEXT://127.0.0.1:%s,CONTROLLER://127.0.0.1:%s\n' "$port" "$controller"
        printf 'listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n'
        printf 'log.dirs=%s/data\n' "$WORK"
        [ $# -eq 0 ] || printf '%s\n' "$@"
    } >"$properties"
    tool kafka.tools.StorageTool random-uuid >"$WORK/id" 2>/dev/null
    tool kafka.tools.StorageTool format -t "$(cat "$WORK/id")" -c "$properties" >"$WORK/format.log" 2>&1
    java -Xmx512m -cp "$JARS/*" kafka.Kafka "$properties" >"$BROKER_LOG" 2>&1 &
    PIDS+=($!)
    wait_for_port "$port" "the broker"
}

wait_for_port() {
    python3 - "$1" "$2" <<'PROGRAM'
import socket, sys, time
end = time.time() + 90
while time.time() < end:
    with socket.socket() as s:
        if s.connect_ex(("127.0.0.1", int(sys.argv[1]))) == 0:
            sys.exit(0)
    time.sleep(0.2)
sys.exit(f"{sys.argv[2]} did not start")
PROGRAM
}

# connect_worker: a standalone Kafka Connect worker on $SERVER, of the connect-runtime among $JARS; sets $CONNECT, the address of its REST API.
connect_worker() {
    local port
    port=$(free_port)
    CONNECT="http://127.0.0.1:$port"
    {
        printf 'bootstrap.servers=%s\nlisteners=%s\noffset.flush.interval.ms=1000\n' "$SERVER" "$CONNECT"
        printf 'key.converter=org.apache.kafka.connect.storage.StringConverter\n'
        printf 'value.converter=org.apache.kafka.connect.storage.StringConverter\n'
        printf 'offset.storage.file.filename=%s/connect.offsets\nplugin.discovery=only_scan\n' "$WORK"
    } >"$WORK/connect.properties"
    java -Xmx512m -cp "$JARS/*" org.apache.kafka.connect.cli.ConnectStandalone "$WORK/connect.properties" >"$WORK/connect.log" 2>&1 &
    PIDS+=($!)
    wait_for_port "$port" "the Connect worker"
}

# connector NAME SETTING=VALUE...: makes or changes a connector; prints the status and the body of the worker's answer.
connector() {
    python3 - "$CONNECT/connectors/$1/config" "${@:2}" <<'PROGRAM'
import json, sys, time, urllib.error, urllib.request

url, *settings = sys.argv[1:]
body = json.dumps(dict(each.split("=", 1) for each in settings)).encode()
for _ in range(60):  # the API listens before it serves
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
    try:
        with urllib.request.urlopen(asked, timeout=90) as answer:
            print(answer.status, answer.read().decode())
        break
    except urllib.error.HTTPError as error:
        if error.code not in (404, 503):
            print(error.code, error.read().decode())
            break
    time.sleep(0.5)
else:
    sys.exit("the Connect worker does not serve")
PROGRAM
}

# tool CLASS ARGUMENT...: one of Kafka's command-line tools.
tool() {
    java -Xmx256m -cp "$JARS/*" "$@" 2> >(grep -v '^SLF4J' >&2)
}

# expect WHAT SEEN STATED: fails where the behaviour is another one than the finding states.
expect() {
    if [ "$2" = "$3" ]; then
        printf 'seen as stated: %s: %s\n' "$1" "$2"
    else
        printf 'CHANGED: %s: seen %s, stated %s\n' "$1" "$2" "$3"
        exit 1
    fi
}
