//! Which requests may be sent again, and why (RFC 9110 §9.2.2, RFC 9113 §8.7).

/// What is known of a request that got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The instance has not processed it: its stream is above the last one of a GOAWAY, it was refused (REFUSED_STREAM), or no byte of
    /// it was handed to the kernel.
    Unprocessed,
    /// The instance may have processed it: the connection ended, or the stream was reset, after it was sent.
    Unknown,
    /// The instance has answered, although not with HTTP: it would answer the same again.
    Answered,
}

/// How often a request that may have been processed is sent again. With more, one that breaks its instance would break
/// all instances.
pub const MOST: u8 = 2;
/// The same for a request that was not processed. Each time others were, so that more repetitions are no load: where
/// connections end after seven requests, and dozens wait, it takes some turns.
pub const MOST_UNPROCESSED: u8 = 64;

/// Whether a method asks for the same when it is sent twice as when it is sent once (RFC 9110 §9.2.2).
pub fn is_idempotent(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE")
}

/// A request that may have to be sent again.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// Its method.
    pub method: &'a [u8],
    /// How often it was sent again already.
    pub repeated: u8,
    /// How often it is sent again at most after [`Fate::Unknown`]; [`MOST`] unless the user says otherwise.
    pub most: u8,
    /// Whether all of its body that was sent is still at hand.
    pub is_kept: bool,
    /// Whether any of its response was passed on to the client.
    pub is_answered: bool,
}

impl Attempt<'_> {
    /// Whether it is sent again after this. What may have been processed and is not idempotent never is.
    pub fn may_repeat(&self, fate: Fate) -> bool {
        let most = match fate {
            Fate::Unprocessed => MOST_UNPROCESSED,
            Fate::Unknown if is_idempotent(self.method) => self.most,
            Fate::Unknown | Fate::Answered => 0,
        };
        self.is_kept && !self.is_answered && self.repeated < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_processed_or_is_idempotent_is_sent_again() {
        let attempt = |method| Attempt { method, repeated: 0, most: MOST, is_kept: true, is_answered: false };
        assert!(attempt(b"POST").may_repeat(Fate::Unprocessed));
        assert!(!attempt(b"POST").may_repeat(Fate::Unknown));
        assert!(!attempt(b"PATCH").may_repeat(Fate::Unknown) && !attempt(b"get").may_repeat(Fate::Unknown));
        assert!(attempt(b"PUT").may_repeat(Fate::Unknown) && attempt(b"GET").may_repeat(Fate::Unknown));
        assert!(!attempt(b"GET").may_repeat(Fate::Answered));
        assert!(!Attempt { repeated: MOST, ..attempt(b"GET") }.may_repeat(Fate::Unknown));
        for given_up in [
            Attempt { repeated: MOST_UNPROCESSED, ..attempt(b"GET") },
            Attempt { is_kept: false, ..attempt(b"GET") },
            Attempt { is_answered: true, ..attempt(b"GET") },
        ] {
            assert!(!given_up.may_repeat(Fate::Unprocessed), "{given_up:?}");
        }
    }
}
