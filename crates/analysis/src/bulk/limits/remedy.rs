//! Which setting lifts a limit, and to what.

use h2lab_base::units::{format_bytes, format_duration};
use h2lab_model::bulk::{BindingKind, ConnectionFigures};

/// The largest window of HTTP/2 (RFC 9113 §6.9.1), in bytes.
const MOST_WINDOW: u64 = (1 << 31) - 1;
/// The largest window of TCP (RFC 7323 §2.3), in bytes.
const MOST_TCP_WINDOW: u64 = 65_535 << 14;

/// Frames of at most so many bytes cost more than longer ones: what every end accepts (RFC 9113 §4.2).
const SHORT_FRAME: u64 = 16_384;

/// What to set and where; `None` if no setting would help.
pub(super) fn fix(kind: BindingKind, figures: &ConnectionFigures, speed: f64) -> Option<String> {
    let receiver = &figures.receiver;
    let whose = if figures.we_send { "of the server" } else { "here" };
    Some(match kind {
        BindingKind::StreamWindow => {
            let need = Need::of(figures, speed, receiver.stream_window, MOST_WINDOW);
            need.rendered(|bytes| format!("a stream window of {bytes} bytes {whose} (-w {bytes})"))
        }
        BindingKind::ConnectionWindow => {
            let need = Need::of(figures, speed, receiver.connection_window, MOST_WINDOW);
            need.rendered(|bytes| format!("a connection window of {bytes} bytes {whose} (-W {bytes})"))
        }
        BindingKind::SendBuffer => {
            let need = Need::of(figures, speed, figures.sender.send_buffer, MOST_TCP_WINDOW);
            need.rendered(|bytes| {
                format!(
                    "net.ipv4.tcp_wmem with {bytes} bytes as its third value at the sender (sysctl -w \
                     net.ipv4.tcp_wmem='4096 16384 {bytes}')"
                )
            })
        }
        BindingKind::ReceiveBuffer => {
            let need = Need::of(figures, speed, receiver.receive_buffer, 2 * MOST_TCP_WINDOW);
            need.rendered(|bytes| {
                format!(
                    "net.ipv4.tcp_rmem with {bytes} bytes as its third value at the receiver (sysctl -w \
                     net.ipv4.tcp_rmem='4096 131072 {bytes}')"
                )
            })
        }
        BindingKind::CongestionWindow => congestion(figures),
        BindingKind::Disk => "a faster disk, or --discard to measure without it".to_owned(),
        BindingKind::Cpu => {
            let is_short = figures.mean_data.is_some_and(|mean| mean <= SHORT_FRAME);
            let frames = if is_short { "frames larger than 16 KiB (-f 1M), " } else { "" };
            format!("{frames}more connections (-c), or cleartext where permitted")
        }
        BindingKind::Peer if figures.we_send => "check the receiver's disk and CPU".to_owned(),
        BindingKind::Peer => "check the sender's disk, CPU and windows".to_owned(),
        BindingKind::Link | BindingKind::Unknown => return None,
    })
}

fn congestion(figures: &ConnectionFigures) -> String {
    let more = "more connections (-c), each with its own congestion window";
    match figures.sender.congestion_control.as_deref() {
        Some("bbr") => more.to_owned(),
        _ => {
            format!(
                "bbr at the sender, which does not treat a loss as congestion (--congestion bbr), or {more}"
            )
        }
    }
}

/// The size that is needed.
struct Need {
    bytes: u64,
    why: String,
    /// Whether one connection cannot have as much.
    is_beyond: bool,
}

impl Need {
    /// Twice the bandwidth-delay product where that is known: once for the data in flight, once for what is acknowledged
    /// late (a window that is refilled at its half; a buffer that keeps retransmitted data). Else twice the present size.
    fn of(figures: &ConnectionFigures, speed: f64, present: Option<u64>, most: u64) -> Self {
        let (bytes, why) = match (figures.bandwidth_delay_product(), figures.bandwidth, figures.min_rtt) {
            (Some(product), Some(bandwidth), Some(rtt)) => {
                let filled = format_bytes(product.round() as u64);
                let why =
                    format!("twice the {filled} needed to fill {bandwidth} for {}", format_duration(rtt));
                ((2.0 * product).ceil() as u64, why)
            }
            _ => {
                let present =
                    present.unwrap_or_else(|| figures.in_flight(speed).unwrap_or(0.0).round() as u64);
                let why = format!("twice its present {}", format_bytes(present));
                (present.saturating_mul(2), why)
            }
        };
        Self { bytes: bytes.min(most), why, is_beyond: bytes > most }
    }

    fn rendered(&self, setting: impl Fn(u64) -> String) -> String {
        let more =
            if self.is_beyond { ", more than one connection can have: add connections too (-c)" } else { "" };
        format!("{}: {}{more}", setting(self.bytes), self.why)
    }
}
