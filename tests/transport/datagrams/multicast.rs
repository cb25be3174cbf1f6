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
use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
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

fn multicast(any: &str, options: UdpOptions, group: MulticastGroup, address: IpAddr) {
    let loops = one_loop();
    let (events, told) = mpsc::channel();
    let events = Mutex::new(events);
    let receiver = DatagramBootstrap::new(&loops).handler(move || Tell(events.lock().unwrap().clone()));
    let Ok(receiver) = receiver.bind(any) else { return skip("this machine has no such addresses") };
    let sender =
        DatagramBootstrap::new(&loops).udp_options(options).handler(|| Tell(mpsc::channel().0)).bind(any);
    let Ok(sender) = sender else { return skip("this machine has no multicast") };
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
    if let Err(e) = on_receiver(true).and_then(|()| send("probe", to)) {
        return skip(&format!("no multicast on the loopback interface ({e})"));
    }
    let Ok(heard) = told.recv_timeout(Duration::from_secs(5)) else {
        return skip("the loopback interface does not deliver multicast");
    };
    assert_eq!(heard, "probe");
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
