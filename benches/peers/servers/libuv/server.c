/* libuv, one loop. One read buffer for all connections. Replies are sent with
 * uv_try_write, and bytes that the socket does not accept with uv_write. A
 * server for measurements, not for use: it has no bounds and does not check
 * for failed allocations.
 *
 * usage: uv-server PORT echo-raw|echo-frames|broadcast */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define MAX_FRAME (1u << 20)

typedef struct conn {
    uv_tcp_t tcp;
    struct conn *prev, *next;
    char *input; /* a partially received frame */
    size_t used, cap;
} conn_t;

typedef struct {
    uv_write_t req;
    char data[];
} late_t;

enum { RAW, FRAMES, BROADCAST } mode;
static conn_t members = {.prev = &members, .next = &members};
static char shared[64 * 1024];
static char *out;
static size_t out_used, out_cap;
static uv_prepare_t prepare;

static void append(char **buf, size_t *used, size_t *cap, const char *p, size_t n) {
    if (*used + n > *cap) {
        *cap = (*used + n) * 2;
        *buf = realloc(*buf, *cap);
    }
    memcpy(*buf + *used, p, n);
    *used += n;
}

static void on_close(uv_handle_t *h) {
    conn_t *c = (conn_t *)h;
    c->prev->next = c->next;
    c->next->prev = c->prev;
    free(c->input);
    free(c);
}

static void drop_conn(conn_t *c) {
    if (!uv_is_closing((uv_handle_t *)c)) uv_close((uv_handle_t *)c, on_close);
}

static void on_late(uv_write_t *req, int status) {
    if (status < 0) drop_conn((conn_t *)req->handle);
    free(req);
}

static void send_bytes(conn_t *c, char *p, size_t n) {
    uv_stream_t *s = (uv_stream_t *)&c->tcp;
    uv_buf_t b = uv_buf_init(p, n);
    if (uv_is_closing((uv_handle_t *)c)) return;
    int done = uv_try_write(s, &b, 1); /* UV_EAGAIN also if writes are queued */
    if (done < 0 && done != UV_EAGAIN) {
        drop_conn(c);
        return;
    }
    if (done < 0) done = 0;
    if ((size_t)done < n) {
        late_t *l = malloc(sizeof *l + n - done);
        memcpy(l->data, p + done, n - done);
        b = uv_buf_init(l->data, n - done);
        if (uv_write(&l->req, s, &b, 1, on_late) < 0) drop_conn(c);
    }
}

/* Appends the complete frames at the front of p to out; returns bytes used or -1. */
static ssize_t decode(const char *p, size_t n) {
    size_t at = 0;
    while (n - at >= 4) {
        const uint8_t *h = (const uint8_t *)p + at;
        uint32_t len = (uint32_t)h[0] << 24 | h[1] << 16 | h[2] << 8 | h[3];
        if (len > MAX_FRAME) return -1;
        if (n - at - 4 < len) break;
        append(&out, &out_used, &out_cap, p + at, 4 + (size_t)len);
        at += 4 + (size_t)len;
    }
    return at;
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b) {
    (void)h, (void)hint;
    *b = uv_buf_init(shared, sizeof shared);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    conn_t *c = (conn_t *)s;
    ssize_t used;
    if (n < 0) {
        drop_conn(c);
        return;
    }
    if (n == 0) return;
    if (mode == RAW) {
        send_bytes(c, b->base, n);
        return;
    }
    if (c->used == 0) {
        used = decode(b->base, n);
        if (used >= 0) append(&c->input, &c->used, &c->cap, b->base + used, n - used);
    } else {
        append(&c->input, &c->used, &c->cap, b->base, n);
        used = decode(c->input, c->used);
        if (used > 0) memmove(c->input, c->input + used, c->used -= used);
    }
    if (used < 0) drop_conn(c);
    if (mode == FRAMES && out_used > 0) {
        send_bytes(c, out, out_used);
        out_used = 0;
    }
}

/* Broadcast: once per turn of the loop, sends the received frames to every member. */
static void on_prepare(uv_prepare_t *p) {
    (void)p;
    if (out_used == 0) return;
    for (conn_t *c = members.next; c != &members; c = c->next) send_bytes(c, out, out_used);
    out_used = 0;
}

static void on_connection(uv_stream_t *server, int status) {
    if (status < 0) return;
    conn_t *c = calloc(1, sizeof *c);
    uv_tcp_init(server->loop, &c->tcp);
    c->next = members.next;
    c->prev = &members;
    c->next->prev = members.next = c;
    if (uv_accept(server, (uv_stream_t *)&c->tcp) < 0) {
        drop_conn(c);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

int main(int argc, char **argv) {
    struct sockaddr_in addr;
    uv_tcp_t server;
    uv_loop_t *loop = uv_default_loop();
    if (argc != 3) return 2;
    if (!strcmp(argv[2], "echo-raw")) mode = RAW;
    else if (!strcmp(argv[2], "echo-frames")) mode = FRAMES;
    else if (!strcmp(argv[2], "broadcast")) mode = BROADCAST;
    else return 2;
    uv_tcp_init(loop, &server);
    uv_ip4_addr("127.0.0.1", atoi(argv[1]), &addr);
    uv_tcp_bind(&server, (struct sockaddr *)&addr, 0);
    if (uv_listen((uv_stream_t *)&server, 4096, on_connection)) return 1;
    if (mode == BROADCAST) {
        uv_prepare_init(loop, &prepare);
        uv_prepare_start(&prepare, on_prepare);
    }
    return uv_run(loop, UV_RUN_DEFAULT);
}
