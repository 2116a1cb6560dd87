//! One stream (RFC 9113 §5.1).

use super::credit_watch::CreditWatch;
use super::flow::{ReceiveWindow, SendWindow};
use super::send_scheduler::SendPlace;
use crate::Priority;
use crate::content::Content;
pub(super) use crate::content::Side;
use h2lab_base::units::Time;

/// What a stream with body to send waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing.
    No,
    /// Its turn: it has a send place.
    Turn,
    /// Its own window.
    Window,
    /// The role, which has been sent `Writable`.
    Role,
}

/// What a stream released in the round of [`Tuner`](super::tuning::Tuner) under way, or in the last one that it took
/// part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) round: u32,
    pub(super) bytes: u32,
}

impl Pace {
    /// Nothing was released yet.
    pub(super) const NONE: Self = Self { round: 0, bytes: 0 };
}

/// A stream that is open, half-closed or reserved. RFC 9113's states are pairs of how far both sides have come:
///
/// | ours | the peer's | RFC 9113 |
/// |---|---|---|
/// | not ended | not ended | open |
/// | ended | not ended | half-closed (local); reserved (remote) while the peer's is `Head` on a promised stream |
/// | not ended | ended | half-closed (remote) |
/// | ended | ended | closed, and so not in the store |
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Our side.
    pub(super) local: Side,
    /// The peer's side.
    pub(super) remote: Side,
    /// Content state of the peer's message.
    pub(super) content: Content,
    /// The role itself releases what arrives.
    pub(super) by_hand: bool,
    pub(super) wait: Wait,
    /// Since when its body waits for the peer's windows; [`Time::NEVER`] if it does not.
    pub(super) waiting_since: Time,
    /// Bytes of its body that were sent since then.
    pub(super) sent_since: u32,
    /// The shortest piece that may be sent next; `u32::MAX` until it has waited.
    pub(super) shortest: u32,
    /// Interim responses received.
    pub(super) interims: u32,
    /// Its place in the order while it waits for its turn; kept while the role may send.
    pub(super) send_place: SendPlace,
    /// Bytes that it was allowed to send.
    pub(super) offer: u32,
    /// The priority that the client requested, if any (RFC 9218).
    pub(super) priority: Option<Priority>,
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    /// Whether the peer used up the receive window.
    pub(super) credit_watch: CreditWatch,
    /// How fast the role releases what arrives.
    pub(super) pace: Pace,
}

impl Stream {
    /// A stream whose windows have their initial sizes.
    pub(super) const fn new(id: u32, local: Side, remote: Side, send: u32, receive: ReceiveWindow) -> Self {
        Self {
            id,
            local,
            remote,
            content: Content::new(false, false),
            by_hand: false,
            wait: Wait::No,
            waiting_since: Time::NEVER,
            sent_since: 0,
            shortest: u32::MAX,
            interims: 0,
            send_place: SendPlace::NONE,
            offer: 0,
            priority: None,
            send: SendWindow::new(send),
            receive,
            credit_watch: CreditWatch::NEW,
            pace: Pace::NONE,
        }
    }

    /// The peer's message ended; fails with the reason if that is malformed.
    pub(super) const fn end_remote(&mut self) -> Result<(), &'static str> {
        self.remote = Side::Ended;
        self.content.end()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.local == Side::Ended && self.remote == Side::Ended
    }
}
