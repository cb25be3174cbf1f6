"""An HTTP server that misbehaves. The path of a request selects the kind: /KIND?n=TOKEN. /ok answers "ok TOKEN".

Prints its port. The kinds are the functions below; `http.rs` has the table of expected outcomes.
"""
import gzip, re, socket, struct, sys, threading, time

EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
HEAD = b"HTTP/1.1 200 OK\r\n"
LENGTH_10 = HEAD + b"Content-Length: 10\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"


class Close(Exception):
    pass


def response(body, headers=b""):
    return HEAD + b"Content-Length: %d\r\n%s\r\n%s" % (len(body), headers, body)


def sends(*pieces, close=False):
    """Returns a kind that sends bytes."""
    def kind(stream):
        for piece in pieces:
            stream.sendall(piece)
        if close:
            raise Close
    return kind


def waits(stream):
    """Reads until the client goes away."""
    while stream.recv(65536):
        pass
    raise Close


def then_waits(*pieces):
    def kind(stream):
        sends(*pieces)(stream)
        waits(stream)
    return kind


def later(first, second, close=False):
    """Sends more when the client has had time to read the response."""
    def kind(stream):
        stream.sendall(first)
        time.sleep(0.05)
        sends(second, close=close)(stream)
    return kind


def endless(head, piece):
    def kind(stream):
        stream.sendall(head)
        while True:
            stream.sendall(piece)
    return kind


def trickle(text):
    def kind(stream):
        for byte in text:
            stream.sendall(bytes([byte]))
            time.sleep(0.05)
    return kind


def reset(stream):
    stream.sendall(LENGTH_10 + b"abc")
    # The client reads these bytes before the reset arrives, or not: both are a broken connection.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise Close


MANY = b"".join(b"X-%d: y\r\n" % number for number in range(5000))
KINDS = {
    "close_at_once": sends(close=True),
    "half_head": sends(b"HTTP/1.1 200 OK\r\nContent-", close=True),
    "short_body": sends(LENGTH_10 + b"abc", close=True),
    "extra_response": sends(response(b"first") + EVIL),
    "extra_response_later": later(response(b"first"), EVIL),
    "extra_line": sends(response(b"first") + b"\r\n"),
    "extra_byte": sends(response(b"first") + b"x"),
    "half_extra_head": sends(response(b"first") + EVIL[:20]),
    "long_body": sends(HEAD + b"Content-Length: 3\r\n\r\nabcdefgh"),
    "body_of_204": sends(b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nEVIL"),
    "body_of_304": sends(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nEVIL"),
    "two_framings": sends(HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"),
    "two_lengths": sends(HEAD + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"),
    "bad_chunk": sends(CHUNKED + b"4\r\nabcdX\r\n0\r\n\r\n"),
    "no_last_chunk": sends(CHUNKED + b"4\r\nabcd\r\n", close=True),
    "huge_chunk": then_waits(CHUNKED + b"7fffffffffffffff\r\nabcd\r\n"),
    "huge_length": then_waits(HEAD + b"Content-Length: 9223372036854775807\r\n\r\nabcd"),
    "interim_storm": sends(b"HTTP/1.1 100 Continue\r\n\r\n" * 5000 + response(b"storm")),
    "endless_interim": endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 10),
    "many_headers": sends(HEAD + MANY + b"\r\n"),
    "endless_header": endless(HEAD + b"X: ", b"y" * 1000),
    "slow_head": trickle(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000),
    "slow_body": trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"z" * 1000),
    "body_that_stops": then_waits(LENGTH_10 + b"abc"),
    "silence": waits,
    "endless_body": endless(HEAD + b"\r\n", b"z" * 1000),
    "many_trailers": sends(CHUNKED + b"0\r\n" + MANY + b"\r\n"),
    "bare_lf": sends(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi"),
    "status_000": sends(b"HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n"),
    "another_protocol": sends(b"SSH-2.0-OpenSSH_9.0\r\n"),
    "unasked_101": then_waits(UPGRADE),
    "unasked_101_and_close": sends(UPGRADE, close=True),
    "interim_only": sends(b"HTTP/1.1 100 Continue\r\n\r\n", close=True),
    "close_header_but_open": then_waits(response(b"bye", b"Connection: close\r\n")),
    "close_without_header": sends(response(b"bye"), close=True),
    "http_1_0": then_waits(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nbye"),
    "reset": reset,
    "unasked_gzip": sends(response(gzip.compress(b"x" * 100), b"Content-Encoding: gzip\r\n")),
    "folded_header": sends(b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n"),
    "late_408": later(response(b"first"), b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", close=True),
}


def serve(stream):
    stream.settimeout(60)
    buffer = b""
    try:
        while True:
            while b"\r\n\r\n" not in buffer:
                received = stream.recv(65536)
                if not received:
                    return
                buffer += received
            head, buffer = buffer.split(b"\r\n\r\n", 1)
            kind, token = re.match(rb"\w+ /(\w+)\?n=(\S+)", head).groups()
            if kind == b"ok":
                stream.sendall(response(b"ok " + token))
            else:
                KINDS[kind.decode()](stream)
    except (Close, OSError):
        pass
    finally:
        stream.close()


listener = socket.create_server(("127.0.0.1", 0))
print("listening on", listener.getsockname()[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0)), daemon=True).start()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
