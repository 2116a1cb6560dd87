//! A bound on a socket's receive buffer: where the round trip is short, no more than the CPU's caches hold.
//!
//! The kernel lets a receive buffer grow as long as its reader keeps up (tcp(7), `tcp_rmem`). That is right for a long
//! fat link and harmful without one: a buffer of some MiB exceeds the caches, so that a reader that falls behind a
//! little copies from memory from then on, and falls behind more. A buffer as small as one write of the server makes
//! both ends wait for each other. So a bulk reader whose server is near uses a size between these
//! (`results/2026-11-24-2-cpus/receive-buffer.md`).
//!
//! Rejected: `TCP_WINDOW_CLAMP` by itself, which is lost when the buffer grows; a bound that follows the
//! bandwidth-delay product at every distance, since a receiver measures the round trip only with its few requests.

use std::time::Duration;

use super::tcp::StreamSocket;
use super::tcp_info::TcpInfo;

/// A server is near if it answered the SYN within this: it is on this machine, perhaps in another namespace, or next to it.
const NEAR: Duration = Duration::from_micros(50);

/// The bound, in bytes. The kernel doubles it for its own overhead (socket(7)). It carries 160 Gbit/s over the longest
/// round trip that counts as near.
const BOUND: u32 = 1 << 20;

/// Bounds the buffer of a new connection, if its server is near and the kernel allows so much.
pub fn bound(stream: &StreamSocket) {
    let min_rtt = TcpInfo::of(stream).map_or(0, |info| info.min_rtt_us);
    if min_rtt > 0 && Duration::from_micros(min_rtt.into()) <= NEAR {
        stream.bound_receive_buffer(BOUND);
    }
}
