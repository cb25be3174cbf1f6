use super::{
    encode_error::EncodeError,
    error::{Error, Result},
    peer_error::PeerError,
    resource::Resource,
    send_error::SendError,
};
use std::{collections::HashSet, error::Error as _, io, time::Duration};

/// Not `Debug`, not `Send`, no `Error`: a message that a program may want to send.
struct Opaque(*const ());

fn opaque() -> Opaque {
    Opaque(std::ptr::null())
}

#[test]
fn errors_stay_small() {
    assert!(size_of::<Error>() <= 40, "{}", size_of::<Error>());
    assert!(size_of::<Result>() <= 40, "{}", size_of::<Result>());
    assert!(size_of::<SendError<u64>>() <= 48, "{}", size_of::<SendError<u64>>());
}

#[test]
fn display_prints_no_cause_and_the_alternate_form_prints_them_all() {
    let texts = |error: Error| (error.to_string(), format!("{error:#}"));
    let timeout = Duration::from_secs(5);
    for (error, plain, full) in [
        (
            PeerError::too_long("frame", 70_000, 65_536).into(),
            "the peer violated the protocol",
            "the peer violated the protocol: frame of 70000 bytes is longer than the limit of 65536 bytes",
        ),
        (
            EncodeError::Unencodable("a line cannot hold a newline".into()).into(),
            "the message cannot be encoded",
            "the message cannot be encoded: a line cannot hold a newline",
        ),
        (
            Error::io("connecting", io::Error::other("no route")),
            "connecting failed",
            "connecting failed: no route",
        ),
        (
            Error::setting("read_size", 5, "between 1024 and 1048576"),
            "read_size is 5; it must be between 1024 and 1048576",
            "read_size is 5; it must be between 1024 and 1048576",
        ),
        (
            Error::Full { resource: Resource::LoopQueue, limit: 16 },
            "the limit of 16 pending tasks of an event loop is reached",
            "the limit of 16 pending tasks of an event loop is reached",
        ),
        (
            Error::timed_out("connecting", timeout),
            "connecting timed out after 5s",
            "connecting timed out after 5s",
        ),
        (Error::from("on purpose"), "on purpose", "on purpose"),
        (
            Error::other(Error::io("reading", io::Error::other("torn"))),
            "reading failed",
            "reading failed: torn",
        ),
    ] {
        assert_eq!(texts(error.clone()), (plain.to_owned(), full.to_owned()));
        // A clone says the same, and so does the error in which a value comes back.
        assert_eq!(texts(error.clone()), texts(error.clone()));
        let refused = SendError::new(opaque(), error);
        assert_eq!((refused.to_string(), format!("{refused:#}")), (plain.to_owned(), full.to_owned()));
    }
}

#[test]
fn clones_share_the_cause() {
    let error = Error::io("reading", io::Error::from_raw_os_error(104));
    let cause = |e: &Error| e.source().map(|cause| cause.to_string());
    assert_eq!(cause(&error.clone()), cause(&error));
    assert_eq!(error.clone().io_kind(), Some(io::ErrorKind::ConnectionReset));
    let Error::Io { source, .. } = error.clone() else { panic!("{error}") };
    assert_eq!(source.raw_os_error(), Some(104));
}

#[test]
fn a_refused_value_comes_back_and_the_operator_converts_the_rest() {
    fn operation() -> Result<(), SendError<Opaque>> {
        Err(SendError::new(opaque(), Error::Full { resource: Resource::Sockets, limit: 3 }))
    }
    fn caller() -> Result {
        operation()?;
        Ok(())
    }
    assert!(matches!(caller(), Err(Error::Full { resource: Resource::Sockets, limit: 3 })));
    let refused = operation().unwrap_err();
    assert_eq!(format!("{refused:?}"), "SendError { error: Full { resource: Sockets, limit: 3 }, .. }");
    assert!(refused.is_full() && !refused.is_closed());
    assert!(matches!(refused.error(), Error::Full { limit: 3, .. }));
    let (value, error) = refused.into_parts();
    assert!(value.0.is_null() && matches!(error, Error::Full { .. }));
    for closed in [Error::Closed, Error::ShutDown, Error::PipelineReplaced] {
        let refused = SendError::new(opaque(), closed);
        assert!(refused.is_closed() && !refused.is_full());
        assert!(refused.into_inner().0.is_null());
    }
    assert!(!SendError::new((), Error::WouldDeadlock).is_closed());
}

#[test]
fn each_resource_has_a_text_of_its_own() {
    let texts: HashSet<String> = Resource::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), Resource::ALL.len());
}

#[test]
fn a_renamed_setting_keeps_value_and_range() {
    let Error::Setting(refused) = Error::setting("tick", "0ns", "more than zero") else {
        panic!("a setting")
    };
    let renamed = refused.renamed("wheel_tick");
    assert_eq!(
        (renamed.setting(), renamed.value(), renamed.allowed()),
        ("wheel_tick", "0ns", "more than zero")
    );
    assert_eq!(refused.setting(), "tick");
}
