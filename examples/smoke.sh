#!/usr/bin/env bash
# Runs every example briefly and checks its behaviour.
#
#   cargo build --features full --examples
#   examples/smoke.sh target/debug/examples
#
# Takes about a minute and uses free ports. The exit status is 0 if all checks pass.
#
# The checks do not depend on the speed of the machine. They wait for the expected output, or rely
# on an order that both sides guarantee. There are two kinds of times: $patience is the time limit
# of a wait that fails, and the times passed to the programs determine the duration of a check.

set -uo pipefail

bin=${1:?usage: smoke.sh DIRECTORY_OF_THE_BUILT_EXAMPLES}
work=$(mktemp -d)
patience=60
failures=0
server=
# The server behind another one.
backend=

cleanup() {
    [ -n "$server" ] && kill -KILL "$server" 2>/dev/null
    [ -n "$backend" ] && kill -KILL "$backend" 2>/dev/null
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

# expect NAME FILE PATTERN: checks that a line of the file matches.
expect() {
    if grep -Eq -- "$3" "$2"; then pass "$1"; else fail "$1: nothing matches $3" "$2"; fi
}

# await FILE PATTERN...: waits until each pattern matches a line of the file. The file must not
# contain output of an earlier program.
await() {
    local file=$1 pattern end=$((SECONDS + patience))
    shift
    for pattern; do
        until grep -Eqs -- "$pattern" "$file"; do
            [ $SECONDS -lt $end ] || return
            sleep 0.05
        done
    done
}

# start NAME ARGUMENTS...: starts a server and sets $server and $port.
start() {
    # Remove the output of an earlier server, which also contains an address.
    rm -f "$work/$1.out"
    "$bin/$1" "${@:2}" >"$work/$1.out" 2>"$work/$1.err" &
    server=$!
    await "$work/$1.out" '^listening on .*:[0-9]+$'
    port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$work/$1.out")
    [ -n "$port" ] && return
    fail "$1 starts" "$work/$1.out" "$work/$1.err"
    exit 1
}

# ended PROCESS: waits until the process has ended and returns its exit status; 137 if it was
# killed.
ended() {
    local end=$((SECONDS + patience))
    while kill -0 "$1" 2>/dev/null; do
        [ $SECONDS -lt $end ] || kill -KILL "$1"
        sleep 0.05
    done
    wait "$1"
}

# stop NAME: checks that the server exits with status 0 after one Ctrl-C.
stop() {
    local code
    kill -INT "$server"
    ended "$server"
    code=$?
    if [ $code -eq 0 ]; then pass "$1 stops at the first Ctrl-C"; else fail "$1 stops: exit status $code" "$work/$1.err"; fi
    server=
}

# talk: sends standard input to the server and prints its answers until it closes the connection.
talk() {
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return
    cat >&3
    timeout $patience cat <&3
    exec 3>&-
}

# ask FILE PATTERN...: sends standard input to the server and writes its answers to the file, until
# each pattern matches an answer. Leaves the connection open as descriptor 3.
ask() {
    : >"$1"
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return
    cat >&3
    cat <&3 >"$1" &
    local answers=$!
    await "$@"
    kill "$answers"
    wait "$answers" 2>/dev/null
}

# ask_unix SOCKET FILE PATTERN...: like ask, but over a Unix socket, and closes the connection.
ask_unix() {
    : >"$2"
    # Keep the input of nc open: at the end of its input it may not wait for the answer.
    exec 7> >(exec nc -U "$1" >"$2")
    local answers=$!
    cat >&7
    await "${@:2}"
    exec 7>&-
    kill "$answers" 2>/dev/null
}

# open_tls FILE: connects openssl to the server, as descriptor 7 and process $client, and writes the
# answers to the file. The server must have the certificate $work/cert.pem.
open_tls() {
    : >"$1"
    exec 7> >(exec openssl s_client -connect "127.0.0.1:$port" -CAfile "$work/cert.pem" -verify_hostname localhost \
        -verify_return_error -quiet >"$1" 2>&1)
    client=$!
}

close_tls() {
    exec 7>&-
    kill "$client" 2>/dev/null
}

check_command_output() {
    start command_output --listen 127.0.0.1:0 sh -c 'while echo one; do sleep 0.05; done'
    ask "$work/lines" '^one$' </dev/null
    exec 3>&-
    expect "command_output sends lines" "$work/lines" '^one$'
    stop command_output
    start command_output --listen 127.0.0.1:0 sh -c 'echo one; printf two'
    if ended "$server"; then pass "command_output stops with the command"; else fail "command_output stops" "$work/command_output.err"; fi
    server=
    expect "command_output reports the command" "$work/command_output.out" '^1 lines; the command ended with exit status: 0$'
}

check_help() {
    local name
    for name in echo_server tls_echo gateway udp_echo im_server im_client im_bots im_chaos bench_server resp_server ws_echo http_proxy command_output timer_demo timers attack; do
        "$bin/$name" --help >"$work/help" 2>&1
        expect "$name --help" "$work/help" '^Usage: '
    done
}

check_ws_echo() {
    start ws_echo --listen 127.0.0.1:0
    # A handshake, a message and a Close frame, masked with zeros.
    {
        printf 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n'
        printf 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
        printf '\x81\x85\0\0\0\0hello\x88\x80\0\0\0\0'
    } | talk >"$work/ws"
    expect "ws_echo accepts a handshake" "$work/ws" '^HTTP/1.1 101 '
    expect "ws_echo echoes a message" "$work/ws" 'hello'
    stop ws_echo
}

check_http_proxy() {
    start http_server --listen 127.0.0.1:0
    backend=$server
    start http_proxy --listen 127.0.0.1:0 --backend "127.0.0.1:$port"
    {
        printf 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'
        printf 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n'
        printf 'HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'
    } | talk >"$work/proxy"
    expect "http_proxy passes on a response" "$work/proxy" '^Hello, World!'
    expect "http_proxy passes on a body" "$work/proxy" '^hello'
    if [ "$(grep -c '^Via: 1.1 netwheel' "$work/proxy")" = 3 ]; then pass "http_proxy answers all requests of a connection"; else fail "http_proxy answers all requests" "$work/proxy"; fi
    if command -v curl >/dev/null; then
        head -c 30000000 /dev/urandom >"$work/large"
        curl -s -m $patience --data-binary "@$work/large" "http://127.0.0.1:$port/" -o "$work/echoed"
        if cmp -s "$work/large" "$work/echoed"; then pass "http_proxy streams a large body both ways"; else fail "http_proxy streams a large body"; fi
        rm -f "$work/large" "$work/echoed"
    fi
    kill -KILL $backend
    wait $backend 2>/dev/null
    printf 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' | talk >"$work/proxy"
    expect "http_proxy answers 502 without its backend" "$work/proxy" '^HTTP/1.1 502 '
    backend=
    stop http_proxy

    start ws_echo --listen 127.0.0.1:0
    backend=$server
    start http_proxy --listen 127.0.0.1:0 --backend "127.0.0.1:$port"
    {
        printf 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n'
        printf 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
        printf '\x81\x85\0\0\0\0hello\x88\x80\0\0\0\0'
    } | talk >"$work/ws"
    expect "http_proxy passes on a WebSocket handshake" "$work/ws" '^HTTP/1.1 101 '
    expect "http_proxy passes on WebSocket messages" "$work/ws" 'hello'
    stop http_proxy
    kill -KILL $backend
    wait $backend 2>/dev/null
    backend=
}

check_echo() {
    start echo_server --listen 127.0.0.1:0 --threads 1
    ask "$work/echo" '^hello$' <<<hello
    exec 3>&-
    expect "echo_server sends back" "$work/echo" '^hello$'
    stop echo_server

    start echo_server --listen 127.0.0.1:0 --threads 1 --frames --idle-timeout 200ms
    # Two frames, and the start of a third, which must not be sent back. Retry if the server closed
    # the connection as idle before this script has sent anything.
    for _ in $(seq 20); do
        printf '\0\0\0\2hi\0\0\0\1!\0\0\0\5hel' 2>/dev/null | talk >"$work/frames" 2>/dev/null
        [ -s "$work/frames" ] && break
    done
    if printf '\0\0\0\2hi\0\0\0\1!' | cmp -s - "$work/frames"; then
        pass "echo_server --frames sends back complete frames, and closes idle connections"
    else
        fail "echo_server --frames" "$work/frames"
    fi
    stop echo_server

    # Not through a pipe: grep stops reading at the first match, and nc would fail with SIGPIPE.
    if ! grep -q -- '-U' <<<"$(nc -h 2>&1)"; then
        echo "skip  echo_server --unix: nc does not support Unix sockets"
        return
    fi
    rm -f "$work/echo_server.out"
    "$bin/echo_server" --unix "$work/socket" --threads 1 >"$work/echo_server.out" 2>"$work/echo_server.err" &
    server=$!
    await "$work/echo_server.out" '^listening on unix:'
    ask_unix "$work/socket" "$work/echo" '^hello$' <<<hello
    expect "echo_server --unix sends back" "$work/echo" '^hello$'
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    rm -f "$work/echo_server.out"
    if [ -S "$work/socket" ]; then pass "a server that is killed leaves its socket"; else fail "a killed server removed its socket"; fi
    "$bin/echo_server" --unix "$work/socket" --threads 1 >"$work/echo_server.out" 2>"$work/echo_server.err" &
    server=$!
    await "$work/echo_server.out" '^listening on unix:'
    ask_unix "$work/socket" "$work/echo" '^again$' <<<again
    expect "echo_server --unix replaces the socket of a killed server" "$work/echo" '^again$'
    stop echo_server
    if [ -e "$work/socket" ]; then fail "echo_server left its socket"; else pass "echo_server removes its socket"; fi
}

check_resp() {
    start resp_server --listen 127.0.0.1:0
    printf 'SET k v\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nQUIT\r\n' | talk >"$work/resp" 2>/dev/null
    if printf '+OK\r\n$1\r\nv\r\n+OK\r\n' | cmp -s - "$work/resp"; then
        pass "resp_server stores a value"
    else
        fail "resp_server" "$work/resp"
    fi
    stop resp_server
}

check_tls_echo() {
    start tls_echo --listen 127.0.0.1:0 --threads 1 --write-cert "$work/cert.pem"
    expect "tls_echo prints a command to try" "$work/tls_echo.out" "^try: openssl s_client -connect 127.0.0.1:$port"
    open_tls "$work/echo"
    echo hello >&7
    await "$work/echo" '^hello$'
    close_tls
    expect "tls_echo sends back" "$work/echo" '^hello$'
    stop tls_echo
}

check_gateway() {
    start echo_server --listen 127.0.0.1:0 --threads 1
    backend=$server
    # No server listens on port 1.
    start gateway --listen 127.0.0.1:0 --threads 1 --write-cert "$work/cert.pem" --drain 60s \
        --backend 127.0.0.1:1 --backend "127.0.0.1:$port"
    open_tls "$work/echo"
    echo hello >&7
    await "$work/echo" '^hello$'
    expect "gateway relays to a backend that can be reached" "$work/echo" '^hello$'
    kill -TERM "$server"
    await "$work/gateway.out" '^draining 1 connections$'
    echo again >&7
    await "$work/echo" '^again$'
    expect "gateway relays while it drains" "$work/echo" '^again$'
    close_tls
    if ended "$server"; then pass "gateway stops after the last connection"; else fail "gateway stops" "$work/gateway.err"; fi
    expect "gateway reports the drain" "$work/gateway.out" '^1 of 1 connections ended within .*; 1 clients in total$'
    server=$backend
    backend=
    stop echo_server
}

check_im_tls() {
    local out=$work/client
    cat >"$work/cert.cnf" <<'LINES'
[req]
prompt = no
distinguished_name = name
x509_extensions = extensions
[name]
CN = localhost
[extensions]
subjectAltName = DNS:localhost
basicConstraints = CA:FALSE
LINES
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -config "$work/cert.cnf" \
        -keyout "$work/key.pem" -out "$work/cert.pem" 2>"$work/progress"
    start im_server --listen 127.0.0.1:0 --threads 1 --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
    echo hello | timeout $patience "$bin/im_client" --connect "127.0.0.1:$port" --user ann \
        --tls-ca "$work/cert.pem" --tls-name localhost >"$out" 2>&1
    expect "im_client --tls-ca" "$out" '^[0-9:]{8} \[lobby\] ann: hello$'
    if timeout $patience "$bin/im_client" --connect "127.0.0.1:$port" --tls-ca "$work/cert.pem" </dev/null >"$out" 2>&1; then
        fail "im_client accepts a certificate of another name" "$out"
    else
        pass "im_client refuses a certificate of another name"
    fi
    if timeout 600 "$bin/im_bots" --connect "127.0.0.1:$port" --clients 50 --rooms 2 --seconds 1 --silent 0% --no-ack 0% \
        --tls-ca "$work/cert.pem" --tls-name localhost >"$work/table" 2>"$work/progress"; then
        pass "im_bots --tls-ca"
    else
        fail "im_bots --tls-ca: exit status $?" "$work/table" "$work/progress"
    fi
    stop im_server
}

check_udp_echo() {
    start udp_echo --listen 127.0.0.1:0
    exec 3<>"/dev/udp/127.0.0.1/$port"
    printf 'hello\n' >&3
    timeout $patience head -n 1 <&3 >"$work/udp"
    exec 3>&-
    expect "udp_echo sends back" "$work/udp" '^hello$'
    # A datagram from the server's own port number, as sent by another such server or with a forged
    # source.
    printf 'loop\n' | timeout $patience nc -u -w 1 -s 127.0.0.2 -p "$port" 127.0.0.1 "$port" >"$work/udp"
    if [ -s "$work/udp" ]; then fail "udp_echo answers itself" "$work/udp"; else pass "udp_echo does not answer itself"; fi
    stop udp_echo
    expect "udp_echo counts" "$work/udp_echo.out" '^received 2, sent 1$'
}

# Programs whose output is not read, because the pipe is full or its reader has gone. They must work
# and stop cleanly.
check_unread() {
    local out=$work/unread fate code
    for fate in full gone; do
        mkfifo "$work/pipe"
        # Log lines and statistics soon fill a pipe of 64 KiB.
        RUST_LOG=trace "$bin/im_server" --listen 127.0.0.1:0 --threads 2 --stats 1ms >"$work/pipe" 2>"$work/pipe" &
        server=$!
        exec 6<"$work/pipe"
        port=
        while [ -z "$port" ] && read -r -t $patience -u 6 line; do
            port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' <<<"$line")
        done
        [ $fate = gone ] && exec 6<&-
        : >"$out"
        # Enough requests to fill the pipe, because each causes several log lines.
        { echo '{"type":"login","user":"ann"}'; yes '{"type":"who","room":"x"}' | head -n 150; } >"$work/asked"
        ask "$out" '"type":"members"' <"$work/asked"
        sleep 1
        printf '{"type":"ping"}\n' >&3
        cat <&3 >>"$out" &
        local answers=$!
        kill -TERM "$server"
        ended "$server"
        code=$?
        if [ $code -eq 0 ]; then pass "im_server stops when its output is $fate"; else fail "im_server, output $fate: exit status $code"; fi
        wait $answers 2>/dev/null
        expect "im_server: bye, output $fate" "$out" '"type":"bye","reason":"shutdown"'
        exec 3>&-
        [ $fate = full ] && exec 6<&-
        rm "$work/pipe"
        server=
    done
    if [ -w /dev/full ]; then
        "$bin/echo_server" --listen 127.0.0.1:0 --threads 1 >/dev/full 2>/dev/full &
        server=$!
        sleep 0.5
        kill -TERM "$server"
        ended "$server"
        code=$?
        if [ $code -eq 0 ]; then pass "echo_server stops when the disk is full"; else fail "echo_server, disk full: exit status $code"; fi
        server=
    fi
}

# Short attacks on the chat server; `attack` without --quick is the full run. The latency bounds
# need an otherwise idle machine, so this check is about losses only.
check_attack() {
    if timeout 300 "$bin/attack" --quick --bound 30s >"$work/attacks" 2>"$work/progress"; then
        pass "attack --quick"
    else
        fail "attack --quick: exit status $?" "$work/attacks" "$work/progress"
    fi
    expect "attack: a table" "$work/attacks" '^\| unacknowledged \|'
}

check_im_server() {
    local out=$work/session
    start im_server --listen 127.0.0.1:0 --threads 2 --heartbeat 300ms --idle-timeout 2s --max-line 1000 \
        --ack-timeout 100ms --lookup-time 200ms --max-lookups 2
    talk >"$out" <<'LINES'
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
    expect "im_server: message" "$out" '"type":"message","room":"lobby","from":"ann","text":"hello","ts":[0-9]{13},"epoch":[0-9]+,"offset":1,"id":7'
    expect "im_server: not_in_room" "$out" '"code":"not_in_room"'
    expect "im_server: bad_request" "$out" '"code":"bad_request"'
    expect "im_server: members" "$out" '"type":"members","room":"lobby","users":\["ann"\]'
    expect "im_server: direct" "$out" '"type":"direct","from":"ann","text":"hello","ts":[0-9]{13},"id":1'
    if [ "$(grep -c '"type":"direct"' "$out")" -eq 4 ]; then
        pass "im_server: direct, sent again three times"
    else
        fail "im_server: direct, sent again three times" "$out"
    fi
    expect "im_server: kept for a user who is not connected" "$out" '"type":"kept","to":"nobody","expires":[0-9]{13},"id":"a"'
    expect "im_server: undelivered, not acknowledged" "$out" '"code":"undelivered",.*"to":"ann","id":"b"'
    expect "im_server: lookup" "$out" '"type":"profile","user":"ann","online":true,"since":[0-9]{13},"rooms":\["lobby"\],"id":"c"'
    expect "im_server: lookup, no such user" "$out" '"type":"profile","user":"zoe","online":false,"rooms":\[\],"id":"d"'
    expect "im_server: too_many_lookups" "$out" '"code":"too_many_lookups",.*"id":"e"'
    if grep -Em 1 '"type":"profile"|"room":"attic"' "$out" | grep -q attic; then
        pass "im_server: a lookup does not block later requests"
    else
        fail "im_server: a lookup blocks later requests" "$out"
    fi
    expect "im_server: ping" "$out" '"type":"ping"'
    expect "im_server: bye idle" "$out" '"type":"bye","reason":"idle"'
    head -c 2000 /dev/zero | tr '\0' x | talk >"$out"
    expect "im_server: too_large" "$out" '"code":"too_large"'
    expect "im_server: bye protocol_error" "$out" '"type":"bye","reason":"protocol_error"'

    stop im_server

    # Stop the server while a client is connected, before its idle timeout.
    start im_server --listen 127.0.0.1:0 --threads 2 --drain 200ms
    : >"$out"
    { await "$out" '"type":"welcome"'; kill -INT "$server"; } &
    talk >"$out" <<<'{"type":"login","user":"bob"}'
    expect "im_server: bye shutdown" "$out" '"type":"bye","reason":"shutdown"'
    wait $!
    ended "$server" || fail "im_server stops with a client connected: exit status $?" "$work/im_server.err"
    expect "im_server: report" "$work/im_server.out" '^took .*channels: 1, of them graceful 1, incomplete 0, forced 0'
    server=

    # One thread, and a queue for one more lookup. Some of these lookups are refused, unless the
    # loop is slower than the thread.
    start im_server --listen 127.0.0.1:0 --threads 1 --lookup-time 100ms --lookup-threads 1 --lookup-queue 1 \
        --max-lookups 100 --max-per-ip 2 --unix "$work/im.socket"
    {
        echo '{"type":"login","user":"ann"}'
        for id in {1..50}; do echo "{\"type\":\"lookup\",\"user\":\"ann\",\"id\":$id}"; done
    } >"$work/lookups"
    ask "$out" '"code":"busy",.*"id":[0-9]' '"type":"profile",.*"id":1[^0-9]' <"$work/lookups"
    expect "im_server: busy" "$out" '"code":"busy",.*"id":[0-9]'
    expect "im_server: an accepted lookup is answered" "$out" '"type":"profile",.*"id":1[^0-9]'

    # The connection left open by `ask` is the first from this address; this is the second.
    exec 5<>"/dev/tcp/127.0.0.1/$port"
    printf '{"type":"ping"}\n' >&5
    timeout $patience head -n 1 <&5 >"$out"
    # The server closes the third connection, and the write may already fail.
    (printf '{"type":"ping"}\n' 2>/dev/null | talk >>"$out" 2>/dev/null)
    # The first connection is still open.
    printf '{"type":"ping"}\n' >&3
    timeout $patience sed -u '/pong/q' <&3 >>"$out"
    if [ "$(grep -c pong "$out")" -eq 2 ]; then pass "im_server --max-per-ip"; else fail "im_server --max-per-ip" "$out"; fi
    await "$work/im_server.out" '^listening on unix:'
    expect "im_server --unix" "$work/im_server.out" "^listening on unix:$work/im.socket\$"
    timeout $patience "$bin/im_client" --connect "unix:$work/im.socket" --user cy >"$out" 2>&1 </dev/null
    expect "im_client: joins over a Unix socket, without a limit per address" "$out" '^\* cy joined lobby$'
    exec 3>&- 5>&-
    stop im_server
    if [ -e "$work/im.socket" ]; then fail "im_server left its socket"; else pass "im_server removes its socket"; fi
}

check_im_client() {
    local out=$work/client
    start im_server --listen 127.0.0.1:0 --threads 1
    printf 'hello\n/who\n/leave\n/join den\nagain\n' |
        timeout $patience "$bin/im_client" --connect "127.0.0.1:$port" --user ann --room lobby >"$out" 2>&1
    [ "${PIPESTATUS[1]}" -eq 0 ] || fail "im_client leaves at the end of its input" "$out"
    expect "im_client: says" "$out" '^[0-9:]{8} \[lobby\] ann: hello$'
    expect "im_client: who" "$out" '^\* in lobby: ann$'
    expect "im_client: leaves" "$out" '^\* ann left lobby$'
    expect "im_client: joins" "$out" '^[0-9:]{8} \[den\] ann: again$'

    printf '/whois cy\n/whois zoe\n' |
        timeout $patience "$bin/im_client" --connect "127.0.0.1:$port" --user cy >"$out" 2>&1
    expect "im_client: /whois" "$out" '^\* cy has been online since [0-9:]{8}, in lobby$'
    expect "im_client: /whois, no such user" "$out" '^\* no user is called zoe$'

    printf '/remind 3d tea\n/reminders\n/remind soon tea\n/forget 1\n' |
        timeout $patience "$bin/im_client" --connect "127.0.0.1:$port" --user dan >"$out" 2>&1
    expect "im_client: /remind" "$out" '^\* reminder [0-9]+ is due at [0-9T:-]+Z$'
    expect "im_client: /remind, no time" "$out" '^! .*a duration is like 10m or 3d$'
    expect "im_client: /forget, no such reminder" "$out" '^! you have no reminder 1$'
    printf '/reminders\n' |
        timeout $patience "$bin/im_client" --connect "127.0.0.1:$port" --user dan >"$out" 2>&1
    expect "im_client: /reminders" "$out" '^\* reminder [0-9]+, due at [0-9T:-]+Z: tea$'

    mkfifo "$work/typed"
    : >"$out"
    "$bin/im_client" --connect "127.0.0.1:$port" --user bob <"$work/typed" >"$out" 2>&1 &
    local client=$!
    exec 4>"$work/typed"
    await "$out" 'bob joined lobby'
    printf '/direct bob psst\n/direct zoe psst\n/remind 1ms milk\n' >&4
    await "$out" 'bob has received it' 'zoe is not connected' ': milk$'
    kill -INT $client
    if ended $client; then pass "im_client leaves at the first Ctrl-C"; else fail "im_client: Ctrl-C" "$out"; fi
    expect "im_client: shows a direct message" "$out" '^[0-9:]{8} bob, to you: psst$'
    expect "im_client: delivered" "$out" '^\* bob has received it$'
    expect "im_client: a reminder" "$out" '^\* reminder of [0-9T:-]+Z: milk$'
    expect "im_client: kept" "$out" '^\* zoe is not connected and will receive it later$'

    : >"$out"
    "$bin/im_client" --connect "127.0.0.1:$port" --user cy <"$work/typed" >"$out" 2>&1 &
    client=$!
    await "$out" 'cy joined lobby'
    stop im_server
    ended $client && fail "im_client: the server stops" "$out"
    expect "im_client: shows the reason of the server" "$out" 'the server closed the connection: it is shutting down'
    exec 4>&-
}

check_im_bots() {
    start im_server --listen 127.0.0.1:0 --threads 2 --heartbeat 500ms --idle-timeout 5s --ack-timeout 1s
    if timeout 600 "$bin/im_bots" --connect "127.0.0.1:$port" --clients 200 --rooms 5 --seconds 2 --silent 2% \
        --passive 20% --direct 30% --no-ack 10% --under-way 1000 --grace 60s \
        >"$work/table" 2>"$work/progress"; then
        pass "im_bots"
    else
        fail "im_bots: exit status $?" "$work/table" "$work/progress"
    fi
    expect "im_bots: all logged in" "$work/table" '^logged in +200$'
    expect "im_bots: silent clients dropped" "$work/table" '^silent, dropped +4$'
    expect "im_bots: passive clients" "$work/table" '^passive +39$'
    expect "im_bots: direct messages delivered" "$work/table" '^direct, delivered +[1-9]'
    expect "im_bots: direct messages undelivered" "$work/table" '^direct, undelivered +[1-9]'
    expect "im_bots: direct messages sent again" "$work/table" '^direct, resent +[1-9]'
    expect "im_bots: no direct message in flight" "$work/table" '^direct, in flight +0$'
    expect "im_bots: pings answered" "$work/table" '^pings answered +[1-9]'

    : >"$work/progress"
    "$bin/im_bots" --connect "127.0.0.1:$port" --clients 20 --rooms 2 --seconds 600 >"$work/table" 2>"$work/progress" &
    local bots=$!
    await "$work/progress" '^talking: [1-9]'
    kill -INT $bots
    if ended $bots; then pass "im_bots stops at the first Ctrl-C"; else fail "im_bots: Ctrl-C" "$work/table"; fi
    expect "im_bots: a table after Ctrl-C" "$work/table" '^lost +0$'
    stop im_server

    # On a Unix socket, because its kernel buffers are much smaller than those of TCP.
    local policy
    for policy in close drop; do
        start im_server --listen 127.0.0.1:0 --unix "$work/im.socket" --threads 2 --slow-consumer $policy \
            --max-outbound 262144 --close-timeout 60s
        if timeout 600 "$bin/im_bots" --connect "unix:$work/im.socket" --clients 20 --rooms 1 --seconds 3 --rate 300 \
            --size 1000 --slow 10% --silent 0% --no-ack 0% --under-way 1000 >"$work/table" 2>"$work/progress"; then
            pass "im_bots --slow, --slow-consumer $policy"
        else
            fail "im_bots --slow, --slow-consumer $policy: exit status $?" "$work/table" "$work/progress"
        fi
        expect "im_bots: other clients lose no messages" "$work/table" '^lost +0$'
        case $policy in
            close) expect "im_bots: slow clients are closed" "$work/table" '^slow, closed +2  \(2 with a goodbye\)$' ;;
            drop) expect "im_bots: slow clients are notified" "$work/table" '^slow, notified +2  \(of [1-9][0-9]* lines missed\)$' ;;
        esac
        stop im_server
    done
}

check_im_chaos() {
    "$bin/im_chaos" --nodes 1 --broker memory --faults none,reconnect-all --bots 40 --rooms 4 --duration 1s \
        --out "$work/chaos" >"$work/table" 2>"$work/progress"
    if [ $? -eq 0 ]; then pass "im_chaos, one node in memory"; else fail "im_chaos" "$work/table" "$work/progress"; fi
    expect "im_chaos: nothing is lost or doubled" "$work/table" '^[|] all clients [^|]*[|] [1-9][0-9]* [|] [1-9][0-9]*( [|] 0){6} '
    "$bin/im_chaos" --nodes 1 --broker memory --faults none --duration 600s --out "$work/chaos" >"$work/table" 2>"$work/stopped" &
    chaos=$!
    await "$work/stopped" 'talking'
    kill -INT $chaos
    ended $chaos
    expect "im_chaos stops at the first Ctrl-C" "$work/stopped" 'stopped by the user'
}

check_bench_server() {
    start bench_server 0 echo-raw
    ask "$work/echo" '^hello$' <<<hello
    exec 3>&-
    expect "bench_server sends back" "$work/echo" '^hello$'
    stop bench_server
}

check_timers() {
    local file=$work/timers.db out=$work/timers.out demo
    "$bin/timers" "$file" start demo 0s '"tea"' >"$out"
    expect "timers start" "$out" '^1$'
    "$bin/timers" "$file" list >"$out"
    expect "timers list" "$out" '^1 pending [0-9T:.-]+Z "demo" "tea"$'
    : >"$out"
    "$bin/timers" "$file" demo >"$out" 2>&1 &
    demo=$!
    await "$out" '^[^ ]+ timer 1 fires, .* late, 0 missed: "tea"$' 'timer 2 fires'
    expect "timers demo: a stored timer fires" "$out" 'timer 1 fires'
    if "$bin/timers" "$file" counts 2>"$out.err"; then fail "timers: a second program on a file"; fi
    expect "timers: the file is in use" "$out.err" 'is in use by a running program'
    kill -INT $demo
    if ended $demo; then pass "timers demo stops at the first Ctrl-C"; else fail "timers demo: Ctrl-C" "$out"; fi
    "$bin/timers" "$file" cancel 2 >"$out"
    expect "timers cancel" "$out" '^2: cancelled$'
}

check_timer_demo() {
    # The delays are long enough that some timeouts are pending when the timer is stopped.
    if timeout $patience "$bin/timer_demo" --timeouts 2000 --run 1500ms --tick 5ms --max-delay 20s >"$work/timer" 2>&1; then
        pass "timer_demo"
    else
        fail "timer_demo: exit status $?" "$work/timer"
    fi
    expect "timer_demo: a line per second" "$work/timer" '^ +[0-9]+s  pending [0-9]+  fired [1-9]'
    expect "timer_demo: timeouts returned by stop" "$work/timer" '^returned by stop +[1-9]'
    expect "timer_demo: none early" "$work/timer" '^early +0$'

    : >"$work/timer"
    "$bin/timer_demo" --timeouts 2000 --run 0s --max-delay 20s >"$work/timer" 2>&1 &
    local demo=$!
    await "$work/timer" 'fired [1-9]'
    kill -INT $demo
    if ended $demo; then pass "timer_demo stops at the first Ctrl-C"; else fail "timer_demo: Ctrl-C" "$work/timer"; fi
    expect "timer_demo: a summary after Ctrl-C" "$work/timer" '^returned by stop +[1-9]'
}

check_help
check_echo
check_ws_echo
check_http_proxy
check_resp
if command -v openssl >/dev/null; then
    check_tls_echo
    check_gateway
    check_im_tls
else
    echo "skip  TLS: openssl is not installed"
fi
check_udp_echo
check_command_output
check_im_server
check_im_client
check_im_bots
check_im_chaos
check_bench_server
check_timer_demo
check_timers
check_unread
check_attack
if [ $failures -gt 0 ]; then
    echo "$failures failures"
    exit 1
fi
echo "all examples work"
