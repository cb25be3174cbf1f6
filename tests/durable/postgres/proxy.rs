//! A proxy for TCP that can cut connections, slow them down, or keep them open without passing
//! anything on.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

#[derive(Default)]
struct State {
    /// The port of the server for new connections.
    target: u16,
    /// Whether bytes wait until the proxy is opened again.
    is_blocked: bool,
    /// How long each KiB from the server takes on a connection.
    pause: Duration,
    /// How many times bytes have waited for a millisecond or more.
    delays: usize,
    connections: Vec<TcpStream>,
}

#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Proxy {
    /// Passes connections on to a port of this machine.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State { target: port, ..State::default() };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let proxy = Proxy { port: listener.local_addr().unwrap().port(), shared };
        let accepting = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let target = accepting.shared.0.lock().unwrap().target;
                // A server that is away refuses connections.
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                accepting.shared.0.lock().unwrap().connections.extend(both);
                accepting.pass(client.try_clone().unwrap(), server.try_clone().unwrap(), false);
                accepting.pass(server, client, true);
            }
        });
        proxy
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, is_limited: bool) {
        let shared = self.shared.clone();
        thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                let state = shared.0.lock().unwrap();
                let mut state = shared.1.wait_while(state, |state| state.is_blocked).unwrap();
                let pause = state.pause.mul_f64(n as f64 / 1024.0);
                if is_limited && !pause.is_zero() {
                    state.delays += usize::from(pause >= Duration::from_millis(1));
                    drop(shared.1.wait_timeout_while(state, pause, |_| true).unwrap());
                } else {
                    drop(state);
                }
                if to.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }

    /// Closes all connections. Returns the number of sockets that were connected.
    pub(crate) fn cut(&self) -> usize {
        let mut state = self.shared.0.lock().unwrap();
        state.connections.drain(..).filter(|connection| connection.shutdown(Shutdown::Both).is_ok()).count()
    }

    /// Returns how many times a limit has delayed bytes by a millisecond or more.
    pub(crate) fn delays(&self) -> usize {
        self.shared.0.lock().unwrap().delays
    }

    /// Closes all connections, and passes new ones on to another port.
    pub(crate) fn lead_to(&self, port: u16) {
        self.shared.0.lock().unwrap().target = port;
        self.cut();
    }

    /// Limits what passes from the server to the clients.
    pub(crate) fn limit(&self, bytes_per_second: u32) {
        self.shared.0.lock().unwrap().pause = Duration::from_secs(1024) / bytes_per_second;
    }

    /// Passes nothing on, and accepts connections as before.
    pub(crate) fn block(&self) {
        self.shared.0.lock().unwrap().is_blocked = true;
    }

    /// Passes bytes on again, including the waiting ones.
    pub(crate) fn open(&self) {
        self.shared.0.lock().unwrap().is_blocked = false;
        self.shared.1.notify_all();
    }
}
