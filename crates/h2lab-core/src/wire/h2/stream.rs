//! One stream (RFC 9113 §5.1).

use super::flow::{ReceiveWindow, SendWindow};
use super::tuning::Pace;
use super::turns::Ticket;
use crate::units::Time;
use crate::wire::Priority;

/// How far one side of a stream has come. RFC 9113's states are pairs of these:
///
/// | ours | the peer's | RFC 9113 |
/// |---|---|---|
/// | not ended | not ended | open |
/// | ended | not ended | half-closed (local); reserved (remote) while the peer's is `Head` on a promised stream |
/// | not ended | ended | half-closed (remote) |
/// | ended | ended | closed, and so not in the store |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The final head is still to come; interim responses do not change that.
    Head,
    /// The head is complete, body may follow.
    Body,
    /// END_STREAM is behind us.
    Ended,
}

/// What a stream with body to send waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing.
    No,
    /// Its turn: it has a ticket.
    Turn,
    /// Its own window.
    Window,
    /// The role, which has been told that it may go on.
    Role,
}

/// No content-length was announced.
const UNANNOUNCED: u64 = u64::MAX;

/// A stream that is open, half-closed or reserved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Our side.
    pub(super) local: Side,
    /// The peer's side.
    pub(super) remote: Side,
    /// The response must not have content: it answers HEAD, or is a 204 or 304 (RFC 9110 §6.4.1).
    pub(super) no_content: bool,
    /// The request was CONNECT and has not been answered with anything but 2xx: there is no content-length to hold to,
    /// and nothing but DATA follows (RFC 9113 §8.5).
    pub(super) is_connect: bool,
    /// The role releases what arrives itself.
    pub(super) by_hand: bool,
    pub(super) wait: Wait,
    /// Since when its body waits for the peer's windows; [`Time::NEVER`] if it does not.
    pub(super) waiting_since: Time,
    /// Bytes of its body that went since then.
    pub(super) sent_since: u32,
    /// The shortest piece that its body may go on with; `u32::MAX` until it has waited.
    pub(super) shortest: u32,
    /// Interim responses received.
    pub(super) interims: u32,
    /// Its place in the order: while it waits for its turn, and, of a stream that was told to go on, the one it had.
    pub(super) ticket: Ticket,
    /// Bytes that it was told it may send.
    pub(super) offer: u32,
    /// What the client said of its priority, if anything (RFC 9218).
    pub(super) wish: Option<Priority>,
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    /// How fast the role releases what arrives.
    pub(super) pace: Pace,
    /// Body bytes still due by content-length; `UNANNOUNCED` without one.
    due: u64,
}

impl Stream {
    /// A stream whose windows have their initial sizes.
    pub(super) const fn new(id: u32, local: Side, remote: Side, send: u32, receive: ReceiveWindow) -> Self {
        Self {
            id,
            local,
            remote,
            no_content: false,
            is_connect: false,
            by_hand: false,
            wait: Wait::No,
            waiting_since: Time::NEVER,
            sent_since: 0,
            shortest: u32::MAX,
            interims: 0,
            ticket: Ticket::NONE,
            offer: 0,
            wish: None,
            send: SendWindow::new(send),
            receive,
            pace: Pace::NONE,
            due: UNANNOUNCED,
        }
    }

    /// The peer announced a body of `length` bytes.
    pub(super) const fn expect(&mut self, length: Option<u64>) {
        self.due = match length {
            Some(length) if !self.no_content && !self.is_connect => length,
            _ => UNANNOUNCED,
        };
    }

    /// The final response has this status.
    pub(super) const fn answered(&mut self, status: u16) {
        self.is_connect &= matches!(status, 200..=299);
    }

    /// `bytes` of body arrived; why that is malformed (RFC 9113 §8.1.1), if it is.
    pub(super) const fn body(&mut self, bytes: u64) -> Result<(), &'static str> {
        if bytes > 0 && self.no_content {
            return Err("content in a response that has none (RFC 9110 §6.4.1)");
        }
        if self.due != UNANNOUNCED {
            match self.due.checked_sub(bytes) {
                Some(due) => self.due = due,
                None => return Err("more content than content-length (RFC 9113 §8.1.1)"),
            }
        }
        Ok(())
    }

    /// The peer's message ended; why that is malformed, if it is.
    pub(super) const fn end_remote(&mut self) -> Result<(), &'static str> {
        self.remote = Side::Ended;
        match self.due {
            0 | UNANNOUNCED => Ok(()),
            _ => Err("less content than content-length (RFC 9113 §8.1.1)"),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.local == Side::Ended && self.remote == Side::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream::new(1, Side::Ended, Side::Body, 0, ReceiveWindow::new(0))
    }

    #[test]
    fn a_body_must_be_exactly_as_long_as_announced() {
        let mut exact = stream();
        exact.expect(Some(3));
        assert!(exact.body(2).is_ok() && exact.body(1).is_ok() && exact.end_remote().is_ok());
        let mut long = stream();
        long.expect(Some(3));
        assert!(long.body(4).is_err());
        let mut short = stream();
        short.expect(Some(3));
        assert!(short.body(2).is_ok() && short.end_remote().is_err());
    }

    #[test]
    fn a_response_without_content_may_announce_a_length_and_send_nothing() {
        let mut head = stream();
        head.no_content = true;
        head.expect(Some(1000));
        assert!(head.body(0).is_ok());
        assert!(head.body(1).is_err());
        assert!(head.end_remote().is_ok());
        assert!(head.is_closed());
    }
}
