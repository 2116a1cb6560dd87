//! Which setting lifts a limit, and to what value. The table of settings has the spelling of each setting
//! (`h2lab_model::settings`).

use h2lab_base::units::{format_bytes, measured_time};
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::bulk::{BindingKind, ConnectionFigures};
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise, proxies, rounded_up};

/// The largest window of HTTP/2 (RFC 9113 §6.9.1), in bytes.
const MOST_WINDOW: u64 = (1 << 31) - 1;
/// The largest window of TCP (RFC 7323 §2.3), in bytes.
const MOST_TCP_WINDOW: u64 = 65_535 << 14;

/// Frames of at most this many bytes cost more than longer ones: what every end accepts (RFC 9113 §4.2).
const SHORT_FRAME: u64 = 16_384;
/// A frame length beyond which longer frames gain little.
const LONG_FRAME: u64 = 1 << 20;

/// What to set and where; `None` if no setting would help.
pub(super) fn fix(kind: BindingKind, figures: &ConnectionFigures, speed: f64) -> Option<String> {
    let receiver = &figures.receiver;
    Some(match kind {
        BindingKind::StreamWindow => {
            let need = Need::of(figures, speed, receiver.stream_window, Owner::Receiver, MOST_WINDOW);
            window(figures, Knob::StreamWindow, "a stream window", &need)
        }
        BindingKind::ConnectionWindow => {
            let need = Need::of(figures, speed, receiver.connection_window, Owner::Receiver, MOST_WINDOW);
            window(figures, Knob::ConnectionWindow, "a connection window", &need)
        }
        BindingKind::SendBuffer => {
            let need = Need::of(figures, speed, figures.sender.send_buffer, Owner::Sender, MOST_TCP_WINDOW);
            format!("{} at the sender{}", need.written(&linux(), Knob::SendBuffer, Role::Kernel), need.why())
        }
        BindingKind::ReceiveBuffer => {
            let need =
                Need::of(figures, speed, receiver.receive_buffer, Owner::Receiver, 2 * MOST_TCP_WINDOW);
            format!(
                "{} at the receiver{}",
                need.written(&linux(), Knob::ReceiveBuffer, Role::Kernel),
                need.why()
            )
        }
        BindingKind::CongestionWindow => congestion(figures),
        BindingKind::Disk => "a faster disk, or --discard to measure without it".to_owned(),
        BindingKind::Cpu => cpu(figures),
        BindingKind::Peer if figures.we_send => "check the receiver's disk and CPU".to_owned(),
        BindingKind::Peer if figures.sender.tcp_busy.is_none() => {
            "check the sender's rate limits, its source (an upstream, a disk) and its CPU".to_owned()
        }
        BindingKind::Peer => "check the sender's disk, CPU and windows".to_owned(),
        BindingKind::Link | BindingKind::Unknown => return None,
    })
}

/// A window of the receiving end: our flag if we receive, else the setting of the server's product.
fn window(figures: &ConnectionFigures, knob: Knob, what: &str, need: &Need) -> String {
    let size = format_bytes(need.bytes);
    let each = if knob == Knob::StreamWindow { "stream" } else { "connection" };
    let why =
        format!("{}; that much memory, at most, for each {each} whose data is not read at once", need.why());
    if !figures.we_send {
        return format!("{what} of {size} here ({}){why}", need.written(&ours(), knob, Role::Client));
    }
    let peer = Peer::seen(None, figures.server.as_deref());
    let wish = Wish { knob, role: Role::Front, value: Some(need.bytes) };
    let fix = advise(&peer, wish);
    let wanted = format!("{what} of {size} at the server{why}");
    if peer.product.is_none() {
        return format!("{wanted}. {}", fix.why);
    }
    // The `server` field names the server that answered; a proxy in front of it has the window.
    let announced = figures.receiver.stream_window.filter(|_| knob == Knob::StreamWindow);
    let proxies = proxies(wish, announced).map_or(String::new(), |proxies| {
        format!("; if a proxy ends the connection before it, that proxy's: {proxies}")
    });
    format!("{wanted}. {}: `{}` ({}){proxies}", fix.product, fix.setting, fix.why)
}

fn ours() -> Peer {
    Peer::started("h2lab")
}

fn linux() -> Peer {
    Peer::started("linux")
}

/// The setting of `peer` for this knob; without a value if it needs none.
fn line(peer: &Peer, knob: Knob, role: Role, value: Option<u64>) -> String {
    advise(peer, Wish { knob, role, value }).setting
}

fn congestion(figures: &ConnectionFigures) -> String {
    let connections = line(&ours(), Knob::UpstreamConnections, Role::Client, None);
    let more = format!("more connections ({connections}), each with its own congestion window");
    if super::is_opening(figures) {
        return format!(
            "a connection that is kept for several files, since its window stays open, or {more}"
        );
    }
    // A short queue, or bbr, fills a path without a round trip that shows it.
    let no_gain = if figures.bandwidth.is_none() { "; no gain if the path is full already" } else { "" };
    match figures.sender.congestion_control.as_deref() {
        Some("bbr") => more + no_gain,
        _ => {
            let flag = line(&ours(), Knob::CongestionControl, Role::Kernel, None);
            format!(
                "bbr at the sender, which does not treat a loss as congestion ({flag}), or {more}{no_gain}"
            )
        }
    }
}

fn cpu(figures: &ConnectionFigures) -> String {
    let connections = line(&ours(), Knob::UpstreamConnections, Role::Client, None);
    let is_short = figures.mean_data.is_some_and(|mean| mean <= SHORT_FRAME);
    let frames = if is_short {
        let flag = line(&ours(), Knob::MaxFrameSize, Role::Client, Some(LONG_FRAME));
        format!("frames larger than 16 KiB ({flag}), ")
    } else {
        String::new()
    };
    let clear = if figures.is_clear { "" } else { ", or, of TLS, cleartext where permitted" };
    format!("{frames}more connections ({connections}){clear}")
}

/// ` (filling it takes 1.192 MiB per 100 Mbit/s at a round trip of 100 ms)`, for a path whose bandwidth is not known.
fn rule(figures: &ConnectionFigures) -> String {
    /// Bits per second, an example.
    const EXAMPLE: f64 = 100e6;
    match (figures.in_flight(EXAMPLE), figures.min_rtt) {
        (Some(bytes), Some(rtt)) => format!(
            " (filling it takes {} per {} at a round trip of {})",
            format_bytes(bytes.ceil() as u64),
            bits_text(EXAMPLE),
            measured_time(rtt)
        ),
        _ => String::new(),
    }
}

/// The end that a window or a buffer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Sender,
    Receiver,
}

/// The size that is needed.
struct Need {
    /// Rounded up, and limited to the largest possible size.
    bytes: u64,
    why: String,
    /// Whether one connection cannot have that much.
    is_beyond: bool,
}

impl Need {
    /// Twice the bandwidth-delay product where that is known: once for the data in flight, once for what is
    /// acknowledged late (a window that is refilled at its half; a buffer that keeps retransmitted data). Else twice
    /// the present size, since what the path could carry is not known.
    fn of(figures: &ConnectionFigures, speed: f64, present: Option<u64>, owner: Owner, most: u64) -> Self {
        let (bytes, why) = match (figures.bandwidth_delay_product(), figures.bandwidth, figures.min_rtt) {
            (Some(product), Some(bandwidth), Some(rtt)) => {
                let filled = format_bytes(product.round() as u64);
                let why = format!("twice the {filled} needed to fill {bandwidth} for {}", measured_time(rtt));
                ((2.0 * product).ceil() as u64, why)
            }
            _ => {
                let seen = figures.in_flight(speed).unwrap_or(0.0).round() as u64;
                let (present, is) = match present {
                    Some(size) if figures.we_send && owner == Owner::Receiver => (size, "that it announces"),
                    Some(size) => (size, "it has now"),
                    None => (seen, "it lets through now"),
                };
                let present_text = format_bytes(present);
                let why = format!(
                    "twice the {present_text} {is}; the bandwidth of the path is unknown{}",
                    rule(figures)
                );
                (present.saturating_mul(2), why)
            }
        };
        let bytes = rounded_up(bytes);
        Self { bytes: bytes.min(most), why, is_beyond: bytes > most }
    }

    /// The setting that gives this size.
    fn written(&self, peer: &Peer, knob: Knob, role: Role) -> String {
        line(peer, knob, role, Some(self.bytes))
    }

    /// `: twice the …`.
    fn why(&self) -> String {
        let more =
            if self.is_beyond { ", more than one connection can have: add connections too (-c)" } else { "" };
        format!(": {}{more}", self.why)
    }
}
