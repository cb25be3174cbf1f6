// A node of rooms on Socket.IO, with the Redis streams adapter and connection state recovery.
//
//     node node.js --listen 127.0.0.1:0 --node NAME --broker redis://127.0.0.1:6379
//     node node.js --listen 127.0.0.1:0 --node NAME --broker unix:/run/redis.sock
//
// `im_chaos --socketio` starts three of these. The settings are those of Socket.IO's documentation,
// except for the heartbeat, which gives a dead peer up after five seconds, as the bots of im_chaos do.

import { createAdapter } from "@socket.io/redis-streams-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";
import { createServer } from "node:http";
import { parseArgs } from "node:util";

// As many messages as ten rooms of our own nodes keep together, so that nothing is trimmed.
const HISTORY = 50_000;

const string = { type: "string" };
const { values } = parseArgs({ options: { listen: string, node: string, broker: string } });

// The adapter catches no errors of the commands that store a session or ask other nodes for their
// members. Without this handler, they end the process as soon as Redis closes its connections.
process.on("unhandledRejection", (error) => console.error(`${values.node}: ${error.message}`));

const path = values.broker.match(/^unix:(.*)/)?.[1];
const redis = createClient(path ? { socket: { path } } : { url: values.broker });
redis.on("error", (error) => console.error(`${values.node}: redis: ${error.message || error.code}`));
await redis.connect();

const http = createServer();
const io = new Server(http, {
  adapter: createAdapter(redis, { maxLen: HISTORY }),
  connectionStateRecovery: { maxDisconnectionDuration: 2 * 60 * 1000, skipMiddlewares: true },
  pingInterval: 2500,
  pingTimeout: 2500,
  transports: ["websocket"],
});

io.on("connection", (socket) => {
  socket.on("join", (room, user, joined) => {
    socket.data.user = user;
    socket.join(room);
    // There are no positions. Messages that Redis stores from the next millisecond on will arrive.
    joined(Date.now());
  });
  socket.on("say", async (room, text, id, said) => {
    const packet = { type: 2, nsp: "/", data: ["message", socket.data.user, text, id, Date.now()] };
    // This is `io.to(room).emit(...)`, which does not return the promise. So the acknowledgement
    // waits until Redis has stored the message, and it says whether that has failed.
    await io.of("/").adapter.broadcast(packet, { rooms: new Set([room]), except: new Set(), flags: {} });
    const offset = packet.data.at(-1);
    said(typeof offset === "string" ? { offset } : { error: "not stored" });
  });
  socket.on("who", async (room, answer) => {
    try {
      const sockets = await io.in(room).fetchSockets();
      answer({ users: [...new Set(sockets.map((socket) => socket.data.user))] });
    } catch (error) {
      answer({ error: error.message });
    }
  });
});

async function stop() {
  await io.close();
  // Waits for the sessions that are being stored.
  await redis.close();
  process.exit(0);
}
process.on("SIGTERM", stop);
// The end of the input says that im_chaos is gone.
process.stdin.on("end", () => process.exit(1)).resume();

const [host, port] = values.listen.split(":");
http.listen(Number(port), host, () => console.log(`listening on ${host}:${http.address().port}`));
