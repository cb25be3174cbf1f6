"""A WebSocket server that misbehaves. The path of the handshake selects the kind: /KIND.

Prints its port. The kinds are the functions below; `websocket.rs` has the table of expected outcomes.
"""
import base64, hashlib, re, socket, struct, sys, threading, time, zlib

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
USUAL = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def accept(key):
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def upgrade(key, extra=b"", answer=None, connection=USUAL, status=b"101 Switching Protocols"):
    answer = accept(key) if answer is None else answer
    return b"HTTP/1.1 " + status + b"\r\n" + connection + b"Sec-WebSocket-Accept: " + answer + b"\r\n" + extra + b"\r\n"


def frame(opcode, payload=b"", fin=1, rsv=0, mask=None, length=None):
    length = len(payload) if length is None else length
    masked = 0x80 if mask else 0
    header = bytes([fin << 7 | rsv << 4 | opcode])
    if length < 126:
        header += bytes([masked | length])
    elif length < 65536:
        header += bytes([masked | 126]) + struct.pack(">H", length)
    else:
        header += bytes([masked | 127]) + struct.pack(">Q", length)
    if mask:
        header += mask
        payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return header + payload


def compressed(data):
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


def close(code):
    return frame(CLOSE, struct.pack(">H", code))


def sends(make):
    """Returns a kind that sends bytes and reads until the client goes away."""
    def kind(stream, key):
        stream.sendall(make(key))
        while stream.recv(65536):
            pass
    return kind


def slowly(make, pause):
    def kind(stream, key):
        for byte in make(key):
            stream.sendall(bytes([byte]))
            time.sleep(pause)
        while stream.recv(65536):
            pass
    return kind


def storm(stream, key):
    while True:
        stream.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
        time.sleep(0.02)


def refusal(status, headers=b""):
    return sends(lambda key: b"HTTP/1.1 " + status + b"\r\n" + headers + b"Content-Length: 0\r\n\r\n")


SPLIT = frame(TEXT, b"hi", fin=0) + frame(PING, b"x") + frame(0, b"ho") + frame(CLOSE, struct.pack(">H", 4999) + b"why")
KINDS = {
    "valid": sends(lambda key: upgrade(key) + frame(TEXT, b"hi") + close(1000)),
    "wrong_accept": sends(lambda key: upgrade(key, answer=b"AAAA")),
    "no_accept": sends(lambda key: b"HTTP/1.1 101 X\r\n" + USUAL + b"\r\n"),
    "two_accepts": sends(lambda key: upgrade(key, b"Sec-WebSocket-Accept: " + accept(key) + b"\r\n")),
    "no_upgrade": sends(lambda key: upgrade(key, connection=b"Connection: Upgrade\r\n")),
    "wrong_upgrade": sends(lambda key: upgrade(key, connection=b"Connection: Upgrade\r\nUpgrade: h2c\r\n")),
    "status_200": sends(lambda key: upgrade(key, b"Content-Length: 0\r\n", status=b"200 OK")),
    "status_401": refusal(b"401 Unauthorized"),
    "redirect": refusal(b"302 Found", b"Location: /x\r\n"),
    "wrong_protocol": sends(lambda key: upgrade(key, b"Sec-WebSocket-Protocol: other\r\n")),
    "right_protocol": sends(lambda key: upgrade(key, b"Sec-WebSocket-Protocol: chat\r\n") + frame(CLOSE)),
    "unoffered_extension": sends(lambda key: upgrade(key, b"Sec-WebSocket-Extensions: x-foo\r\n")),
    "wrong_parameters": sends(lambda key: upgrade(key, b"Sec-WebSocket-Extensions: permessage-deflate\r\n")),
    "deflate": sends(lambda key: upgrade(key, DEFLATE) + frame(TEXT, compressed(b"hi" * 100), rsv=4) + frame(CLOSE)),
    "deflate_bomb": sends(lambda key: upgrade(key, DEFLATE) + frame(BINARY, compressed(b"\0" * (100 << 20)), rsv=4)),
    "masked": sends(lambda key: upgrade(key) + frame(TEXT, b"hi", mask=b"abcd")),
    "reserved_bit": sends(lambda key: upgrade(key) + frame(TEXT, b"hi", rsv=4)),
    "huge_length": sends(lambda key: upgrade(key) + frame(BINARY, b"x", length=1 << 40)),
    "invalid_text": sends(lambda key: upgrade(key) + frame(TEXT, b"\xff\xfe")),
    "close_and_stay": sends(lambda key: upgrade(key) + close(1001)),
    "silence": sends(lambda key: b""),
    "slow_head": slowly(upgrade, 0.05),
    "interim_storm": storm,
    "silence_after_the_handshake": sends(upgrade),
    "ping_flood": sends(lambda key: upgrade(key) + frame(PING, b"p" * 125) * 20000 + frame(CLOSE)),
    "length_of_101": sends(lambda key: upgrade(key, b"Content-Length: 5\r\n") + frame(TEXT, b"hello") + frame(CLOSE)),
    "http_1_0": sends(lambda key: upgrade(key).replace(b"HTTP/1.1", b"HTTP/1.0") + frame(CLOSE)),
    "single_bytes": slowly(lambda key: upgrade(key) + SPLIT, 0),
    "close_1005": sends(lambda key: upgrade(key) + close(1005)),
}


def serve(stream):
    stream.settimeout(60)
    buffer = b""
    try:
        while b"\r\n\r\n" not in buffer:
            buffer += stream.recv(65536)
        kind = re.match(rb"GET /(\w+) ", buffer)[1].decode()
        key = re.search(rb"Sec-WebSocket-Key: (\S+)", buffer)[1]
        KINDS[kind](stream, key)
    except OSError:
        pass
    finally:
        stream.close()


listener = socket.create_server(("127.0.0.1", 0), backlog=64)
print("listening on", listener.getsockname()[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0)), daemon=True).start()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
