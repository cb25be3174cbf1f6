"""Parses streams of HTTP requests with h11 and with httptools, which contains llhttp.

The first argument is a file of streams: for each its length, 4 bytes big endian, and its bytes. The
second argument is the file for the results: one line of JSON for each stream, with the readings of
the parsers. Bytes are written as Latin-1.

The end of a reading is
- "waiting": more bytes may follow,
- "closed": the last request ends the connection, so that later bytes are ignored,
- "refused", with a reason,
- "unknown": the parser does not read what follows.
"""

import json
import sys

import h11
import httptools


def text(headers):
    # llhttp keeps the spaces behind a value.
    return [[name.decode("latin-1"), value.rstrip(b" \t").decode("latin-1")] for name, value in headers]


class Reading:
    def __init__(self):
        self.requests = []
        self.end = "waiting"
        self.reason = ""

    def begin(self, method, target, version, headers):
        self.requests.append({
            "method": method.decode("latin-1"),
            "target": target.decode("latin-1"),
            "version": version,
            "headers": text(headers),
            "body": "",
            "trailers": [],
            "is_complete": False,
        })

    def complete(self, trailers):
        self.requests[-1]["trailers"] = text(trailers)
        self.requests[-1]["is_complete"] = True

    def refuse(self, error):
        self.end = "refused"
        self.reason = f"{type(error).__name__}: {error}"

    def json(self):
        return {"requests": self.requests, "end": self.end, "reason": self.reason}


RESPONSE = h11.Response(status_code=404, headers=[("Content-Length", "0")])


def keeps_http10_alive(request):
    """h11 has no keep-alive for HTTP/1.0."""
    options = [
        option.strip().lower()
        for name, value in request.headers
        if name == b"connection"
        for option in value.split(b",")
    ]
    return request.http_version == b"1.0" and b"keep-alive" in options and b"close" not in options


def connect(stream):
    # One empty line ahead of a request is skipped (RFC 9112, section 2.2). h11 refuses it.
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    if stream := stream.removeprefix(b"\r\n"):
        connection.receive_data(stream)
    return connection


def read_with_h11(stream):
    reading = Reading()
    connection = connect(stream)
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            reading.refuse(error)
            return reading
        if event is h11.NEED_DATA:
            return reading
        if isinstance(event, h11.Request):
            request = event
            version = event.http_version.decode("ascii")
            reading.begin(event.method, event.target, version, event.headers.raw_items())
        elif isinstance(event, h11.Data):
            reading.requests[-1]["body"] += bytes(event.data).decode("latin-1")
        elif isinstance(event, h11.EndOfMessage):
            reading.complete(event.headers.raw_items())
            connection.send(RESPONSE)
            connection.send(h11.EndOfMessage())
            if connection.our_state is connection.their_state is h11.DONE or keeps_http10_alive(request):
                connection = connect(connection.trailing_data[0])
            else:
                reading.end = "closed"
                return reading
        else:
            raise AssertionError(f"unexpected event {event!r}")


class LlhttpReading(Reading):
    """The callbacks of a parser."""

    def restart(self):
        self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self):
        self.target = b""
        self.headers = []
        self.trailers = []
        self.is_in_body = False

    def on_url(self, part):
        self.target += part

    def on_header(self, name, value):
        (self.trailers if self.is_in_body else self.headers).append((name, value))

    def on_headers_complete(self):
        self.is_in_body = True
        # httptools takes the body for bytes of the other protocol.
        self.skips_body = self.parser.should_upgrade() and has_body(self.headers)
        if self.end == "waiting":
            version = self.parser.get_http_version()
            self.begin(self.parser.get_method(), self.target, version, self.headers)

    def on_body(self, part):
        if self.end == "waiting":
            self.requests[-1]["body"] += part.decode("latin-1")

    def on_message_complete(self):
        if self.end == "waiting" and self.skips_body:
            self.end = "unknown"
        elif self.end == "waiting":
            self.complete(self.trailers)
            if not self.parser.should_keep_alive():
                self.end = "closed"


def read_with_llhttp(stream):
    reading = LlhttpReading()
    reading.restart()
    while stream:
        try:
            reading.parser.feed_data(stream)
            break
        except httptools.HttpParserUpgrade as upgrade:
            if reading.end != "waiting":
                break
            # The answer is 404, so that the next request follows.
            stream = stream[upgrade.args[0]:]
            reading.restart()
        except httptools.HttpParserError as error:
            if reading.end == "waiting":
                reading.refuse(error)
            break
    return reading


def has_body(headers):
    fields = {name.lower(): value for name, value in headers}
    return fields.get(b"content-length", b"0").strip() != b"0" or b"transfer-encoding" in fields


def main():
    with open(sys.argv[1], "rb") as streams, open(sys.argv[2], "w") as results:
        while length := streams.read(4):
            stream = streams.read(int.from_bytes(length, "big"))
            readings = {"h11": read_with_h11(stream), "llhttp": read_with_llhttp(stream)}
            json.dump({name: reading.json() for name, reading in readings.items()}, results)
            results.write("\n")


print("h11", h11.__version__, "httptools", httptools.__version__)
main()
