// Bun, whose server is uWebSockets: echo and broadcast of WebSocket messages. The port and the mode
// are the arguments.
const [port, mode] = process.argv.slice(2);

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: Number(port),
  fetch(request, server) {
    return server.upgrade(request) ? undefined : new Response('WebSocket only', { status: 400 });
  },
  websocket: {
    // Compresses for clients that offer it, with one compressor for all connections.
    perMessageDeflate: { compress: 'shared', decompress: 'shared' },
    open(socket) {
      if (mode === 'ws-broadcast') socket.subscribe('room');
    },
    message(socket, message) {
      if (mode === 'ws') socket.send(message, true);
      else server.publish('room', message, true);
    },
  },
});
