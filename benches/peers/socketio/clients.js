// The clients of Socket.IO: `im_chaos` speaks its line protocol with this program, which has a
// socket.io-client for each bot.
//
//     node clients.js 127.0.0.1:4001 127.0.0.1:4002 127.0.0.1:4003
//
// It listens on a port for each node, prints `listening on ADDRESS…`, and closes the connection of
// a bot when its client is disconnected. The client of a bot outlives its connections: a bot that
// comes back, perhaps on the port of another node, reconnects the same client, which then asks for
// the recovery of its state.

import { once } from "node:events";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { Manager } from "socket.io-client";

// Socket.IO's documentation has this value for `ackTimeout`. The bot then repeats the message.
const ACK_TIMEOUT = 10_000;
const CONNECT_TIMEOUT = 5_000;
// The positions of Socket.IO have no epochs.
const EPOCH = 1;

// Returns a position as a number: the id of an entry of a Redis stream is MILLISECONDS-SEQUENCE.
// There is room for a position behind each one, for a message that has none.
function position(id) {
  const [time, sequence] = id.split("-").map(Number);
  return time * 1000 + Math.min(sequence, 99) * 10;
}

class Client {
  constructor(user) {
    this.user = user;
    this.room = undefined;
    this.line = undefined;
    this.manager = new Manager("http://localhost", {
      autoConnect: false,
      // The bot decides when to come back, and to which node.
      reconnection: false,
      timeout: CONNECT_TIMEOUT,
      transports: ["websocket"],
    });
    this.socket = this.manager.socket("/");
    this.socket.on("connect", () => this.connected());
    this.socket.on("message", (...message) => this.received(message));
    this.socket.on("connect_error", () => this.lost());
    this.manager.on("error", () => this.lost());
    this.socket.on("disconnect", () => this.lost());
  }

  // Connects to a node on behalf of a connection of the bot.
  connect(line, node) {
    this.lost();
    this.line = line;
    this.early = [];
    this.manager.uri = `http://${node}`;
    this.socket.connect();
  }

  // Ends a connection or an attempt, here and at the bot.
  lost() {
    if (this.isEnding) return;
    this.isEnding = true;
    const { line } = this;
    this.line = undefined;
    this.isInside = false;
    // This closes the transport. `socket.disconnect()` alone would give the session up.
    this.manager.disconnect();
    this.socket.disconnect();
    this.isEnding = false;
    line?.end();
  }

  send(reply) {
    this.line?.write(JSON.stringify(reply) + "\n");
  }

  connected() {
    this.send({
      type: "welcome", user: this.user, heartbeat_ms: 0, idle_ms: 0, ack_timeout_ms: 0, version: 3,
      resume_token: this.user,
    });
    if (!this.room) return;
    if (this.socket.recovered) {
      this.enter(this.room, this.at, undefined, true);
    } else {
      this.join(this.room, false);
    }
  }

  join(room, recovered) {
    const line = this.line;
    this.socket.emit("join", room, this.user, (time) => {
      const since = time * 1000 + 999;
      if (line === this.line) this.enter(room, since, since, recovered);
    });
  }

  enter(room, offset, since, recovered) {
    this.room = room;
    this.at = offset;
    this.since = since;
    this.isInside = true;
    this.send({ type: "joined", room, user: this.user, epoch: EPOCH, offset, recovered });
    for (const message of this.early.splice(0)) this.received(message);
  }

  received(event) {
    // Missed messages arrive before the event `connect`.
    if (!this.isInside) return void this.early.push(event);
    const [from, text, id, ts, stream] = event;
    // A message that Redis has not stored has no position. It counts as the next one.
    const offset = stream === undefined ? this.at + 1 : position(stream);
    if (offset <= this.since) {
      // The node was behind the time at which it has let this client in.
      this.send({ type: "gap", room: this.room, epoch: EPOCH, offset: offset - 1, cause: "trimmed" });
    }
    this.since = undefined;
    this.at = Math.max(this.at, offset);
    const message = { type: "message", room: this.room, from, text, ts, epoch: EPOCH, offset };
    // A sender that receives its own message knows that Redis has it.
    this.send(from === this.user && stream !== undefined ? { ...message, id } : message);
  }

  // Handles a request of the bot.
  request(request) {
    if (request.type === "ping") return this.send({ type: "pong" });
    // Otherwise the client would keep the request, and send it later.
    if (!this.socket.connected) return;
    const line = this.line;
    const answer = (reply) => {
      if (line === this.line) this.send(reply);
    };
    const refusal = (message, id) => ({ type: "error", code: "busy", message, id });
    switch (request.type) {
      case "join":
        return this.join(request.room, undefined);
      case "say": {
        const { room, text, id } = request;
        return this.socket.timeout(ACK_TIMEOUT).emit("say", room, text, id, (error, said) => {
          if (said?.offset) {
            answer({ type: "said", room, epoch: EPOCH, offset: position(said.offset), id });
          } else {
            answer(refusal(said?.error ?? error.message, id));
          }
        });
      }
      case "who":
        return this.socket.timeout(ACK_TIMEOUT).emit("who", request.room, (error, who) => {
          const { room } = request;
          answer(who?.users ? { type: "members", room, users: who.users } : refusal(who?.error ?? error.message));
        });
    }
  }
}

const clients = new Map();

function accept(line, node) {
  let client;
  line.setNoDelay();
  // An error is followed by `close`.
  line.on("error", () => {});
  const lines = createInterface({ input: line });
  lines.on("error", () => {});
  lines.on("line", (text) => {
    const request = JSON.parse(text);
    if (request.type === "login") {
      client = clients.get(request.user) ?? new Client(request.user);
      clients.set(request.user, client);
      client.connect(line, node);
    } else if (client?.line === line) {
      client.request(request);
    }
  });
  line.on("close", () => {
    if (client?.line === line) client.lost();
  });
}

const addresses = [];
for (const node of process.argv.slice(2)) {
  const server = createServer((line) => accept(line, node)).listen(0, "127.0.0.1");
  await once(server, "listening");
  addresses.push(`127.0.0.1:${server.address().port}`);
}
console.log(`listening on ${addresses.join(" ")}`);
process.stdin.on("end", () => process.exit(1)).resume();
