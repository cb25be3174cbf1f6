//! Multicast groups that a channel joins and leaves.

use crate::datagrams::Tell;
use crate::support::{
    loops::{end, one_loop},
    wait::{self, done},
};
use netwheel::{
    DatagramBootstrap,
    net::{MulticastGroup, UdpOptions},
};
use socket2::SockRef;
use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Mutex, mpsc},
    time::Duration,
};

/// T-35: on the loopback interface.
#[test]
fn t_35_a_multicast_group_is_received_from_join_to_leave() {
    let (address, lo) = (Ipv4Addr::new(239, 255, 77, 1), Ipv4Addr::LOCALHOST);
    multicast(
        "0.0.0.0:0",
        UdpOptions::new().multicast_interface_v4(lo).multicast_loop(true).multicast_time_to_live(0),
        MulticastGroup::V4 { group: address, interface: lo },
        address.into(),
    );
}

/// T-35: likewise with IPv6. The loopback interface is number 1 on Linux.
#[cfg(target_os = "linux")]
#[test]
fn t_35_an_ipv6_multicast_group_is_received_from_join_to_leave() {
    let address = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0x77, 0x1);
    multicast(
        "[::]:0",
        UdpOptions::new().multicast_interface_v6(1).multicast_loop(true).multicast_time_to_live(0),
        MulticastGroup::V6 { group: address, interface: 1 },
        address.into(),
    );
}

/// Prints why a test is skipped on this machine.
fn skip(why: &str) {
    // Not with `eprintln`, which the test harness would capture.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Returns an error if this machine does not deliver multicast on its loopback interface, without
/// the crate.
fn delivers(any: &str, group: MulticastGroup, address: IpAddr) -> std::io::Result<()> {
    let (receiver, sender) = (UdpSocket::bind(any)?, UdpSocket::bind(any)?);
    let options = SockRef::from(&sender);
    match group {
        MulticastGroup::V4 { group, interface } => {
            receiver.join_multicast_v4(&group, &interface)?;
            options.set_multicast_if_v4(&interface)?;
        }
        MulticastGroup::V6 { group, interface } => {
            receiver.join_multicast_v6(&group, interface)?;
            options.set_multicast_if_v6(interface)?;
        }
        _ => return Err(std::io::ErrorKind::Unsupported.into()),
    }
    receiver.set_read_timeout(Some(Duration::from_secs(5)))?;
    sender.send_to(b"probe", (address, receiver.local_addr()?.port()))?;
    receiver.recv(&mut [0; 5]).map(drop)
}

fn multicast(any: &str, options: UdpOptions, group: MulticastGroup, address: IpAddr) {
    if let Err(e) = delivers(any, group, address) {
        return skip(&format!("no multicast on the loopback interface ({e})"));
    }
    let loops = one_loop();
    let (events, told) = mpsc::channel();
    let events = Mutex::new(events);
    let receiver = DatagramBootstrap::new(&loops).handler(move || Tell(events.lock().unwrap().clone()));
    let receiver = receiver.bind(any).unwrap();
    let sender = DatagramBootstrap::new(&loops).udp_options(options);
    let sender = sender.handler(|| Tell(mpsc::channel().0)).bind(any).unwrap();
    let to = SocketAddr::new(address, receiver.local_address().port());
    let own = SocketAddr::new(
        if any.starts_with('[') { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() },
        receiver.local_address().port(),
    );
    let on_receiver = |join: bool| {
        let (answer, answered) = mpsc::channel();
        receiver
            .execute(move |ctx| {
                let result = if join { ctx.join(group) } else { ctx.leave(group) };
                answer.send(result).unwrap();
                Ok(())
            })
            .unwrap();
        wait::receive(&answered)
    };
    let send = |text: &'static str, to| done(sender.write_tracked_to(text, to).unwrap());
    on_receiver(true).unwrap();
    send("probe", to).unwrap();
    assert_eq!(wait::receive(&told), "probe");
    send("to the group", to).unwrap();
    assert_eq!(wait::receive(&told), "to the group");
    on_receiver(false).unwrap();
    send("after the leave", to).unwrap();
    // A datagram to the group would have arrived before this one.
    send("to the receiver", own).unwrap();
    assert_eq!(wait::receive(&told), "to the receiver");
    assert!(on_receiver(false).is_err(), "the group was left already");
    end(&loops);
}
