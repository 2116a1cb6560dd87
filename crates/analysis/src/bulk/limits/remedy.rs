//! Which setting lifts a limit, and to what value. The table of settings has the spelling of each setting
//! (`h2lab_model::settings`).

use super::AGREES_TO;
use h2lab_base::units::{format_bytes, measured_time};
use h2lab_model::Fix;
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

/// What to set and where; empty if no setting would help. What cannot be set says what to look at.
pub(super) fn fixes(kind: BindingKind, figures: &ConnectionFigures, speed: f64) -> Vec<Fix> {
    let receiver = &figures.receiver;
    match kind {
        BindingKind::StreamWindow | BindingKind::ConnectionWindow => windows(kind, figures, speed),
        BindingKind::SendBuffer => {
            let need = Need::of(figures, speed, figures.sender.send_buffer, Owner::Sender, MOST_TCP_WINDOW);
            let why = format!("at the sender{}", need.why());
            vec![kernel(Knob::SendBuffer, Some(need.bytes), why)]
        }
        BindingKind::ReceiveBuffer => {
            let need =
                Need::of(figures, speed, receiver.receive_buffer, Owner::Receiver, 2 * MOST_TCP_WINDOW);
            let why = format!("at the receiver{}", need.why());
            vec![kernel(Knob::ReceiveBuffer, Some(need.bytes), why)]
        }
        BindingKind::CongestionWindow => congestion(figures),
        BindingKind::Disk => {
            vec![Fix::new("disk", "a faster disk", "data waits for it; --discard measures without it")]
        }
        BindingKind::Cpu => cpu(figures),
        BindingKind::Peer if figures.we_send => {
            vec![Fix::new("receiver", "check its disk and its CPU", "it reads late what has arrived")]
        }
        BindingKind::Peer if figures.sender.tcp_busy.is_none() => vec![Fix::new(
            "sender",
            "check its rate limits, its source (an upstream, a disk) and its CPU",
            "it gave no more",
        )],
        BindingKind::Peer => {
            vec![Fix::new("sender", "check its disk, its CPU and its windows", "it had nothing to send")]
        }
        BindingKind::Link | BindingKind::Unknown => Vec::new(),
    }
}

/// A larger window of this kind; with the other window where that one would be the limit at once: of the two the smaller
/// one decides, so that raising one changes little or nothing.
fn windows(kind: BindingKind, figures: &ConnectionFigures, speed: f64) -> Vec<Fix> {
    let of = |kind| {
        let (present, knob, what) = match kind {
            BindingKind::ConnectionWindow => {
                (figures.receiver.connection_window, Knob::ConnectionWindow, "a connection window")
            }
            _ => (figures.receiver.stream_window, Knob::StreamWindow, "a stream window"),
        };
        window(figures, knob, what, &Need::of(figures, speed, present, Owner::Receiver, MOST_WINDOW))
    };
    let other = match kind {
        BindingKind::StreamWindow => BindingKind::ConnectionWindow,
        _ => BindingKind::StreamWindow,
    };
    let sizes = super::window(kind, figures).zip(super::window(other, figures));
    let (fix, other) = (of(kind), sizes.filter(|(own, other)| *other <= own * AGREES_TO).map(|_| of(other)));
    match other {
        None => vec![fix],
        Some(other) if fix.has_setting() && other.has_setting() && fix.product == other.product => {
            let setting = format!("{} {}", fix.setting, other.setting);
            let why = format!("both, since both are used up at once; {}; {}", fix.why, other.why);
            vec![Fix::new(&fix.product, &setting, why)]
        }
        Some(other) => vec![fix, other],
    }
}

/// A window of the receiving end: our flag if we receive, else the setting of the server's product.
fn window(figures: &ConnectionFigures, knob: Knob, what: &str, need: &Need) -> Fix {
    let size = format_bytes(need.bytes);
    let each = if knob == Knob::StreamWindow { "stream" } else { "connection" };
    let why =
        format!("{}; that much memory, at most, for each {each} whose data is not read at once", need.why());
    if !figures.we_send {
        return client(knob, Some(need.bytes), &format!("{what} of {size} here{why}"));
    }
    let peer = Peer::seen(None, figures.server.as_deref());
    let wish = Wish { knob, role: Role::Front, value: Some(need.bytes) };
    let fix = advise(&peer, wish);
    let mut why = format!("{what} of {size} at the server{why}");
    if !fix.why.is_empty() {
        why = format!("{why}; {}", fix.why);
    }
    // The `server` field names the server that answered; a proxy in front of it has the window.
    let announced = figures.receiver.stream_window.filter(|_| knob == Knob::StreamWindow);
    if let Some(proxies) = proxies(wish, announced).filter(|_| peer.product.is_some()) {
        why = format!("{why}; if a proxy ends the connection before it, that proxy's: {proxies}");
    }
    Fix { why, ..fix }
}

/// A setting of the client, by the flag of ours.
fn client(knob: Knob, value: Option<u64>, why: &str) -> Fix {
    let wish = Wish { knob, role: Role::Client, value };
    let ours = advise(&Peer::started("h2lab"), wish);
    let setting = match knob {
        Knob::UpstreamConnections => format!("more connections ({})", ours.setting),
        _ => ours.setting,
    };
    Fix { wish: Some(wish), ..Fix::new("client", &setting, why) }
}

/// A setting of Linux.
fn kernel(knob: Knob, value: Option<u64>, why: String) -> Fix {
    let wish = Wish { knob, role: Role::Kernel, value };
    Fix { why, ..advise(&Peer::started("linux"), wish) }
}

fn congestion(figures: &ConnectionFigures) -> Vec<Fix> {
    let more = "each has a congestion window of its own";
    if super::is_opening(figures) {
        return vec![
            Fix::new("client", "one connection for several files", "the window of a kept one stays open"),
            client(Knob::UpstreamConnections, None, more),
        ];
    }
    // A short queue, or bbr, fills a path without a round trip that shows it.
    let no_gain = if figures.bandwidth.is_none() { "; no gain if the path is full already" } else { "" };
    let more = client(Knob::UpstreamConnections, None, &format!("{more}{no_gain}"));
    if figures.sender.congestion_control.as_deref() == Some("bbr") {
        return vec![more];
    }
    let why = format!("at the sender: bbr does not treat a loss as congestion{no_gain}");
    let bbr = kernel(Knob::CongestionControl, None, why);
    // The sender may be ours, whose flag needs no root.
    let wish = Wish { knob: Knob::CongestionControl, role: Role::Kernel, value: None };
    let flag = advise(&Peer::started("h2lab"), wish).setting;
    vec![Fix { setting: format!("{} ({flag} of h2lab)", bbr.setting), ..bbr }, more]
}

fn cpu(figures: &ConnectionFigures) -> Vec<Fix> {
    let is_short = figures.mean_data.is_some_and(|mean| mean <= SHORT_FRAME);
    let frames = "frames larger than 16 KiB: fewer of them for the same data";
    let frames = is_short.then(|| client(Knob::MaxFrameSize, Some(LONG_FRAME), frames));
    let connections = client(Knob::UpstreamConnections, None, "other threads share the work");
    let clear =
        Fix::new("client and server", "cleartext where permitted", "TLS costs CPU time for each byte");
    let clear = (!figures.is_clear).then_some(clear);
    frames.into_iter().chain([connections]).chain(clear).collect()
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

    /// `: twice the …`.
    fn why(&self) -> String {
        let more =
            if self.is_beyond { ", more than one connection can have: add connections too (-c)" } else { "" };
        format!(": {}{more}", self.why)
    }
}
