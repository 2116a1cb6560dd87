//! What a connection counts. HTTP/1.1 has only two of the frame types of [`Counters`], and rarely meets a limit. So
//! this takes a fifth of the memory, which counts with thousands of idle connections.

use crate::connection::Counters;
use crate::limits::Limit;

/// See [`Counters`], whose fields have these names.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By [`DATA`](super::connection::DATA) and [`HEADERS`](super::connection::HEADERS).
    pub(super) frames_sent: [u64; 2],
    pub(super) frames_received: [u64; 2],
    pub(super) headers_sent: u64,
    pub(super) headers_received: u64,
    pub(super) headers_plain: u64,
    pub(super) requests: u64,
    /// `Some` once a limit was met.
    limits_hit: Option<Box<[u32; Limit::ALL.len()]>>,
}

impl Counts {
    /// A bound was met.
    pub(super) fn limit_hit(&mut self, limit: Limit) {
        self.limits_hit.get_or_insert_default()[limit as usize] += 1;
    }

    /// The counters as they are reported.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = Counters {
            headers_sent: self.headers_sent,
            headers_received: self.headers_received,
            headers_plain: self.headers_plain,
            requests: self.requests,
            ..Counters::default()
        };
        counters.frames_sent[..2].copy_from_slice(&self.frames_sent);
        counters.frames_received[..2].copy_from_slice(&self.frames_received);
        if let Some(limits_hit) = &self.limits_hit {
            counters.limits_hit = **limits_hit;
        }
        counters
    }
}
