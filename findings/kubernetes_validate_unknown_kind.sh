#!/usr/bin/env bash
# kubernetes-validate 1.37.0: a manifest of a kind that no schema knows is a warning, and the exit status is 0 also with --strict.
#
# Expected of --strict: a failure. Seen: "StatefullSet" (a typing error) passes with a WARN line, while a wrong type within a known kind is an
# error with status 1. A check of rendered charts has to look for WARN in the output as well.
. "$(dirname "$0")/lib.sh"

python_with kubernetes-validate==1.37.0
cd "$WORK"
printf 'apiVersion: apps/v1\nkind: StatefullSet\nmetadata: {name: a}\nspec: {}\n' >unknown.yaml
printf 'apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: "x"}]}\n' >wrong.yaml
for file in unknown wrong; do
    status=0
    "$WORK/venv/bin/kubernetes-validate" --strict "$file.yaml" >"$file.txt" 2>&1 || status=$?
    head -3 "$file.txt"
    echo "$status" >"$file.status"
done
expect "exit status for an unknown kind" "$(cat unknown.status)" 0
expect "WARN lines for it" "$(grep -c '^WARN' unknown.txt)" 1
expect "exit status for a wrong type" "$(cat wrong.status)" 1
