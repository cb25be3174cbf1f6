// The package `ws` on node: echo and broadcast of WebSocket messages. The path of the package, the
// port and the mode are the arguments.
const [packagePath, port, mode] = process.argv.slice(2);
const { WebSocket, WebSocketServer } = require(packagePath);

const server = new WebSocketServer({
  host: '127.0.0.1',
  port: Number(port),
  backlog: 4096,
  // Compresses for clients that offer it; the default is not to.
  perMessageDeflate: { serverNoContextTakeover: true, clientNoContextTakeover: true },
});

server.on('connection', (socket) => {
  socket.on('error', () => socket.terminate());
  socket.on('message', (data, binary) => {
    if (mode === 'ws') {
      socket.send(data, { binary });
      return;
    }
    for (const member of server.clients) {
      if (member.readyState === WebSocket.OPEN) member.send(data, { binary });
    }
  });
});
