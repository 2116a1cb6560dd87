//! The figures of a connection that carries bulk data, at both ends: the basis of [`super::Binding`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rate::bits_per_second;
use h2lab_base::text::PeerText;
use h2lab_base::units::Bandwidth;

/// One connection in the direction of its data. What was not visible is `None`, which differs from 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionFigures {
    /// The connection's index.
    pub connection: u32,
    /// Whether this end sends the data (`put`) rather than receives it (`get`).
    pub we_send: bool,
    /// From its first byte of data to its last, at the receiver if that is us, else at the sender.
    pub wall: Duration,
    /// Bytes of data in that time.
    pub bytes: u64,
    /// Bytes of data that other connections carried over the same link in that time.
    pub bytes_beside: u64,
    /// Streams that carried data at once; 1 in HTTP/1.1.
    pub streams: u32,
    /// The lowest round-trip time that either end has seen (`tcpi_min_rtt`, or QUIC's).
    pub min_rtt: Option<Duration>,
    /// The smoothed one at the end; it includes queues on the path.
    pub rtt: Option<Duration>,
    /// Mean length of a DATA frame in bytes, over all connections; `None` where there are none, or they are not
    /// counted.
    pub mean_data: Option<u64>,
    /// Whether it certainly has no TLS.
    pub is_clear: bool,
    /// The capacity of the link if we emulate it.
    pub bandwidth: Option<Bandwidth>,
    /// What the server calls itself in the `server` field; a proxy before it may have passed that on.
    pub server: Option<PeerText>,
    /// The end that sends the data.
    pub sender: SenderFigures,
    /// The end that receives the data.
    pub receiver: ReceiverFigures,
}

/// The end of a connection that sends the data.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SenderFigures {
    /// Time in which data waited for a stream window, as the engine counts it. If this end receives, the receiver's
    /// view: the data stopped where the credit ended and continued one round trip after its WINDOW_UPDATE; the mean of
    /// the streams.
    pub blocked_stream_window: Option<Duration>,
    /// Time in which it waited for the connection window.
    pub blocked_connection_window: Option<Duration>,
    /// Time in which TCP had data in flight or queued (`tcpi_busy_time`).
    pub tcp_busy: Option<Duration>,
    /// Of that, time limited by the receiver's TCP window (`tcpi_rwnd_limited`).
    pub tcp_rwnd_limited: Option<Duration>,
    /// Of that, time limited by the send buffer (`tcpi_sndbuf_limited`).
    pub tcp_sndbuf_limited: Option<Duration>,
    /// Bytes that the receiver's TCP has acknowledged (`tcpi_bytes_acked`).
    pub bytes_acked: Option<u64>,
    /// Segments or packets retransmitted.
    pub retransmits: Option<u64>,
    /// The congestion window at the end, in bytes.
    pub cwnd_bytes: Option<u64>,
    /// The congestion control, read back.
    pub congestion_control: Option<String>,
    /// The most that the socket's send buffer may grow to, in bytes: the third value of `net.ipv4.tcp_wmem`, or
    /// `SO_SNDBUF` if that was set.
    pub send_buffer: Option<u64>,
    /// Time spent waiting for the disk.
    pub disk_wait: Option<Duration>,
    /// CPU time of the busiest thread.
    pub cpu: Option<Duration>,
}

/// The end of a connection that receives the data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReceiverFigures {
    /// The stream window that it offered at the end, in bytes; `None` in HTTP/1.1.
    pub stream_window: Option<u64>,
    /// The connection window, likewise.
    pub connection_window: Option<u64>,
    /// The most that the socket's receive buffer may grow to, in bytes: the third value of `net.ipv4.tcp_rmem`, or
    /// `SO_RCVBUF` if that was set.
    pub receive_buffer: Option<u64>,
    /// Time spent waiting for the disk.
    pub disk_wait: Option<Duration>,
    /// CPU time of the busiest thread.
    pub cpu: Option<Duration>,
}

impl ConnectionFigures {
    /// Bits of data per second; 0 if there was no time.
    pub fn rate(&self) -> f64 {
        bits_per_second(self.bytes, self.wall).unwrap_or(0.0)
    }

    /// Bytes in flight at `speed` bits per second: what a window or a buffer must hold. `None` without
    /// a round-trip time.
    pub fn in_flight(&self, speed: f64) -> Option<f64> {
        Some(speed / 8.0 * self.min_rtt.filter(|rtt| !rtt.is_zero())?.as_secs_f64())
    }

    /// The data of all connections over the link, as a multiple of this connection's; at least 1.
    pub fn company(&self) -> f64 {
        1.0 + self.bytes_beside as f64 / self.bytes.max(1) as f64
    }

    /// The bandwidth-delay product in bytes: what must be in flight to fill the link. `None` without either.
    pub fn bandwidth_delay_product(&self) -> Option<f64> {
        Some(self.bandwidth?.bits_per_second() as f64 / 8.0 * self.min_rtt?.as_secs_f64())
    }

    /// The mean per stream of `waited`, which is a sum over `streams`; no more than the whole time.
    pub fn of_each(&self, waited: Option<Duration>, streams: u32) -> Option<Duration> {
        Some((waited? / streams.max(1)).min(self.wall))
    }

    /// `time` as a share of the whole; 0 if it is not known.
    pub fn share(&self, time: Option<Duration>) -> f64 {
        match time {
            Some(time) if !self.wall.is_zero() => time.as_secs_f64() / self.wall.as_secs_f64(),
            _ => 0.0,
        }
    }
}
