//! What a session reports to its role.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::Outcome;
use h2lab_wire::trace::FrameEvent;
use h2lab_wire::{Fields, ResponseHead};

/// What a session reports of the requests that it carries. They are named by numbers that the role gave when it began them;
/// for each that was begun [`RequestObserver::ended`] is called exactly once.
pub trait RequestObserver {
    /// Its head has been handed to the socket, after it had waited for room this long.
    fn sent(&mut self, request: u32, at: Time, waited: Duration);
    /// The head of its final response was read.
    fn head(&mut self, request: u32, at: Time, head: &ResponseHead<'_>);
    /// Bytes of its response's body were read; they lie in the engine's own buffer. A slow callee slows the server down: nothing
    /// is read meanwhile, and credit for them is returned afterwards.
    fn body(&mut self, request: u32, data: &[u8]);
    /// An interim response was read.
    fn interim(&mut self, _request: u32, _at: Time, _head: &ResponseHead<'_>) {}
    /// The server promised to push what is at this path.
    fn promised(&mut self, _path: &[u8]) {}
    /// Trailers followed its response's body.
    fn trailers(&mut self, _request: u32, _fields: Fields<'_>) {}
    /// The engine took so many bytes of its body.
    fn body_sent(&mut self, _request: u32, _at: Time, _bytes: usize) {}
    /// The next piece of its body is not available yet. The request pauses until it is cancelled, or its role calls
    /// [`ClientSession::push_body`](super::ClientSession::push_body).
    fn body_ran_dry(&mut self, _request: u32) {}
    /// Its body had to wait for a flow-control window.
    fn waited_for_window(&mut self, _request: u32, _time: Duration) {}
    /// The connection with this index ends; so many bytes of bodies that were reported with [`RequestObserver::body_sent`]
    /// have not left us.
    fn left_behind(&mut self, _connection: u32, _bytes: u64) {}
    /// It is over on this connection.
    fn ended(&mut self, request: u32, at: Time, fate: RequestEnd);
    /// A frame crossed the socket.
    fn frame(&mut self, _event: FrameEvent) {}
}

/// How a request ended on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// Its response is complete.
    Complete,
    /// The server has certainly not processed it: above the last stream of a GOAWAY, refused with `REFUSED_STREAM`, or never
    /// handed to the socket. It may be sent again (RFC 9113 §8.7).
    Unprocessed,
    /// Its connection, which had served others before, ended without a byte in answer to it.
    Unanswered {
        /// Its outcome if it is not sent again.
        outcome: Outcome,
        /// Whether the server may have received it. If not, the server had closed the connection before it arrived, as
        /// happens to idle ones: it was certainly not processed, and any method may be sent again (RFC 9110 §9.2.2).
        may_have_arrived: bool,
    },
    /// It failed.
    Failed {
        /// Its outcome.
        outcome: Outcome,
        /// The HTTP/2 error code, or 0.
        code: u32,
    },
}

/// Ignores everything: when all requests have been reported, only connection-level frames cross.
#[derive(Debug)]
pub(super) struct NoObserver;

impl RequestObserver for NoObserver {
    fn sent(&mut self, _: u32, _: Time, _: Duration) {}
    fn head(&mut self, _: u32, _: Time, _: &ResponseHead<'_>) {}
    fn body(&mut self, _: u32, _: &[u8]) {}
    fn ended(&mut self, _: u32, _: Time, _: RequestEnd) {}
}
