//! One connection: handshakes, login, and the chat.

use crate::{
    cpu_work::CpuWork,
    protocol::{Reply, Request},
    rooms::{Rooms, encoded},
};
use futures_util::{SinkExt, StreamExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, mpsc::Receiver},
    task::spawn_blocking,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{Error, Message},
};

/// Time without a message of the client after which it is gone. Clients send pings.
const IDLE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) tls: TlsAcceptor,
    pub(crate) logins: Semaphore,
    pub(crate) login_timeout: Duration,
    pub(crate) login_work: CpuWork,
    pub(crate) rooms: Rooms,
}

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Serves a connection until it ends.
pub(crate) async fn serve(server: &Server, stream: TcpStream) {
    // A client that does not log in, and a connection that fails, are the client's matter.
    let Ok(Ok(Some((mut socket, user)))) = timeout(server.login_timeout, login(server, stream)).await else {
        return;
    };
    let mut room = None;
    let _ = chat(server, &mut socket, &user, &mut room).await;
    if let Some((room, _)) = room {
        server.rooms.leave(&room, &user);
    }
}

/// Does the handshakes and the login, which only a number of connections do at the same time.
async fn login(server: &Server, stream: TcpStream) -> Result<Option<(Socket, String)>, Error> {
    let Ok(_permit) = server.logins.acquire().await else { return Ok(None) };
    stream.set_nodelay(true)?;
    let mut socket = accept_async(server.tls.accept(stream).await?).await?;
    loop {
        let Some(message) = socket.next().await else { return Ok(None) };
        if let Some(Request::Login { user, .. }) = request(&message?) {
            let work = server.login_work;
            if spawn_blocking(move || work.run()).await.is_err() {
                return Ok(None);
            }
            let idle_ms = IDLE.as_millis() as u64;
            let welcome = Reply::Welcome {
                user: user.clone(),
                heartbeat_ms: idle_ms,
                idle_ms,
                ack_timeout_ms: idle_ms,
                // Without positions of messages, and so without resuming.
                version: 2,
                resume_token: String::new(),
            };
            socket.send(encoded(&welcome)).await?;
            return Ok(Some((socket, user)));
        }
    }
}

/// The room of a client, and the messages to it.
type Joined = Option<(String, Receiver<Message>)>;

async fn chat(server: &Server, socket: &mut Socket, user: &str, joined: &mut Joined) -> Result<(), Error> {
    loop {
        tokio::select! {
            message = timeout(IDLE, socket.next()) => {
                let Ok(Some(message)) = message else { return Ok(()) };
                if let Some(request) = request(&message?) {
                    answer(server, socket, user, joined, request).await?;
                }
            }
            message = next(joined) => {
                let mut message = message;
                while let Some(ready) = message {
                    socket.feed(ready).await?;
                    message = joined.as_mut().and_then(|(_, messages)| messages.try_recv().ok());
                }
                socket.flush().await?;
            }
        }
    }
}

async fn next(joined: &mut Joined) -> Option<Message> {
    match joined {
        Some((_, messages)) => messages.recv().await,
        None => std::future::pending().await,
    }
}

async fn answer(
    server: &Server,
    socket: &mut Socket,
    user: &str,
    joined: &mut Joined,
    request: Request,
) -> Result<(), Error> {
    let reply = match request {
        Request::Join { room, .. } => {
            let messages = server.rooms.join(&room, user);
            *joined = Some((room.clone(), messages));
            Reply::Joined { room, user: user.to_owned(), epoch: None, offset: None, recovered: None }
        }
        Request::Say { room, text, id } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let ts = now.as_millis() as u64;
            let message = |id| Reply::Message {
                room: room.clone(),
                from: user.to_owned(),
                text: text.clone(),
                ts,
                epoch: None,
                offset: None,
                id,
                sender_id: None,
                is_local: true,
            };
            server.rooms.send(&room, user, &message(None));
            message(id)
        }
        Request::Ping => Reply::Pong,
        _ => return Ok(()),
    };
    socket.send(encoded(&reply)).await
}

fn request(message: &Message) -> Option<Request> {
    match message {
        Message::Text(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}
