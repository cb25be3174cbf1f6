//! Status codes and their reason phrases.

use std::fmt;

/// The status code of a response, from 100 to 999.
///
/// The constants are the codes of the
/// [IANA registry](https://www.iana.org/assignments/http-status-codes).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusCode(u16);

macro_rules! status_codes {
    ($($code:literal $NAME:ident $reason:literal;)+) => {
        impl StatusCode {
            $(#[doc = concat!($code, " ", $reason)] pub const $NAME: StatusCode = StatusCode($code);)+

            /// Returns the reason phrase of the registry; an empty one for other codes.
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)+
                    _ => "",
                }
            }
        }
    };
}

status_codes! {
    100 CONTINUE "Continue";
    101 SWITCHING_PROTOCOLS "Switching Protocols";
    102 PROCESSING "Processing";
    103 EARLY_HINTS "Early Hints";
    200 OK "OK";
    201 CREATED "Created";
    202 ACCEPTED "Accepted";
    203 NON_AUTHORITATIVE_INFORMATION "Non-Authoritative Information";
    204 NO_CONTENT "No Content";
    205 RESET_CONTENT "Reset Content";
    206 PARTIAL_CONTENT "Partial Content";
    300 MULTIPLE_CHOICES "Multiple Choices";
    301 MOVED_PERMANENTLY "Moved Permanently";
    302 FOUND "Found";
    303 SEE_OTHER "See Other";
    304 NOT_MODIFIED "Not Modified";
    307 TEMPORARY_REDIRECT "Temporary Redirect";
    308 PERMANENT_REDIRECT "Permanent Redirect";
    400 BAD_REQUEST "Bad Request";
    401 UNAUTHORIZED "Unauthorized";
    403 FORBIDDEN "Forbidden";
    404 NOT_FOUND "Not Found";
    405 METHOD_NOT_ALLOWED "Method Not Allowed";
    406 NOT_ACCEPTABLE "Not Acceptable";
    408 REQUEST_TIMEOUT "Request Timeout";
    409 CONFLICT "Conflict";
    410 GONE "Gone";
    411 LENGTH_REQUIRED "Length Required";
    412 PRECONDITION_FAILED "Precondition Failed";
    413 CONTENT_TOO_LARGE "Content Too Large";
    414 URI_TOO_LONG "URI Too Long";
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type";
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable";
    417 EXPECTATION_FAILED "Expectation Failed";
    421 MISDIRECTED_REQUEST "Misdirected Request";
    422 UNPROCESSABLE_CONTENT "Unprocessable Content";
    425 TOO_EARLY "Too Early";
    426 UPGRADE_REQUIRED "Upgrade Required";
    428 PRECONDITION_REQUIRED "Precondition Required";
    429 TOO_MANY_REQUESTS "Too Many Requests";
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large";
    500 INTERNAL_SERVER_ERROR "Internal Server Error";
    501 NOT_IMPLEMENTED "Not Implemented";
    502 BAD_GATEWAY "Bad Gateway";
    503 SERVICE_UNAVAILABLE "Service Unavailable";
    504 GATEWAY_TIMEOUT "Gateway Timeout";
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported";
    507 INSUFFICIENT_STORAGE "Insufficient Storage";
}

impl StatusCode {
    /// Returns the status code, or `None` if it is not between 100 and 999.
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 999 { Some(StatusCode(code)) } else { None }
    }

    /// Returns the number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    /// Returns whether the code is below 200: a response that another one follows. 101 is the
    /// exception, after which the connection no longer carries HTTP.
    pub const fn is_informational(self) -> bool {
        self.0 < 200
    }

    /// Returns whether the code is between 200 and 299.
    pub const fn is_success(self) -> bool {
        self.0 >= 200 && self.0 < 300
    }

    /// Returns whether a response with this code may have a body: not with 1xx, 204 and 304.
    pub const fn allows_body(self) -> bool {
        !(self.is_informational() || self.0 == 204 || self.0 == 304)
    }
}

impl fmt::Display for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq<u16> for StatusCode {
    fn eq(&self, code: &u16) -> bool {
        self.0 == *code
    }
}
