//! A proxy for TCP that can cut connections, or keep them open without passing anything on.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

#[derive(Default)]
struct State {
    /// Whether bytes wait until the proxy is opened again.
    is_blocked: bool,
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
        let proxy = Proxy { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        let accepting = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                accepting.shared.0.lock().unwrap().connections.extend(both);
                accepting.pass(client.try_clone().unwrap(), server.try_clone().unwrap());
                accepting.pass(server, client);
            }
        });
        proxy
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let shared = self.shared.clone();
        thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                let state = shared.0.lock().unwrap();
                drop(shared.1.wait_while(state, |state| state.is_blocked).unwrap());
                if to.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for connection in self.shared.0.lock().unwrap().connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Passes nothing on, and accepts connections as before.
    pub(crate) fn block(&self) {
        self.shared.0.lock().unwrap().is_blocked = true;
    }

    /// Passes bytes on again, including those that have waited.
    pub(crate) fn open(&self) {
        self.shared.0.lock().unwrap().is_blocked = false;
        self.shared.1.notify_all();
    }
}
