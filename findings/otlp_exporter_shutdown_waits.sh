#!/usr/bin/env bash
# opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http 1.45.2: shutdown() with nobody at the collector's port takes seconds.
#
# Expected of a refused connection (it fails within a millisecond): a shutdown at once, or an error. Seen: the last export is tried again
# with growing pauses, and shutdown() of the meter provider blocks for 5 to 15 seconds and raises nothing. A service manager's stop timeout
# has to cover it, and it must not be called in an event loop. shutdown(timeout_millis=500) is kept.
. "$(dirname "$0")/lib.sh"

python_with opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2
port=$(free_port)
"$PYTHON" - "$port" >"$WORK/out.txt" 2>"$WORK/err.txt" <<'PROGRAM'
import sys, time
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

for limit in (None, 500):
    exporter = OTLPMetricExporter(endpoint=f"http://127.0.0.1:{sys.argv[1]}/v1/metrics")
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)])
    provider.get_meter("m").create_counter("c").add(1)
    began, raised = time.monotonic(), "nothing"
    try:
        provider.shutdown() if limit is None else provider.shutdown(timeout_millis=limit)
    except Exception as error:
        raised = type(error).__name__
    print(f"{time.monotonic() - began:.2f} {raised}")
PROGRAM
cat "$WORK/out.txt"
read -r seconds raised <<<"$(sed -n 1p "$WORK/out.txt")"
expect "shutdown() takes 3 seconds or more" "$(python3 -c "print($seconds >= 3)")" True
expect "shutdown() raises" "$raised" nothing
read -r seconds raised <<<"$(sed -n 2p "$WORK/out.txt")"
expect "shutdown(timeout_millis=500) takes less than 2 seconds" "$(python3 -c "print($seconds < 2)")" True
