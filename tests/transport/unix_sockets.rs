//! Unix stream sockets: names, the socket file, and settings that do not apply to them. The tests
//! that run over both kinds of socket cover the transfer of bytes.

#![cfg(unix)]

use crate::support::{
    loops::{end, metrics, one_loop, turn_until},
    recorder,
    servers::{self, Echo},
    wait::{PATIENCE, done, receive},
};
use bytes::Bytes;
use netwheel::{
    Peer,
    admission::{Admission, IpFilter, IpRule},
    codec::RawBytes,
    net::{Address, ListenerOptions, TcpOptions, UnixAddress},
    prelude::*,
    reconnect::{Backoff, ReconnectEvent},
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    ops::ControlFlow,
    os::unix::{
        fs::FileTypeExt,
        net::{UnixDatagram, UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

/// A directory of the test, which is removed when it is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("netwheel-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bootstrap(
    group: &EventLoopGroup,
) -> ServerBootstrap<impl Fn(&Peer) -> netwheel::Pipeline<Bytes> + Send + Sync + 'static + use<>> {
    ServerBootstrap::new(group).pipeline(|_: &Peer| Pipeline::codec(RawBytes).handler(Echo))
}

fn name(path: impl AsRef<Path>) -> UnixAddress {
    UnixAddress::path(path.as_ref()).unwrap()
}

fn connect(path: impl AsRef<Path>) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[track_caller]
fn ping(stream: &mut UnixStream) {
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}

fn is_socket(path: impl AsRef<Path>) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

// ---- the socket file ---------------------------------------------------------------------------

#[test]
fn the_file_exists_while_the_server_listens() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    let server = bootstrap(&group).bind(name(&path)).unwrap();
    assert_eq!(server.local_address(), name(&path));
    assert!(is_socket(&path));
    let mut peer = connect(&path);
    ping(&mut peer);
    done(server.close()).unwrap();
    assert!(!path.exists(), "the file is removed with the listener");
    // Open connections stay.
    ping(&mut peer);
    let server = bootstrap(&group).bind(name(&path)).unwrap();
    ping(&mut connect(&path));
    end(&group);
    assert!(!path.exists(), "the file is removed with the loop");
    drop(server);
}

#[test]
fn an_existing_file_is_in_use_unless_a_stale_one_may_be_removed() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(is_socket(&path), "the file that a killed server leaves behind");
    let refused = bootstrap(&group).bind(name(&path)).unwrap_err();
    assert_eq!(refused.io_kind(), Some(ErrorKind::AddrInUse), "{refused}");
    assert!(is_socket(&path), "a refusal does not remove the file");
    let removing = || bootstrap(&group).listener_options(ListenerOptions::new().remove_stale_socket(true));
    let _server = removing().bind(name(&path)).unwrap();
    ping(&mut connect(&path));
    end(&group);
}

#[test]
fn files_that_are_in_use_or_not_sockets_are_not_removed() {
    let (directory, group) = (Directory::new(), one_loop());
    let removing = || bootstrap(&group).listener_options(ListenerOptions::new().remove_stale_socket(true));
    let refused = |path: &Path| {
        let refused = removing().bind(name(path)).unwrap_err();
        assert_eq!(refused.io_kind(), Some(ErrorKind::AddrInUse), "{refused}");
        format!("{refused:#}")
    };
    let path = directory.join("alive");
    let _server = bootstrap(&group).bind(name(&path)).unwrap();
    assert!(refused(&path).contains("the existing socket is in use"));
    ping(&mut connect(&path));

    let path = directory.join("file");
    fs::write(&path, "precious").unwrap();
    assert!(refused(&path).contains("not a socket"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

    // A symbolic link to a stale socket is not a socket.
    let (path, target) = (directory.join("link"), directory.join("stale"));
    drop(UnixListener::bind(&target).unwrap());
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert!(refused(&path).contains("not a socket"));
    assert!(is_socket(&target));

    let path = directory.join("datagrams");
    let _alive = UnixDatagram::bind(&path).unwrap();
    assert!(refused(&path).contains("the existing socket is in use"));
    assert!(is_socket(&path));

    // A listener with a full backlog is in use.
    let path = directory.join("busy");
    let busy = UnixListener::bind(&path).unwrap();
    socket2::SockRef::from(&busy).listen(0).unwrap();
    let _waiting: Vec<_> = fill(&path);
    if cfg!(target_os = "linux") {
        assert!(refused(&path).contains("the existing socket is in use"));
        assert!(is_socket(&path));
    }
    end(&group);
}

/// Connects until the backlog is full.
fn fill(path: &Path) -> Vec<socket2::Socket> {
    let mut waiting = Vec::new();
    loop {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        if socket.connect(&socket2::SockAddr::unix(path).unwrap()).is_err() {
            return waiting;
        }
        waiting.push(socket);
    }
}

#[test]
fn a_file_that_has_replaced_the_servers_file_stays() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    let server = bootstrap(&group).bind(name(&path)).unwrap();
    // A successor that replaces the file without the builder's help.
    fs::remove_file(&path).unwrap();
    let successor = UnixListener::bind(&path).unwrap();
    done(server.close()).unwrap();
    assert!(is_socket(&path), "the file belongs to the successor");
    drop(UnixStream::connect(&path).unwrap());
    drop(successor);
    end(&group);
}

#[test]
fn an_adopted_listener_keeps_its_file() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // The connection waits in the backlog. Clients are not refused while the server starts.
    let mut early = connect(&path);
    let server = bootstrap(&group).adopt(listener).unwrap();
    assert_eq!(server.local_address(), name(&path));
    ping(&mut early);
    done(server.close()).unwrap();
    assert!(is_socket(&path), "the creator of the file may pass the listener on");
    end(&group);
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn an_abstract_name_has_no_file_and_vanishes_with_its_socket() {
    let group = one_loop();
    let address = UnixAddress::abstract_name(format!("netwheel\0test-{}", std::process::id())).unwrap();
    let server = bootstrap(&group).bind(address.clone()).unwrap();
    assert_eq!(server.local_address(), address);
    let taken = bootstrap(&group).bind(address.clone()).unwrap_err();
    assert_eq!(taken.io_kind(), Some(ErrorKind::AddrInUse), "{taken}");
    let (channel, events) =
        servers::dial(&group, address.clone(), servers::Settings::new(), recorder::silent);
    channel.write("hello".into()).unwrap();
    assert_eq!(events.message(), "hello");
    done(server.close()).unwrap();
    drop(bootstrap(&group).bind(address).unwrap());
    end(&group);
}

// ---- addresses ---------------------------------------------------------------------------------

#[test]
fn neither_end_has_an_ip_address() {
    let (directory, group) = (Directory::new(), one_loop());
    let (sender, peers) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |peer| {
            sender.lock().unwrap().send(peer.clone()).unwrap();
            Pipeline::codec(RawBytes).handler(Echo)
        })
        .bind(Address::from(name(directory.join("socket"))))
        .unwrap();
    let (channel, _events) =
        servers::dial(&group, server.local_address(), servers::Settings::new(), recorder::silent);
    let peer = receive(&peers);
    assert_eq!((peer.address(), peer.local_address()), (None, None));
    assert_eq!((channel.peer_address(), channel.local_address()), (None, None));
    assert_eq!(server.local_address().to_string(), format!("unix:{}", directory.join("socket").display()));
    end(&group);
}

#[test]
fn address_filters_do_not_apply_but_the_connection_limit_does() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    let denied = IpFilter::new([IpRule::deny("0.0.0.0/0").unwrap(), IpRule::deny("::/0").unwrap()]);
    let admission = Admission::new().ip_filter(denied).max_connections_per_ip(1).max_connections(2);
    let _server = bootstrap(&group).admission(admission).bind(name(&path)).unwrap();
    let (mut one, mut two) = (connect(&path), connect(&path));
    ping(&mut one);
    ping(&mut two);
    let mut three = connect(&path);
    let ended = three.read(&mut [0]);
    assert!(matches!(&ended, Ok(0)) || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    turn_until(&group, |metrics| metrics.rejected_limit == 1);
    drop(one);
    turn_until(&group, |metrics| metrics.channels_closed == 1);
    ping(&mut connect(&path));
    assert_eq!(metrics(&group).rejected_filter, 0);
    end(&group);
}

// ---- clients -----------------------------------------------------------------------------------

#[test]
fn a_failed_connect_reports_the_systems_error() {
    let (directory, group) = (Directory::new(), one_loop());
    let (client, _events) = servers::client(&group, servers::Settings::new(), recorder::silent);
    let failed = |path: &Path| done(client.connect(name(path))).unwrap_err();
    let error = failed(&directory.join("nothing"));
    assert_eq!(error.io_kind(), Some(ErrorKind::NotFound), "{error}");
    let stale = directory.join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let error = failed(&stale);
    assert_eq!(error.io_kind(), Some(ErrorKind::ConnectionRefused), "{error}");
    let with_address = client.local_address("127.0.0.1:0".parse().unwrap());
    let error = done(with_address.connect(name(&stale))).unwrap_err();
    assert!(matches!(&error, Error::Setting(e) if e.setting() == "local_address"), "{error}");
    turn_until(&group, |metrics| metrics.connect_errors == 0 && metrics.channels == 0);
    end(&group);
}

/// unix(7): where TCP would wait for room in the backlog, a Unix socket returns EAGAIN.
#[cfg(target_os = "linux")]
#[test]
fn a_connect_to_a_full_backlog_fails_at_once() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("busy");
    let busy = UnixListener::bind(&path).unwrap();
    socket2::SockRef::from(&busy).listen(0).unwrap();
    let waiting = fill(&path);
    let (client, _events) = servers::client(&group, servers::Settings::new(), recorder::silent);
    let error = done(client.connect(name(&path))).unwrap_err();
    assert!(
        format!("{error:#}").starts_with("connecting failed: the listener's backlog is full"),
        "{error:#}"
    );
    assert_eq!(error.io_kind(), Some(ErrorKind::WouldBlock));
    assert_eq!(group.event_loops()[0].connections(), 0);
    waiting.iter().for_each(|_| drop(busy.accept().unwrap()));
    done(client.connect(name(&path))).unwrap();
    end(&group);
}

#[test]
fn a_client_stays_connected_to_a_server_that_restarts() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    let server = bootstrap(&group).bind(name(&path)).unwrap();
    let (sender, connected) = mpsc::channel();
    let sender = Mutex::new(sender);
    let (client, _events) = servers::client(&group, servers::Settings::new(), recorder::silent);
    let tried = Arc::new(Mutex::new(None));
    let noted = tried.clone();
    let backoff = Backoff::new().initial(std::time::Duration::from_millis(1));
    let client = client
        .reconnect(backoff)
        .on_event(move |event| {
            match event {
                ReconnectEvent::Connecting { address, .. } => *noted.lock().unwrap() = Some(address.clone()),
                ReconnectEvent::Connected { channel, .. } => {
                    sender.lock().unwrap().send(channel.clone()).unwrap();
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .connect(name(&path))
        .unwrap();
    receive(&connected);
    assert_eq!(*tried.lock().unwrap(), Some(name(&path).into()));
    done(server.close()).unwrap();
    let server = bootstrap(&group).bind(name(&path)).unwrap();
    client.channel().unwrap().close();
    assert!(receive(&connected).is_open());
    client.close();
    done(client.closed()).unwrap();
    drop(server);
    end(&group);
}

#[test]
fn a_pool_provides_channels_to_a_unix_socket() {
    let (directory, group) = (Directory::new(), one_loop());
    let server = bootstrap(&group).bind(name(directory.join("socket"))).unwrap();
    let (client, _events) = servers::client(&group, servers::Settings::new(), recorder::silent);
    let pool = client.pool().size(1).build(server.local_address()).unwrap();
    for _ in 0..2 {
        let channel = done(pool.acquire()).unwrap();
        done(channel.write_tracked("hello".into()).unwrap()).unwrap();
    }
    assert_eq!(metrics(&group).connected, 1);
    end(&group);
}

// ---- settings that do not apply ----------------------------------------------------------------

#[test]
fn a_name_has_only_one_listener() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    let refused = bootstrap(&group).listener_per_loop(true).bind(name(&path)).unwrap_err();
    assert!(matches!(&refused, Error::Setting(e) if e.setting() == "listener_per_loop"), "{refused}");
    assert!(!path.exists());
    end(&group);
}

#[test]
fn tcp_options_are_ignored_and_socket_options_apply() {
    let (directory, group) = (Directory::new(), one_loop());
    let path = directory.join("socket");
    let options = TcpOptions::new()
        .nodelay(true)
        .keepalive(std::time::Duration::from_secs(60))
        .linger(std::time::Duration::ZERO)
        .send_buffer(64 * 1024)
        .receive_buffer(64 * 1024);
    let _server = bootstrap(&group).tcp_options(options.clone()).bind(name(&path)).unwrap();
    ping(&mut connect(&path));
    let settings = servers::Settings { tcp: options, ..servers::Settings::new() };
    let (channel, events) = servers::dial(&group, name(&path), settings, recorder::silent);
    channel.write("hello".into()).unwrap();
    assert_eq!(events.message(), "hello");
    end(&group);
}

/// A read of a Unix socket ends behind a message with file descriptors, even if more bytes follow.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod descriptors {
    use super::*;
    use crate::support::loops::Gate;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::{io::IoSlice, mem::MaybeUninit, os::fd::AsFd};

    /// Sends bytes with a file descriptor.
    fn send_with_descriptor(peer: &UnixStream, bytes: &[u8]) {
        let descriptors = [peer.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let sent = sendmsg(peer, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len());
    }

    #[test]
    fn bytes_behind_a_message_with_descriptors_are_read() {
        let (directory, group) = (Directory::new(), one_loop());
        let path = directory.join("socket");
        let (sender, received) = mpsc::channel();
        let sender = Mutex::new(sender);
        // The server does not answer, because the peer's reads would cause events.
        let _server = ServerBootstrap::new(&group)
            .pipeline(move |_: &Peer| {
                let sender = sender.lock().unwrap().clone();
                Pipeline::codec(RawBytes).on_read(move |_, bytes: Bytes| {
                    sender.send(bytes).unwrap();
                    Ok(())
                })
            })
            .bind(name(&path))
            .unwrap();
        let mut peer = connect(&path);
        peer.write_all(b"hello").unwrap();
        assert_eq!(receive(&received), "hello");
        for _ in 0..3 {
            // All messages are there when the loop reads.
            let gate = Gate::shut(group.next());
            send_with_descriptor(&peer, b"one");
            peer.write_all(b"two").unwrap();
            send_with_descriptor(&peer, b"three");
            send_with_descriptor(&peer, b"four");
            peer.write_all(b"five").unwrap();
            drop(gate);
            let mut all = Vec::new();
            while all.len() < 19 {
                all.extend_from_slice(&receive(&received));
            }
            assert_eq!(all, b"onetwothreefourfive");
        }
        // The end of the stream is noticed behind such a message too.
        send_with_descriptor(&peer, b"six");
        drop(peer);
        assert_eq!(receive(&received), "six");
        turn_until(&group, |metrics| metrics.channels == 0);
        end(&group);
    }
}
