//! What our client announces, and its timeouts, by default.

use std::time::Duration;

use h2lab_wire::{Config, FlowControl, Role};

/// How long TCP and TLS may take together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server may take to show that it speaks HTTP at all: its SETTINGS, or its first answer.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a request that a GOAWAY or `REFUSED_STREAM` left unprocessed is sent again: as often as Go's net/http does
/// it (`RoundTripOpt` in golang.org/x/net/http2). Three times were too few against Apache httpd 2.4.71 with its event
/// MPM, which ends every second connection right after `Upgrade: h2c`, so that a request of every tenth user was lost.
pub const MAX_REPLAYS: u8 = 6;

/// Stream window: 4 MiB, as Go's net/http announces (`transportDefaultStreamFlow` in golang.org/x/net/http2). The 65,535
/// bytes of RFC 9113 §6.9.2 would make every larger response wait for credit once per round trip, which hardly any client
/// in use does.
const STREAM_WINDOW: u32 = 4 << 20;

/// Connection window: 1 GiB, from the same source (`transportDefaultConnFlow`).
const CONNECTION_WINDOW: u32 = 1 << 30;

/// The engine of a client connection.
pub fn engine(tls: bool) -> Config {
    let mut config = Config::new(Role::Client);
    config.tls = tls;
    config.flow = FlowControl {
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        ..FlowControl::default()
    };
    config
}
