#!/usr/bin/env bash
# Runs every example briefly, and checks what it does.
#
#   cargo build --release --features json --examples
#   examples/smoke.sh target/release/examples
#
# Takes about half a minute; every port is a free one. The exit status is 0 if all is as it should be.

set -uo pipefail

bin=${1:?usage: smoke.sh DIRECTORY_OF_THE_BUILT_EXAMPLES}
work=$(mktemp -d)
failures=0
server=

cleanup() {
    [ -n "$server" ] && kill -KILL "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

pass() { echo "ok    $1"; }

fail() {
    echo "FAIL  $1"
    shift
    for file in "$@"; do sed 's/^/      | /' "$file"; done
    failures=$((failures + 1))
}

# expect NAME FILE PATTERN: the file has a line that matches.
expect() {
    if grep -Eq -- "$3" "$2"; then pass "$1"; else fail "$1: nothing matches $3" "$2"; fi
}

# await FILE PATTERN: waits until the file has a line that matches, at most ten seconds.
await() {
    for _ in $(seq 100); do
        grep -Eqs -- "$2" "$1" && return
        sleep 0.1
    done
}

# start NAME ARGUMENTS...: starts a server; sets $server and $port.
start() {
    # What an earlier one has said must not be taken for its word.
    rm -f "$work/$1.out"
    "$bin/$1" "${@:2}" >"$work/$1.out" 2>"$work/$1.err" &
    server=$!
    for _ in $(seq 100); do
        port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$work/$1.out")
        [ -n "$port" ] && return
        sleep 0.05
    done
    fail "$1 starts" "$work/$1.out" "$work/$1.err"
    exit 1
}

# stop NAME: one Ctrl-C has to end it, in good order and within seconds.
stop() {
    local code
    kill -INT "$server"
    for _ in $(seq 100); do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$server" 2>/dev/null; then
        fail "$1 stops at the first Ctrl-C"
        kill -KILL "$server"
    else
        wait "$server"
        code=$?
        if [ $code -eq 0 ]; then pass "$1 stops at the first Ctrl-C"; else fail "$1 stops: exit status $code" "$work/$1.err"; fi
    fi
    server=
}

# talk SECONDS: standard input to the server, its answers to standard output, until it closes or the time is up.
talk() {
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return
    cat >&3
    timeout "$1" cat <&3
    exec 3>&-
}

check_help() {
    local name
    for name in echo_server udp_echo im_server im_client im_bots bench_server timer_demo; do
        "$bin/$name" --help >"$work/help" 2>&1
        expect "$name --help" "$work/help" '^Usage: '
    done
}

check_echo() {
    start echo_server --listen 127.0.0.1:0 --threads 1
    printf 'hello\n' | talk 1 >"$work/echo"
    expect "echo_server sends back" "$work/echo" '^hello$'
    stop echo_server

    start echo_server --listen 127.0.0.1:0 --threads 1 --frames --idle-timeout 200ms
    # Two frames; of a third one only the beginning, which must not come back.
    printf '\0\0\0\2hi\0\0\0\1!\0\0\0\5hel' | talk 5 >"$work/frames"
    if printf '\0\0\0\2hi\0\0\0\1!' | cmp -s - "$work/frames"; then
        pass "echo_server --frames sends back whole frames, and closes who is idle"
    else
        fail "echo_server --frames" "$work/frames"
    fi
    stop echo_server

    if ! nc -h 2>&1 | grep -q -- '-U'; then
        echo "skip  echo_server --unix: there is no nc that knows Unix sockets"
        return
    fi
    rm -f "$work/echo_server.out"
    "$bin/echo_server" --unix "$work/socket" --threads 1 >"$work/echo_server.out" 2>"$work/echo_server.err" &
    server=$!
    await "$work/echo_server.out" '^listening on unix:'
    printf 'hello\n' | timeout 1 nc -U "$work/socket" >"$work/echo"
    expect "echo_server --unix sends back" "$work/echo" '^hello$'
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    rm -f "$work/echo_server.out"
    if [ -S "$work/socket" ]; then pass "a server that is killed leaves its socket"; else fail "the socket is gone"; fi
    "$bin/echo_server" --unix "$work/socket" --threads 1 >"$work/echo_server.out" 2>"$work/echo_server.err" &
    server=$!
    await "$work/echo_server.out" '^listening on unix:'
    printf 'again\n' | timeout 1 nc -U "$work/socket" >"$work/echo"
    expect "echo_server --unix takes the place of one that was killed" "$work/echo" '^again$'
    stop echo_server
    if [ -e "$work/socket" ]; then fail "the socket is left"; else pass "echo_server removes its socket"; fi
}

check_udp_echo() {
    start udp_echo --listen 127.0.0.1:0
    exec 3<>"/dev/udp/127.0.0.1/$port"
    printf 'hello\n' >&3
    timeout 5 head -n 1 <&3 >"$work/udp"
    exec 3>&-
    expect "udp_echo sends back" "$work/udp" '^hello$'
    stop udp_echo
    expect "udp_echo counts" "$work/udp_echo.out" '^received 1, sent 1$'
}

check_im_server() {
    local out=$work/session
    start im_server --listen 127.0.0.1:0 --threads 2 --heartbeat 300ms --idle-timeout 2s --max-line 1000 \
        --ack-timeout 100ms --drain 200ms --lookup-time 200ms --max-lookups 2
    talk 5 >"$out" <<'LINES'
{"type":"join","room":"lobby"}
{"type":"login","user":"ann"}
{"type":"join","room":"lobby"}
{"type":"say","room":"lobby","text":"hello","id":7}
{"type":"say","room":"cellar","text":"hello"}
nonsense
{"type":"who","room":"lobby"}
{"type":"direct","to":"nobody","text":"hello","id":"a"}
{"type":"direct","to":"ann","text":"hello","id":"b"}
{"type":"lookup","user":"ann","id":"c"}
{"type":"lookup","user":"zoe","id":"d"}
{"type":"lookup","user":"ann","id":"e"}
{"type":"who","room":"attic"}
LINES
    expect "im_server: not_logged_in" "$out" '"code":"not_logged_in"'
    expect "im_server: welcome" "$out" '"type":"welcome","user":"ann","heartbeat_ms":300,"idle_ms":2000'
    expect "im_server: joined" "$out" '"type":"joined","room":"lobby","user":"ann"'
    expect "im_server: message" "$out" '"type":"message","room":"lobby","from":"ann","text":"hello","ts":[0-9]{13},"id":7'
    expect "im_server: not_in_room" "$out" '"code":"not_in_room"'
    expect "im_server: bad_request" "$out" '"code":"bad_request"'
    expect "im_server: members" "$out" '"type":"members","room":"lobby","users":\["ann"\]'
    expect "im_server: direct" "$out" '"type":"direct","from":"ann","text":"hello","ts":[0-9]{13},"id":1'
    if [ "$(grep -c '"type":"direct"' "$out")" -eq 4 ]; then
        pass "im_server: direct, three times again"
    else
        fail "im_server: direct, three times again" "$out"
    fi
    expect "im_server: undelivered, nobody there" "$out" '"code":"undelivered",.*"to":"nobody","id":"a"'
    expect "im_server: undelivered, not acknowledged" "$out" '"code":"undelivered",.*"to":"ann","id":"b"'
    expect "im_server: lookup" "$out" '"type":"profile","user":"ann","online":true,"since":[0-9]{13},"rooms":\["lobby"\],"id":"c"'
    expect "im_server: lookup, nobody there" "$out" '"type":"profile","user":"zoe","online":false,"rooms":\[\],"id":"d"'
    expect "im_server: too_many_lookups" "$out" '"code":"too_many_lookups",.*"id":"e"'
    if grep -E '"type":"profile"|"room":"attic"' "$out" | head -n 1 | grep -q attic; then
        pass "im_server: a lookup does not hold up what comes after it"
    else
        fail "im_server: a lookup holds up what comes after it" "$out"
    fi
    expect "im_server: ping" "$out" '"type":"ping"'
    expect "im_server: bye idle" "$out" '"type":"bye","reason":"idle"'
    head -c 2000 /dev/zero | tr '\0' x | talk 5 >"$out"
    expect "im_server: too_large" "$out" '"code":"too_large"'
    expect "im_server: bye protocol_error" "$out" '"type":"bye","reason":"protocol_error"'

    # Somebody is there when it stops.
    : >"$out"
    { await "$out" '"type":"welcome"'; kill -INT "$server"; } &
    talk 10 >"$out" <<<'{"type":"login","user":"bob"}'
    expect "im_server: bye shutdown" "$out" '"type":"bye","reason":"shutdown"'
    wait $!
    wait "$server" || fail "im_server stops with somebody there: exit status $?" "$work/im_server.err"
    expect "im_server: report" "$work/im_server.out" '^took .*channels: 1, of them graceful 1, incomplete 0, forced 0'
    server=

    # The only thread takes the first lookup, sooner or later, and the queue two: the last one is too many in any case.
    start im_server --listen 127.0.0.1:0 --threads 1 --lookup-time 100ms --lookup-threads 1 --lookup-queue 2 \
        --max-per-ip 2 --unix "$work/im.socket"
    talk 1 >"$out" <<'LINES'
{"type":"login","user":"ann"}
{"type":"lookup","user":"ann","id":1}
{"type":"lookup","user":"ann","id":2}
{"type":"lookup","user":"ann","id":3}
{"type":"lookup","user":"ann","id":4}
LINES
    expect "im_server: busy" "$out" '"code":"busy",.*"id":4'
    expect "im_server: a lookup that is taken is answered" "$out" '"type":"profile",.*"id":1'

    : >"$out"
    exec 5<>"/dev/tcp/127.0.0.1/$port" 6<>"/dev/tcp/127.0.0.1/$port"
    printf '{"type":"ping"}\n' >&5
    printf '{"type":"ping"}\n' >&6
    timeout 5 head -n 1 <&5 >>"$out"
    timeout 5 head -n 1 <&6 >>"$out"
    # One that is closed before it has said anything may find that already when it writes.
    printf '{"type":"ping"}\n' 2>/dev/null | talk 5 >>"$out" 2>/dev/null
    if [ "$(grep -c pong "$out")" -eq 2 ]; then pass "im_server --max-per-ip"; else fail "im_server --max-per-ip" "$out"; fi
    expect "im_server --unix" "$work/im_server.out" "^listening on unix:$work/im.socket\$"
    printf '/whois cy\n/whois zoe\n' |
        timeout 10 "$bin/im_client" --connect "unix:$work/im.socket" --user cy >"$out" 2>&1
    expect "im_client: joins over a Unix socket, where nobody is counted" "$out" '^\* cy joined lobby$'
    expect "im_client: /whois" "$out" '^\* cy is here since [0-9:]{8}, in lobby$'
    expect "im_client: /whois, nobody there" "$out" '^\* nobody is called zoe$'
    exec 5>&- 6>&-
    stop im_server
    if [ -e "$work/im.socket" ]; then fail "the socket is left"; else pass "im_server removes its socket"; fi
}

check_im_client() {
    local out=$work/client
    start im_server --listen 127.0.0.1:0 --threads 1
    printf 'hello\n/who\n/leave\n/join den\nagain\n' |
        timeout 10 "$bin/im_client" --connect "127.0.0.1:$port" --user ann --room lobby >"$out" 2>&1
    [ "${PIPESTATUS[1]}" -eq 0 ] || fail "im_client leaves at the end of its input" "$out"
    expect "im_client: says" "$out" '^[0-9:]{8} \[lobby\] ann: hello$'
    expect "im_client: who" "$out" '^\* in lobby: ann$'
    expect "im_client: leaves" "$out" '^\* ann left lobby$'
    expect "im_client: joins" "$out" '^[0-9:]{8} \[den\] ann: again$'

    mkfifo "$work/typed"
    "$bin/im_client" --connect "127.0.0.1:$port" --user bob <"$work/typed" >"$out" 2>&1 &
    local client=$!
    exec 4>"$work/typed"
    await "$out" 'bob joined lobby'
    printf '/direct bob psst\n/direct zoe psst\n' >&4
    await "$out" 'bob has got it'
    kill -INT $client
    if wait $client; then pass "im_client leaves at the first Ctrl-C"; else fail "im_client: Ctrl-C" "$out"; fi
    expect "im_client: shows a direct message" "$out" '^[0-9:]{8} bob, to you: psst$'
    expect "im_client: delivered" "$out" '^\* bob has got it$'
    expect "im_client: undelivered" "$out" '^! nobody is called zoe$'

    "$bin/im_client" --connect "127.0.0.1:$port" --user cy <"$work/typed" >"$out" 2>&1 &
    client=$!
    exec 4>&-
    exec 4>"$work/typed"
    await "$out" 'cy joined lobby'
    stop im_server
    wait $client && fail "im_client: the server stops" "$out"
    expect "im_client: says why the server closes" "$out" 'goodbye: it is shutting down'
    exec 4>&-
}

check_im_bots() {
    start im_server --listen 127.0.0.1:0 --threads 2 --heartbeat 500ms --idle-timeout 2s --ack-timeout 500ms
    if timeout 60 "$bin/im_bots" --connect "127.0.0.1:$port" --clients 200 --rooms 5 --seconds 3 --silent 2% \
        --direct 30% --no-ack 10% \
        >"$work/table" 2>"$work/progress"; then
        pass "im_bots"
    else
        fail "im_bots: exit status $?" "$work/table" "$work/progress"
    fi
    expect "im_bots: all logged in" "$work/table" '^logged in +200$'
    expect "im_bots: the silent dropped" "$work/table" '^silent, dropped +4$'
    expect "im_bots: direct messages delivered" "$work/table" '^direct, delivered +[1-9]'
    expect "im_bots: direct messages undelivered" "$work/table" '^direct, undelivered +[1-9]'
    expect "im_bots: direct messages sent again" "$work/table" '^direct, resent +[1-9]'
    expect "im_bots: no direct message is left" "$work/table" '^direct, under way +0$'
    expect "im_bots: pings answered" "$work/table" '^pings answered +[1-9]'

    "$bin/im_bots" --connect "127.0.0.1:$port" --clients 20 --rooms 2 --seconds 600 >"$work/table" 2>"$work/progress" &
    local bots=$!
    await "$work/progress" '^talking: [1-9]'
    kill -INT $bots
    if wait $bots; then pass "im_bots stops at the first Ctrl-C"; else fail "im_bots: Ctrl-C" "$work/table"; fi
    expect "im_bots: a table after Ctrl-C" "$work/table" '^lost +0$'
    stop im_server

    # On a Unix socket, because the kernel keeps much less there for a client that does not read.
    local policy
    for policy in close drop; do
        start im_server --listen 127.0.0.1:0 --unix "$work/im.socket" --threads 2 --slow-consumer $policy --max-outbound 262144
        if timeout 60 "$bin/im_bots" --connect "unix:$work/im.socket" --clients 20 --rooms 1 --seconds 3 --rate 300 \
            --size 1000 --slow 10% --silent 0% --no-ack 0% >"$work/table" 2>"$work/progress"; then
            pass "im_bots --slow, --slow-consumer $policy"
        else
            fail "im_bots --slow, --slow-consumer $policy: exit status $?" "$work/table" "$work/progress"
        fi
        expect "im_bots: nobody else loses anything" "$work/table" '^lost +0$'
        case $policy in
            close) expect "im_bots: the slow are closed" "$work/table" '^slow, closed +2  \(2 with a goodbye\)$' ;;
            drop) expect "im_bots: the slow are told" "$work/table" '^slow, told +2  \(of [1-9][0-9]* lines missed\)$' ;;
        esac
        stop im_server
    done
}

check_bench_server() {
    start bench_server 0 echo-raw
    printf 'hello\n' | talk 1 >"$work/echo"
    expect "bench_server sends back" "$work/echo" '^hello$'
    stop bench_server
}

check_timer_demo() {
    if timeout 60 "$bin/timer_demo" --timeouts 2000 --run 1500ms --tick 5ms >"$work/timer" 2>&1; then
        pass "timer_demo"
    else
        fail "timer_demo: exit status $?" "$work/timer"
    fi
    expect "timer_demo: a line per second" "$work/timer" '^ +1s  pending [0-9]+  fired [1-9]'
    expect "timer_demo: what stop answers" "$work/timer" '^returned by stop +[1-9]'
    expect "timer_demo: none early" "$work/timer" '^early +0$'

    "$bin/timer_demo" --timeouts 100 --run 0s >"$work/timer" 2>&1 &
    local demo=$!
    await "$work/timer" 'fired [1-9]'
    kill -INT $demo
    if wait $demo; then pass "timer_demo stops at the first Ctrl-C"; else fail "timer_demo: Ctrl-C" "$work/timer"; fi
    expect "timer_demo: a summary after Ctrl-C" "$work/timer" '^returned by stop +[1-9]'
}

check_help
check_echo
check_udp_echo
check_im_server
check_im_client
check_im_bots
check_bench_server
check_timer_demo
if [ $failures -gt 0 ]; then
    echo "$failures failures"
    exit 1
fi
echo "all examples work"
