//! Instances that are configured to speak HTTP/2 in clear, and do not: they get HTTP/1.1.
//!
//! An instance that answers in HTTP/1.1 shows it. One that closes the connection before it has sent a byte may also be
//! shutting down, so HTTP/1.1 is only tried: a response confirms it, and an end without one takes it back. One that has
//! spoken HTTP/2 before is not tried. All of this is discarded when the instance cannot be reached: a different one may
//! be there afterwards.

use std::io;

use h2lab_model::workload::Protocol;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_net::transport::TransportError;
use h2lab_proxy::fields::Version;
use h2lab_wire::Error;

use super::Sidecar;
use super::side::{Peer, Side};

/// What was found out about what an instance speaks, beside what its URL says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spoken {
    /// Nothing.
    #[default]
    Unknown,
    /// It has sent SETTINGS.
    Http2,
    /// It closed a connection of HTTP/2 without a byte, and is asked in HTTP/1.1.
    Trial,
    /// It has answered in HTTP/1.1.
    Http1,
}

impl Side {
    /// Whether its peer has closed it before it had sent anything.
    fn ended_without_a_byte(&self) -> bool {
        // A FIN counts as one.
        let is_silent = |info: TcpInfo| info.bytes_received <= 1;
        self.transport.tcp().is_some_and(|tcp| TcpInfo::of(tcp).is_ok_and(is_silent))
    }
}

impl Sidecar<'_> {
    /// A connection has ended with `error`. `true` if its instance gets HTTP/1.1 from now on, and what the connection carried was
    /// processed by nobody: the instance saw no request that it can read.
    pub(super) fn falls_back(&mut self, side: &Side, error: Option<&Error>) -> bool {
        let Peer::Instance(number) = side.peer else { return false };
        match (side.version, error) {
            (Version::H2, Some(Error::WrongProtocol { .. })) => self.gets_http1(number, Spoken::Http1),
            (Version::H2, _) => {
                if side.has_ended() && side.ended_without_a_byte() {
                    self.gets_http1(number, Spoken::Trial);
                }
                // It may have read and processed requests before it ended: that it sent nothing proves nothing.
                false
            }
            _ => {
                self.end_trial(number);
                false
            }
        }
    }

    /// The same if the connection broke: an HTTP/1.1 server that closes it before it has read all of our SETTINGS
    /// resets it. Then the fate of what the connection carried is unknown, since what the instance had sent may be lost
    /// with the reset.
    pub(super) fn falls_back_at_reset(&mut self, side: &Side, error: &TransportError) {
        let is_reset = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        };
        let (Peer::Instance(number), TransportError::Io(error)) = (&side.peer, error) else { return };
        let number = *number;
        if side.version == Version::H2 && is_reset(error) && side.ended_without_a_byte() {
            self.gets_http1(number, Spoken::Trial);
        } else if side.version == Version::H1 {
            self.end_trial(number);
        }
    }

    /// Whether an instance gets HTTP/1.1 from now on; `found`: why.
    fn gets_http1(&mut self, number: u32, found: Spoken) -> bool {
        let pool = self.pools.get(number);
        if pool.known > 0 {
            return true;
        }
        let may_be_tried = pool.spoken != Spoken::Http2 && pool.targets[0].protocol == Protocol::H2c;
        if pool.targets.len() < 2 || (found == Spoken::Trial && !may_be_tried) {
            return false;
        }
        (pool.known, pool.spoken) = (1, found);
        if found == Spoken::Http1 {
            self.report_http1(number);
        }
        true
    }

    fn report_http1(&mut self, number: u32) {
        if !self.pools.get(number).standing.may_tell() {
            return; // another loop has reported it
        }
        self.live.report(&format!(
            "{} does not support HTTP/2: falling back to HTTP/1.1",
            self.pools.name(number)
        ));
    }

    /// HTTP/1.1 was tried, and not answered.
    fn end_trial(&mut self, number: u32) {
        let pool = self.pools.get(number);
        if pool.spoken == Spoken::Trial {
            (pool.known, pool.spoken) = (0, Spoken::Unknown);
        }
    }

    /// An instance has sent the head of a response, or its SETTINGS.
    pub(super) fn note_spoken(&mut self, peer: &Peer, version: Version) {
        let Peer::Instance(number) = *peer else { return };
        let pool = self.pools.get(number);
        match (version, pool.spoken) {
            (Version::H1, Spoken::Trial) => {
                pool.spoken = Spoken::Http1;
                self.report_http1(number);
            }
            (Version::H2, Spoken::Unknown) => pool.spoken = Spoken::Http2,
            _ => {}
        }
    }
}
