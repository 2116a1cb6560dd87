//! The HTTP/2 half of the switch from HTTP/1.1 in clear (RFC 7540 §3.2).

use std::sync::Arc;

use super::stream::Side;
use super::{Connection, Role, settings};
use crate::content::Content;
use crate::upgrade::Handover;
use crate::{Config, ErrorCode};
use h2lab_base::units::Time;

/// The payload of the SETTINGS that a connection with this configuration announces.
pub(crate) fn announced_settings(config: &Config) -> Vec<u8> {
    settings::announce(&super::clamped(*config))
}

/// Whether `payload` may be the payload of a client's SETTINGS.
pub(crate) fn are_client_settings(payload: &[u8]) -> bool {
    settings::are_legal(payload)
}

impl Connection {
    /// The connection that continues after HTTP/1.1: our preface follows the unsent output, and the request that asked
    /// for the switch is stream 1, whose client side has ended.
    pub(crate) fn upgraded(handover: &Handover, now: Time) -> Self {
        let mut connection = Self::silent(Arc::clone(&handover.config), now);
        connection.counters = handover.counters;
        connection.output.tail().extend_from_slice(&handover.unsent);
        connection.greet();
        // The switch itself acknowledges them, and they were checked with the offer. No stream has a window yet that
        // they could change.
        let role = connection.config.role;
        let applied = connection.peer_settings.apply_all(&handover.settings, role, &mut connection.encoder);
        debug_assert!(applied.is_ok(), "HTTP2-Settings were checked");
        let (local, remote) = match role {
            Role::Client => (Side::Ended, Side::Head),
            Role::Server => (Side::Head, Side::Ended),
        };
        let mut first = connection.new_stream(1, local, remote);
        first.content = Content::new(handover.is_head, false);
        connection.streams.insert(first);
        match role {
            Role::Client => connection.next_local = 3,
            Role::Server => {
                connection.highest_peer = 1;
                connection.count_request();
            }
        }
        if !handover.unread.is_empty() {
            let n = handover.unread.len();
            connection.input.space(n)[..n].copy_from_slice(&handover.unread);
            connection.input.filled(n);
        }
        if handover.draining {
            connection.goaway(now, ErrorCode::NO_ERROR, b"");
        }
        if handover.eof {
            connection.handle_eof(now);
        }
        connection
    }
}
