//! Compares our reading of a stream with that of another parser.

use super::{
    parsers::{End, Reading, Seen},
    requests::METHODS,
};

/// The result of a comparison without a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Agreement {
    /// Both accept everything, and mean the same.
    Same,
    /// Both refuse something.
    BothRefuse,
    /// We refuse a stream that the other parser accepts.
    WeAreStricter,
    /// We close the connection where the other parser goes on.
    WeClose,
    /// We accept a method that llhttp does not know.
    UnknownMethod,
    /// httptools does not read the body of a request for another protocol.
    UpgradeWithBody,
}

/// Compares our reading with that of another parser. `ours_with_more` is our reading of the stream
/// with two more line endings, which complete a line that is invalid already.
///
/// # Errors
/// We accept a request that the other parser refuses, or understand it differently.
pub(crate) fn compare(
    ours: &Reading,
    theirs: &Reading,
    ours_with_more: impl FnOnce() -> Reading,
) -> Result<Agreement, String> {
    for (n, our) in ours.requests.iter().enumerate() {
        let Some(their) = theirs.requests.get(n) else {
            return match theirs.end {
                End::Refused if is_unknown_method(our, theirs) => Ok(Agreement::UnknownMethod),
                End::Unknown => Ok(Agreement::UpgradeWithBody),
                _ => Err(format!("request {n} is accepted by us only")),
            };
        };
        same_head(our, their).map_err(|part| format!("request {n} has another {part}"))?;
        if theirs.end == End::Unknown && n + 1 == theirs.requests.len() {
            return Ok(Agreement::UpgradeWithBody);
        }
        let is_waited_for = !our.is_complete && ours.end == End::Waiting;
        let is_body_same = match (our.is_complete, their.is_complete) {
            (true, true) => our.body == their.body && our.trailers == their.trailers,
            (true, false) => false,
            (false, true) if is_waited_for => false,
            (false, _) => their.body.starts_with(&our.body) || our.body.starts_with(&their.body),
        };
        if !is_body_same {
            return Err(format!("request {n} has another body"));
        }
    }
    let theirs_has_more = theirs.requests.len() > ours.requests.len();
    match (ours.end, theirs.end) {
        (End::Refused, End::Refused) => Ok(Agreement::BothRefuse),
        (End::Refused, _) => Ok(Agreement::WeAreStricter),
        (End::Closed, End::Closed) if !theirs_has_more => Ok(Agreement::Same),
        (End::Closed, _) => Ok(Agreement::WeClose),
        _ if theirs_has_more => Err("we wait within a request that they accept".to_owned()),
        (_, End::Waiting) => Ok(Agreement::Same),
        (_, End::Refused) => {
            // It may be a line of which we have not seen the end.
            let more = ours_with_more();
            match more.requests.get(ours.requests.len()) {
                None if more.end == End::Refused => Ok(Agreement::BothRefuse),
                Some(our) if is_unknown_method(our, theirs) => Ok(Agreement::UnknownMethod),
                _ => Err("they refuse what follows".to_owned()),
            }
        }
        (_, End::Closed) => Err("they close the connection".to_owned()),
        (_, End::Unknown) => Ok(Agreement::UpgradeWithBody),
    }
}

fn is_unknown_method(our: &Seen, theirs: &Reading) -> bool {
    let is_known = METHODS.contains(&our.method.as_str()) || our.method == "CONNECT";
    theirs.reason.starts_with("HttpParserInvalidMethodError") && !is_known
}

/// Compares everything before the body. Returns what differs.
fn same_head(our: &Seen, their: &Seen) -> Result<(), &'static str> {
    if our.method != their.method {
        return Err("method");
    }
    if our.target != their.target {
        return Err("target");
    }
    if our.version != their.version {
        return Err("version");
    }
    let are_headers_same = our.headers.len() == their.headers.len()
        && our.headers.iter().zip(&their.headers).all(|((name, value), (their_name, their_value))| {
            // h11 has the coding in lower case.
            let is_coding = name.eq_ignore_ascii_case("transfer-encoding");
            name == their_name
                && (value == their_value || (is_coding && value.eq_ignore_ascii_case(their_value)))
        });
    if are_headers_same { Ok(()) } else { Err("header") }
}
