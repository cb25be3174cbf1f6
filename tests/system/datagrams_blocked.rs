//! A datagram channel whose kernel temporarily accepts no more: pending datagrams keep their order
//! and have a limit. Also a channel whose kernel always fails.
//!
//! Linux only. A loopback interface always accepts everything, so strace makes the system calls
//! fail. Where strace is missing, a test says so and passes, except where `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::process::{Process, play, plays, strace_works};
use crate::support::wait::PATIENCE;
use bytes::Bytes;
use netwheel::{
    DatagramBootstrap, Error, EventLoopGroup, Result,
    datagram::{DatagramContext, DatagramHandler},
    error::Resource,
    group::EventLoopGroupBuilder,
    shutdown::ShutdownOptions,
};
use std::{
    io::Read,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

/// Makes the first send fail, and every fourth one after it.
const BLOCKED: [&str; 4] = ["-e", "trace=sendto", "-e", "inject=sendto:error=EAGAIN:when=1+4"];

/// Replies to "numbers" with four datagrams, of which three fit, and to "end" with one datagram and
/// a close.
struct Numbers {
    /// Expected resource name of the refusal.
    full: Resource,
}

impl DatagramHandler for Numbers {
    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
        match &datagram[..] {
            b"numbers" => {
                for n in ["1", "2", "3"] {
                    ctx.write_to(n, from)?;
                }
                let refused = ctx.write_to("4", from).unwrap_err();
                assert!(
                    matches!(refused.error(), Error::Full { resource, limit: 300, .. } if *resource == self.full)
                );
                println!("refused {:?}, {} wait", refused.value(), ctx.pending_bytes());
            }
            b"end" => {
                ctx.write_to("last", from)?;
                println!("{} wait", ctx.pending_bytes());
                ctx.close();
            }
            _ => println!("got {datagram:?}"),
        }
        Ok(())
    }

    fn writability_changed(&mut self, ctx: &mut DatagramContext<'_, Self>, writable: bool) -> Result {
        println!("writable {writable} {}", ctx.is_writable());
        Ok(())
    }
}

/// A child whose channel may have 300 pending bytes.
#[test]
fn blocked_sender() {
    if plays("blocked_sender") {
        serve_numbers(EventLoopGroup::builder(), 300, Resource::ChannelOutput);
    }
}

/// A child whose loop may have 300 pending bytes.
#[test]
fn blocked_sender_on_a_small_loop() {
    if plays("blocked_sender_on_a_small_loop") {
        serve_numbers(EventLoopGroup::builder().max_outbound(300), 1 << 20, Resource::LoopOutput);
    }
}

fn serve_numbers(group: EventLoopGroupBuilder, max_outbound: usize, full: Resource) {
    let group = group.threads(1).build().unwrap();
    let bootstrap = DatagramBootstrap::new(&group).max_outbound(max_outbound).datagrams_per_turn(2);
    let channel = bootstrap.handler(move || Numbers { full }).bind("127.0.0.1:0").unwrap();
    println!("address {}", channel.local_address());
    channel.closed().wait_timeout(PATIENCE).expect("the channel closes").unwrap();
    let end =
        group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
    end.wait_timeout(PATIENCE).unwrap().unwrap();
    let counted = group.event_loops()[0].metrics();
    assert_eq!(counted.outbound_bytes, 0, "sent bytes are not counted any more");
    println!(
        "sent {} blocked {} refused {}",
        counted.datagrams_sent, counted.writes_blocked, counted.datagrams_refused
    );
}

#[test]
fn blocked_datagrams_keep_their_order_and_the_newest_beyond_the_limit_is_refused() {
    assert_bounded("blocked_sender");
}

/// Pending datagrams count towards the loop's limit, like pending bytes of other channels.
#[test]
fn the_outbound_limit_of_a_loop_applies_to_datagrams_too() {
    assert_bounded("blocked_sender_on_a_small_loop");
}

fn assert_bounded(role: &str) {
    if !strace_works(&BLOCKED) {
        return;
    }
    let mut child = Process::strace(&BLOCKED, &play(role));
    let address: SocketAddr = child.stdout.wait_for("address ").parse().unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut buffer = [0; 16];
        let (n, _) = peer.recv_from(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    peer.send_to(b"numbers", address).unwrap();
    assert_eq!(child.stdout.wait_for("refused "), "b\"4\", 291 wait");
    assert_eq!(child.stdout.wait_for("writable "), "false false");
    // The kernel reports writability together with any other event of the socket.
    peer.send_to(b"news", address).unwrap();
    assert_eq!([next(), next(), next()], ["1", "2", "3"]);
    // The incoming datagram may be read before or after the writability is reported.
    child.stdout.wait_until("writability and the datagram", |said| {
        let all = said.contains("writable true true\n") && said.contains("got b\"news\"\n");
        all.then_some(((), said.len()))
    });
    // A pending datagram is sent at the close if the kernel accepts it then.
    peer.send_to(b"end", address).unwrap();
    assert_eq!(child.stdout.wait_for(""), "100 wait");
    assert_eq!(next(), "last");
    assert_eq!(child.stdout.wait_for("sent "), "4 blocked 2 refused 1");
    child.succeed();
}

/// Connects to the sender of the message "ADDRESS" and sends it a datagram. While that one is
/// pending, connects to ADDRESS and sends a second one. If ADDRESS is its own address, it
/// disconnects instead.
struct Fickle;

impl DatagramHandler for Fickle {
    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
        let Ok(next) = String::from_utf8_lossy(&datagram).parse() else { return Ok(()) };
        ctx.connect(from)?;
        ctx.write("for the first")?;
        assert!(!ctx.is_writable(), "the datagram is pending");
        if next == from {
            ctx.disconnect()?;
        } else {
            ctx.connect(next)?;
            ctx.write("for the second")?;
        }
        println!("turned away");
        Ok(())
    }
}

/// The child.
#[test]
fn fickle_sender() {
    if !plays("fickle_sender") {
        return;
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let channel = DatagramBootstrap::new(&group).handler(|| Fickle).bind("127.0.0.1:0").unwrap();
    println!("address {}", channel.local_address());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let end =
        group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
    end.wait_timeout(PATIENCE).unwrap().unwrap();
}

/// A pending datagram keeps its destination.
#[test]
fn a_pending_datagram_goes_to_the_peer_that_was_connected_when_it_was_sent() {
    for connects in [true, false] {
        if !strace_works(&BLOCKED) {
            return;
        }
        let mut child = Process::strace(&BLOCKED, &play("fickle_sender"));
        let address: SocketAddr = child.stdout.wait_for("address ").parse().unwrap();
        let [first, second] = [(); 2].map(|()| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        });
        let next = |socket: &UdpSocket| {
            let mut buffer = [0; 16];
            let (n, _) = socket.recv_from(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        };
        let turns_to = if connects { &second } else { &first };
        first.send_to(turns_to.local_addr().unwrap().to_string().as_bytes(), address).unwrap();
        assert_eq!(child.stdout.wait_for("turned "), "away");
        // The kernel reports writability together with any other event of the socket.
        turns_to.send_to(b"news", address).unwrap();
        if connects {
            assert_eq!(next(&second), "for the second");
        }
        assert_eq!(next(&first), "for the first");
        child.succeed();
    }
}

/// Makes all receives fail.
const BROKEN: [&str; 4] = ["-e", "trace=recvfrom", "-e", "inject=recvfrom:error=EIO"];

struct Counting(usize);

impl DatagramHandler for Counting {
    fn read(&mut self, _: &mut DatagramContext<'_, Self>, _: Bytes, _: SocketAddr) -> Result {
        unreachable!("nothing can be received")
    }

    fn error(&mut self, ctx: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        assert!(
            ctx.is_open() && matches!(error, Error::Io { operation: "receiving a datagram", .. }),
            "{error}"
        );
        self.0 += 1;
        Ok(())
    }

    fn inactive(&mut self, _: &mut DatagramContext<'_, Self>) -> Result {
        println!("received {} errors", self.0);
        Ok(())
    }
}

/// The child.
#[test]
fn broken_receiver() {
    if !plays("broken_receiver") {
        return;
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let channel = DatagramBootstrap::new(&group).handler(|| Counting(0)).bind("127.0.0.1:0").unwrap();
    println!("address {}", channel.local_address());
    channel.closed().wait_timeout(PATIENCE).expect("the channel closes").unwrap();
    let end =
        group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
    end.wait_timeout(PATIENCE).unwrap().unwrap();
}

#[test]
fn a_socket_whose_receives_always_fail_is_closed_after_sixteen_attempts() {
    if !strace_works(&BROKEN) {
        return;
    }
    let mut child = Process::strace(&BROKEN, &play("broken_receiver"));
    let address: SocketAddr = child.stdout.wait_for("address ").parse().unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"hello", address).unwrap();
    assert_eq!(child.stdout.wait_for("received "), "16 errors");
    child.succeed();
}
