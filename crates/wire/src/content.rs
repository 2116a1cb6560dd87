//! How far a message has come, and whether it has the content that it announces (RFC 9110 §6.4, §8.6).

/// How far one side of a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The final head is still to come; interim responses do not change that.
    Head,
    /// The head is complete, body may follow.
    Body,
    /// The message has ended; for the peer's side in HTTP/3 also after trailers, which only the end may follow.
    Ended,
}

/// What is known of the content of a message that is being received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content {
    /// The response must not have content: it answers HEAD, or is a 204 or 304 (RFC 9110 §6.4.1).
    is_none: bool,
    /// The request was CONNECT and was not answered with anything but 2xx: no content-length applies, and nothing but
    /// DATA follows (RFC 9113 §8.5, RFC 9114 §4.4).
    is_tunnel: bool,
    /// Bytes still due by content-length; `UNANNOUNCED` without one.
    due: u64,
}

/// No content-length was announced.
const UNANNOUNCED: u64 = u64::MAX;

impl Content {
    /// For a request with this method and its response.
    pub(super) const fn new(is_head: bool, is_connect: bool) -> Self {
        Self { is_none: is_head, is_tunnel: is_connect, due: UNANNOUNCED }
    }

    /// Whether the stream is a tunnel, or will be unless the answer says otherwise.
    pub(super) const fn is_tunnel(&self) -> bool {
        self.is_tunnel
    }

    /// A content-length, or its absence, was announced.
    pub(super) const fn expect(&mut self, length: Option<u64>) {
        self.due = match length {
            Some(length) if !self.is_none && !self.is_tunnel => length,
            _ => UNANNOUNCED,
        };
    }

    /// We answered the request with this final status.
    pub(super) const fn answered(&mut self, status: u16) {
        self.is_tunnel &= matches!(status, 200..=299);
    }

    /// The final response that arrives has this status and content-length.
    pub(super) const fn answers(&mut self, status: u16, length: Option<u64>) {
        self.answered(status);
        self.is_none |= matches!(status, 204 | 304);
        self.expect(length);
    }

    /// Bytes that are still to come by content-length; 0 without one.
    pub(super) const fn due(&self) -> u64 {
        if self.due == UNANNOUNCED { 0 } else { self.due }
    }

    /// `bytes` of body arrived; fails with the reason if that is malformed (RFC 9113 §8.1.1, RFC 9114 §4.1.2).
    pub(super) const fn body(&mut self, bytes: u64) -> Result<(), &'static str> {
        if bytes > 0 && self.is_none {
            return Err("content in a response that has none (RFC 9110 §6.4.1)");
        }
        if self.due != UNANNOUNCED {
            match self.due.checked_sub(bytes) {
                Some(due) => self.due = due,
                None => return Err("more content than content-length (RFC 9110 §8.6)"),
            }
        }
        Ok(())
    }

    /// The message ended; fails with the reason if that is malformed.
    pub(super) const fn end(&self) -> Result<(), &'static str> {
        match self.due {
            0 | UNANNOUNCED => Ok(()),
            _ => Err("less content than content-length (RFC 9110 §8.6)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_must_be_exactly_as_long_as_announced() {
        let content = |bytes| {
            let mut content = Content::new(false, false);
            content.expect(Some(3));
            content.body(bytes).and_then(|()| content.end())
        };
        assert!(content(3).is_ok());
        assert!(content(4).is_err());
        assert!(content(2).is_err());
    }

    #[test]
    fn a_response_without_content_may_announce_a_length_and_send_nothing() {
        for (is_head, status) in [(true, 200), (false, 204), (false, 304)] {
            let mut content = Content::new(is_head, false);
            content.answers(status, Some(1000));
            assert!(content.body(0).is_ok());
            assert!(content.body(1).is_err());
            assert!(content.end().is_ok());
        }
    }

    #[test]
    fn a_tunnel_has_no_length_to_hold_to_unless_it_was_declined() {
        let mut accepted = Content::new(false, true);
        accepted.answers(200, Some(3));
        assert!(accepted.is_tunnel() && accepted.body(9).is_ok());
        let mut declined = Content::new(false, true);
        declined.answers(403, Some(3));
        assert!(!declined.is_tunnel() && declined.body(9).is_err());
    }
}
