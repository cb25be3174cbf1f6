#!/usr/bin/env bash
# Compares examples/resp_server with redis-server under redis-benchmark, and prints a table.
#
#   cargo build --release --example resp_server
#   benches/redis.sh target/release/examples/resp_server [ROUNDS]
#
# Needs Linux, two cpus, and the Debian packages redis-server and redis-tools. Both servers use one
# thread on cpu 0, and redis-benchmark uses cpu 1. In each round both serve the same requests one
# after the other, and they take turns at being the first. The CPU time per request is that of the
# server's process.

set -euo pipefail

ours=${1:?usage: redis.sh RESP_SERVER [ROUNDS]}
rounds=${2:-9}
requests=1000000
# "ping" is both of the first two.
tests=(ping_inline ping_mbulk set get)
work=$(mktemp -d)
ports=(17379 17380)
processes=()

cleanup() {
    for process in "${processes[@]}"; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT

taskset -c 0 redis-server --port "${ports[0]}" --save '' --appendonly no >/dev/null &
processes+=($!)
taskset -c 0 "$ours" --listen "127.0.0.1:${ports[1]}" >/dev/null &
processes+=($!)
for port in "${ports[@]}"; do
    until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.1; done
done

# The CPU time of a process in seconds.
cpu() { awk -v hertz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / hertz }' "/proc/$1/stat"; }

# measure SERVER ROUND: runs each test once and records: test, server, round, requests/s, CPU us.
measure() {
    local process=${processes[$1]} test before rate
    for test in "${tests[@]}"; do
        before=$(cpu "$process")
        rate=$(taskset -c 1 redis-benchmark -p "${ports[$1]}" -P 16 -t "$test" -n $requests --csv 2>/dev/null |
            awk -F '"' 'NR == 2 { print $4 }')
        awk -v test="$test" -v server="$1" -v round="$2" -v rate="$rate" -v requests=$requests \
            -v before="$before" -v after="$(cpu "$process")" \
            'BEGIN { print test, server, round, rate, (after - before) * 1e6 / requests }' >>"$work/results"
    done
}

for round in $(seq "$rounds"); do
    measure $((round % 2)) "$round"
    measure $((1 - round % 2)) "$round"
done

echo "$rounds rounds of $requests requests per test, load average $(cut -d' ' -f1-3 /proc/loadavg) at the end."
echo
echo "| test | redis-server requests/s | resp_server requests/s | CPU us, redis-server | CPU us, resp_server | CPU time, ratio |"
echo "|---|---:|---:|---:|---:|---:|"
# Prints the median of a column and its quartiles.
quartiles() { sort -n | awk -v form="$1" '{ v[NR] = $1 } function q(p) { return v[int((NR - 1) * p + 1.5)] } END { printf form " (" form " to " form ")", q(.5), q(.25), q(.75) }'; }
for test in "${tests[@]}"; do
    column() { awk -v test="$test" -v server="$1" -v field="$2" '$1 == test && $2 == server { print $field }' "$work/results"; }
    ratio() { awk -v test="$test" '$1 == test { cpu[$2, $3] = $5; last = $3 } END { for (i = 1; i <= last; i++) print cpu[1, i] / cpu[0, i] }' "$work/results"; }
    echo "| $test | $(column 0 4 | quartiles %.0f) | $(column 1 4 | quartiles %.0f) | $(column 0 5 | quartiles %.2f) | $(column 1 5 | quartiles %.2f) | $(ratio | quartiles %.2f) |"
done
