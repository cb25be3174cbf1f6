//! `Connection`: one TLS connection of rustls, without I/O.
//!
//! The caller owns the input, which is decrypted in place; plaintext and output are appended to
//! buffers of the caller. Nothing else of rustls' unbuffered API leaves this file.
//!
//! Invariants: all output of rustls is taken before a call returns. After an error only the alert
//! comes out, and nothing is decrypted.

use rustls::{
    ClientConfig, CommonState, ServerConfig,
    client::UnbufferedClientConnection,
    pki_types::ServerName,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// The most plaintext in a record.
pub(super) const MAX_PLAIN: usize = 16 * 1024;
/// Length of a record's header.
pub(super) const HEADER: usize = 5;
/// The most bytes that a record adds to its plaintext: header, explicit nonce, tag (TLS 1.2).
const RECORD_OVERHEAD: usize = HEADER + 8 + 16;
/// Room for one reply to a KeyUpdate and one KeyUpdate of this side.
const KEY_UPDATES: usize = 2 * (HEADER + 5 + 1 + 16);

pub(super) struct Connection {
    side: Side,
    /// Input bytes in front that rustls refers to: records with parts of a handshake message that
    /// is not complete. They are passed again, as rustls has left them.
    held: usize,
    /// The most plaintext that rustls puts into a record.
    fragment: usize,
    peer_closed: bool,
    closed: bool,
    failed: Option<rustls::Error>,
}

enum Side {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// Runs `$body` with the connection of either side, whose types differ.
macro_rules! on_side {
    ($side:expr, $connection:ident => $body:expr) => {
        match $side {
            Side::Server($connection) => $body,
            Side::Client($connection) => $body,
        }
    };
}

/// What rustls has reached.
enum Step {
    /// Something was taken: rustls is to be called again.
    Taken,
    /// Nothing more without more input.
    Idle,
    /// The peer has ended its stream.
    PeerClosed,
}

impl Connection {
    pub(super) fn server(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        if config.max_early_data_size != 0 {
            return Err(early_data());
        }
        let fragment = fragment(config.max_fragment_size);
        Ok(Self::new(Side::Server(UnbufferedServerConnection::new(config)?), fragment))
    }

    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let fragment = fragment(config.max_fragment_size);
        Ok(Self::new(Side::Client(UnbufferedClientConnection::new(config, name)?), fragment))
    }

    fn new(side: Side, fragment: usize) -> Self {
        Connection { side, held: 0, fragment, peer_closed: false, closed: false, failed: None }
    }

    /// Returns what both sides negotiate.
    pub(super) fn common(&self) -> &CommonState {
        on_side!(&self.side, connection => connection)
    }

    /// Returns whether the peer has ended its stream with `close_notify`.
    pub(super) fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Returns whether `input` holds a record that was not processed yet.
    pub(super) fn has_complete_record(&self, input: &[u8]) -> bool {
        complete_records(&input[self.held..]) > 0
    }

    /// Processes `input`, which begins with the bytes that earlier calls did not consume. Returns
    /// the number of bytes to remove from its front. Everything after the peer's `close_notify` is
    /// consumed and ignored.
    ///
    /// # Errors
    /// [`rustls::Error`] if the peer violates the protocol. The alert is in `output`; later calls
    /// return the same error.
    pub(super) fn read(
        &mut self,
        input: &mut [u8],
        plain: &mut impl FnMut(&[u8]),
        output: &mut Vec<u8>,
    ) -> Result<usize, rustls::Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.peer_closed {
            return Ok(input.len());
        }
        // rustls decrypts and moves bytes in place, so records are found before it is called.
        let complete = self.held + complete_records(&input[self.held..]);
        if complete == self.held && !input.is_empty() && !is_invalid(&input[complete..]) {
            return Ok(0);
        }
        let mut at = 0;
        loop {
            match self.step(&mut input[at..], &mut at, plain, output) {
                // The common case: everything was opened, and there is nothing to send.
                Ok(Step::Taken) if at == input.len() && self.is_quiet() => break,
                Ok(Step::Taken) => {}
                Ok(Step::Idle) => break,
                Ok(Step::PeerClosed) => {
                    self.peer_closed = true;
                    self.held = 0;
                    return Ok(input.len());
                }
                Err(error) => {
                    self.failed = Some(error.clone());
                    self.drain(output);
                    return Err(error);
                }
            }
        }
        self.held = complete.saturating_sub(at);
        Ok(at)
    }

    /// Sends the first bytes of a client.
    pub(super) fn start(&mut self, output: &mut Vec<u8>) -> Result<(), rustls::Error> {
        self.read(&mut [], &mut |_| {}, output).map(drop)
    }

    /// Encrypts all of `plain`.
    ///
    /// # Errors
    /// [`rustls::Error`] if the connection has failed or is not established.
    /// [`rustls::Error::EncryptError`] if its keys must not encrypt any more: `close_notify`, the
    /// last record that they may encrypt, is then in `output`.
    pub(super) fn write(&mut self, plain: &[u8], output: &mut Vec<u8>) -> Result<(), rustls::Error> {
        if self.closed {
            return Err(output_ended());
        }
        let bound = self.sealed_len(plain.len());
        let written = self.with_traffic(output, Encrypt { plain, bound });
        if written.is_err() {
            self.drain(output);
        }
        written
    }

    /// Sends `close_notify`, once, if the handshake has come far enough.
    pub(super) fn close(&mut self, output: &mut Vec<u8>) {
        if self.closed || self.failed.is_some() || self.common().is_handshaking() {
            return;
        }
        // The queued alert is taken like all output of rustls. The call only fails if rustls has
        // ended the output itself.
        let _ = self.with_traffic(output, CloseNotify);
        self.closed = true;
        self.drain(output);
    }

    /// Returns the largest number of bytes that [`write`](Self::write) makes of `plain` bytes.
    pub(super) fn sealed_len(&self, plain: usize) -> usize {
        plain + plain.div_ceil(self.fragment) * RECORD_OVERHEAD + KEY_UPDATES
    }

    /// Takes what rustls reaches next.
    fn step(
        &mut self,
        input: &mut [u8],
        at: &mut usize,
        plain: &mut impl FnMut(&[u8]),
        output: &mut Vec<u8>,
    ) -> Result<Step, rustls::Error> {
        let closed = self.closed;
        on_side!(&mut self.side, connection => {
            let rustls = &mut *connection;
            let UnbufferedStatus { discard, state, .. } =
                guarded(closed, move || rustls.process_tls_records(input))?;
            *at += discard;
            let state = state?;
            Ok(match state {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        plain(record.payload);
                        *at += record.discard;
                    }
                    Step::Taken
                }
                // `server` refuses a configuration that accepts early data.
                ConnectionState::ReadEarlyData(_) => return Err(early_data()),
                ConnectionState::EncodeTlsData(mut data) => {
                    append(&mut data, output);
                    Step::Taken
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    // All input has been processed before. Another call would only try again to
                    // decrypt rejected early data, whose amount rustls limits.
                    if connection.wants_read() { Step::Idle } else { Step::Taken }
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => Step::PeerClosed,
                _ => Step::Idle,
            })
        })
    }

    /// Does `work` in the state in which plaintext can be encrypted.
    #[inline]
    fn with_traffic(&mut self, output: &mut Vec<u8>, work: impl Outgoing) -> Result<(), rustls::Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // rustls skips the bytes that it refers to, and must find them. Usually there are none.
        let mut held = vec![0; self.held];
        on_side!(&mut self.side, connection => loop {
            match connection.process_tls_records(&mut held).state? {
                ConnectionState::WriteTraffic(traffic) => return work.run(traffic, output),
                ConnectionState::EncodeTlsData(mut data) => append(&mut data, output),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::Closed => return Err(output_ended()),
                _ => return Err(rustls::Error::HandshakeNotComplete),
            }
        })
    }

    /// Takes queued output only: input that rustls may still refer to is not touched.
    fn drain(&mut self, output: &mut Vec<u8>) {
        on_side!(&mut self.side, connection => while connection.wants_write() {
            match connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => append(&mut data, output),
                _ => break,
            }
        });
    }

    /// Returns whether rustls has nothing to say without more input.
    fn is_quiet(&self) -> bool {
        let common = self.common();
        common.wants_read() && !common.wants_write() && !common.is_handshaking()
    }
}

/// What is done in the state in which plaintext can be encrypted, for either side.
trait Outgoing {
    fn run<Data>(self, traffic: WriteTraffic<'_, Data>, output: &mut Vec<u8>) -> Result<(), rustls::Error>;
}

/// Encrypts all of `plain`, which usually takes at most `bound` bytes.
struct Encrypt<'a> {
    plain: &'a [u8],
    bound: usize,
}

impl Outgoing for Encrypt<'_> {
    #[inline]
    fn run<Data>(
        self,
        mut traffic: WriteTraffic<'_, Data>,
        output: &mut Vec<u8>,
    ) -> Result<(), rustls::Error> {
        let start = output.len();
        output.resize(start + self.bound, 0);
        let written = match traffic.encrypt(self.plain, &mut output[start..]) {
            Err(EncryptError::InsufficientSize(size)) => {
                output.resize(start + size.required_size, 0);
                traffic.encrypt(self.plain, &mut output[start..])
            }
            other => other,
        };
        match written {
            Ok(n) => {
                output.truncate(start + n);
                Ok(())
            }
            Err(error) => {
                output.truncate(start);
                Err(match error {
                    EncryptError::EncryptExhausted => rustls::Error::EncryptError,
                    error => rustls::Error::General(error.to_string()),
                })
            }
        }
    }
}

/// Queues `close_notify`, because the output that rustls gets is empty.
struct CloseNotify;

impl Outgoing for CloseNotify {
    fn run<Data>(self, mut traffic: WriteTraffic<'_, Data>, _: &mut Vec<u8>) -> Result<(), rustls::Error> {
        let _ = traffic.queue_close_notify(&mut []);
        Ok(())
    }
}

impl fmt::Debug for Connection {
    /// Shows no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("handshaking", &self.common().is_handshaking())
            .field("peer_closed", &self.peer_closed)
            .field("closed", &self.closed)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Appends a record of the handshake.
fn append<Data>(data: &mut EncodeTlsData<'_, Data>, output: &mut Vec<u8>) {
    let start = output.len();
    // Nothing fits into no room, so this only asks for the length.
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        output.resize(start + size.required_size, 0);
        let written = data.encode(&mut output[start..]).unwrap_or(0);
        output.truncate(start + written);
    }
}

/// Returns the error of a configuration that accepts early data. An attacker can replay it, so a
/// channel must not receive it like other input.
fn early_data() -> rustls::Error {
    rustls::Error::General("early data is not supported: max_early_data_size must be 0".into())
}

fn output_ended() -> rustls::Error {
    rustls::Error::General("close_notify was sent before".into())
}

/// Calls rustls, which asserts in debug builds that it sends one alert only. A peer can make it
/// send another one after our `close_notify`.
fn guarded<T>(closed: bool, call: impl FnOnce() -> T) -> Result<T, rustls::Error> {
    if !cfg!(debug_assertions) || !closed {
        return Ok(call());
    }
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| rustls::Error::General("invalid input after close_notify".into()))
}

/// Returns the length of the complete records at the front of `input`.
fn complete_records(input: &[u8]) -> usize {
    let mut at = 0;
    while let Some(header) = input.get(at..at + HEADER) {
        let end = at + HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
        if end > input.len() {
            break;
        }
        at = end;
    }
    at
}

/// Returns whether rustls will refuse the header of this incomplete record. If not, rustls has
/// nothing to do before the record is complete.
fn is_invalid(record: &[u8]) -> bool {
    match *record {
        [kind, major, _, high, low, ..] => {
            let length = usize::from(u16::from_be_bytes([high, low]));
            !(20..=24).contains(&kind) || major != 3 || length == 0 || length > MAX_PLAIN + 1024
        }
        _ => false,
    }
}

/// Returns the most plaintext in a record, for the setting of a configuration.
fn fragment(setting: Option<usize>) -> usize {
    // rustls counts the header.
    setting.map_or(MAX_PLAIN, |size| size.saturating_sub(HEADER).clamp(1, MAX_PLAIN))
}
