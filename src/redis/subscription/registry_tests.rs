use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

fn sink() -> Sink {
    Arc::new(|_| ())
}

fn a() -> Bytes {
    Bytes::from_static(b"a")
}

/// Takes the changes, and returns the numbers of channels to subscribe and to unsubscribe, and of
/// sinks that receive `Subscribed` at once.
fn changes(registry: &mut Registry) -> (usize, usize, usize) {
    let changes = registry.take_changes(usize::MAX);
    (changes.subscribe.len(), changes.unsubscribe.len(), changes.subscribed.len())
}

fn receivers(registry: &Registry) -> usize {
    let members = registry.sinks(&a()).unwrap_or_default();
    members.iter().filter(|member| member.gets_messages()).count()
}

#[test]
fn a_channel_is_subscribed_once() {
    let mut registry = Registry::default();
    let first = registry.join(a(), sink());
    assert_eq!(changes(&mut registry), (1, 0, 0));
    let second = registry.join(a(), sink());
    assert_eq!((changes(&mut registry), receivers(&registry)), ((0, 0, 0), 0), "not in place");
    assert_eq!(registry.confirmed(&a()).len(), 2);
    let third = registry.join(a(), sink());
    assert_eq!(receivers(&registry), 2, "the third was not notified yet");
    assert_eq!((changes(&mut registry), receivers(&registry)), ((0, 0, 1), 3));
    for id in [first, second, third] {
        assert_eq!(changes(&mut registry), (0, 0, 0));
        registry.leave(&a(), id).unwrap();
    }
    assert_eq!((changes(&mut registry), registry.len()), ((0, 1, 0), 0));
    assert!(registry.confirmed(&a()).is_empty());
    assert!(registry.channels.is_empty());
    assert!(registry.leave(&a(), first).is_none());
}

#[test]
fn a_confirmation_of_an_earlier_request_does_not_count() {
    let mut registry = Registry::default();
    let first = registry.join(a(), sink());
    assert_eq!(changes(&mut registry), (1, 0, 0));
    registry.leave(&a(), first);
    assert_eq!(changes(&mut registry), (0, 1, 0));
    registry.join(a(), sink());
    assert_eq!(changes(&mut registry), (1, 0, 0));
    assert!(registry.confirmed(&a()).is_empty(), "the first SUBSCRIBE");
    assert!(registry.confirmed(&a()).is_empty(), "UNSUBSCRIBE");
    assert_eq!(receivers(&registry), 0);
    assert_eq!(registry.confirmed(&a()).len(), 1, "the second SUBSCRIBE");
    assert_eq!(receivers(&registry), 1);
}

#[test]
fn everything_is_subscribed_again_after_a_loss() {
    let mut registry = Registry::default();
    registry.join(a(), sink());
    registry.join(Bytes::from_static(b"b"), sink());
    let gone = registry.join(Bytes::from_static(b"c"), sink());
    assert_eq!(changes(&mut registry), (3, 0, 0));
    registry.confirmed(&a());
    registry.leave(&Bytes::from_static(b"c"), gone);
    assert_eq!(registry.lose().len(), 1, "only the first was in place");
    assert_eq!(receivers(&registry), 0);
    let batch = registry.take_changes(1);
    assert_eq!(batch.subscribe, [a()]);
    assert_eq!(changes(&mut registry), (1, 0, 0));
    assert_eq!(registry.lose().len(), 0);
    assert_eq!(registry.clear().len(), 2);
}

#[test]
fn a_refused_channel_is_tried_again_for_the_next_sink_and_after_a_loss() {
    let mut registry = Registry::default();
    registry.join(a(), sink());
    assert_eq!(changes(&mut registry), (1, 0, 0));
    assert_eq!(registry.refused(&a()).len(), 1);
    assert_eq!(changes(&mut registry), (0, 0, 0));
    registry.join(a(), sink());
    assert_eq!(changes(&mut registry), (1, 0, 0));
    assert_eq!(registry.refused(&a()).len(), 2);
    registry.lose();
    assert_eq!(changes(&mut registry), (1, 0, 0));
}

/// A step of a program, a connection or a server.
#[derive(Debug, Clone)]
enum Step {
    Join(u8),
    Leave(u8),
    Flush,
    Confirm,
    /// Refuses a `SUBSCRIBE` together with another channel.
    Refuse,
    Lose,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u8).prop_map(Step::Join),
        4 => (0..8u8).prop_map(Step::Leave),
        4 => Just(Step::Flush),
        4 => Just(Step::Confirm),
        2 => Just(Step::Refuse),
        1 => Just(Step::Lose),
    ]
}

proptest! {
    /// A server that executes the requests in order agrees in the end, and a member that was
    /// notified is subscribed at the server.
    #[test]
    fn a_server_agrees_with_the_registry(steps in proptest::collection::vec(step(), 0..60)) {
        let name = |n: u8| Bytes::from(vec![b'a' + n]);
        let mut registry = Registry::default();
        let mut members: Vec<(Bytes, u64)> = Vec::new();
        // The requests in flight, and the channels of the server after each confirmed one.
        let mut requests: VecDeque<(Bytes, bool)> = VecDeque::new();
        let mut server: BTreeMap<Bytes, bool> = BTreeMap::new();
        let flush = |registry: &mut Registry, requests: &mut VecDeque<(Bytes, bool)>| {
            let changes = registry.take_changes(2);
            requests.extend(changes.subscribe.into_iter().map(|channel| (channel, true)));
            requests.extend(changes.unsubscribe.into_iter().map(|channel| (channel, false)));
        };
        for step in steps {
            match step {
                Step::Join(n) => {
                    let id = registry.join(name(n), sink());
                    members.push((name(n), id));
                }
                Step::Leave(at) if usize::from(at) < members.len() => {
                    let (channel, id) = members.remove(at.into());
                    prop_assert!(registry.leave(&channel, id).is_some());
                }
                Step::Leave(_) => {}
                Step::Flush => flush(&mut registry, &mut requests),
                Step::Confirm => {
                    if let Some((channel, is_on)) = requests.pop_front() {
                        server.insert(channel.clone(), is_on);
                        registry.confirmed(&channel);
                    }
                }
                Step::Refuse => {
                    if let Some((channel, _)) = requests.pop_front_if(|(_, is_on)| *is_on)
                        && registry.refused_with_others(&channel)
                    {
                        requests.push_back((channel, true));
                    }
                }
                Step::Lose => {
                    requests.clear();
                    server.clear();
                    registry.lose();
                }
            }
            for n in 0..3 {
                let notified = registry.sinks(&name(n)).unwrap_or_default();
                if notified.iter().any(ChannelSink::gets_messages) {
                    prop_assert_eq!(server.get(&name(n)), Some(&true));
                }
            }
            prop_assert_eq!(registry.len(), members.len());
            for (channel, entry) in &registry.channels {
                let is_wanted = members.iter().any(|(name, _)| name == channel);
                prop_assert!(is_wanted || entry.is_asked || entry.unconfirmed > 0);
            }
            prop_assert!(registry.changed.iter().all(|channel| registry.channels.contains_key(channel)));
        }
        while registry.has_changes() {
            flush(&mut registry, &mut requests);
        }
        for (channel, is_on) in requests {
            server.insert(channel.clone(), is_on);
            registry.confirmed(&channel);
        }
        for n in 0..3 {
            let wanted = members.iter().filter(|(channel, _)| *channel == name(n)).count();
            prop_assert_eq!(server.get(&name(n)).copied().unwrap_or_default(), wanted > 0);
            let notified = registry.sinks(&name(n)).unwrap_or_default();
            prop_assert_eq!(notified.iter().filter(|member| member.gets_messages()).count(), wanted);
        }
    }
}
