//! Experiments: the same cell with one setting changed and nothing else, which shows what that setting costs or gains.

#[cfg(test)]
mod tests;

use std::time::Duration;

use h2lab_base::counters::INITIAL_WINDOW;
use h2lab_base::units::format_bytes;
use h2lab_link::{Impairment, LossModel};

use crate::scenario::{Cell, Change, Target};
use crate::workload::engine::LEAST_WINDOW;
use crate::workload::{ClientPolicy, DialPolicy, EngineSettings, Protocol};

/// The stream window that no path needs to exceed in an experiment: 1.3 Gbit/s over a round trip of 100 ms.
pub const LARGE_WINDOW: u32 = 16 << 20;
/// Frames of four times the least that RFC 9113 §4.2 demands: longer ones gain nothing (docs/bulk.md).
const LARGE_FRAME: u32 = 64 << 10;
/// As many streams as RFC 9113 §6.5.2 recommends that a server allows at least.
const MANY_STREAMS: u32 = 100;
/// Whether an idle connection's congestion window is reset to that of a new connection (tcp(7)).
const RESTART: &str = "net.ipv4.tcp_slow_start_after_idle";
/// Connections that a live server is never asked to exceed.
const MOST_CONNECTIONS: u32 = 16;
/// What our client announces for a connection by itself: no sum of stream windows here exceeds it.
const LARGE_CONNECTION_WINDOW: u32 = 1 << 30;

/// A setting that an experiment changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knob {
    /// This many connections.
    Connections(u32),
    /// The server ends no connection after some number of requests.
    NoRequestLimit,
    /// Receive windows of our client that no path here fills.
    LargeWindows,
    /// A window of our client for the whole connection that its streams do not fill; theirs stay as they are.
    LargeConnectionWindow,
    /// Our client returns credit at its default times.
    DefaultCredit,
    /// Our client accepts long frames.
    LongFrames,
    /// Our client and our origin join frames in a write.
    JoinedWrites,
    /// Our client dials one connection for all that wait.
    SingleFlight,
    /// Our client keeps its connections.
    KeptConnections,
    /// Our client resumes TLS sessions.
    TlsResumption,
    /// Our client allows itself many streams on a connection.
    ManyStreams,
    /// Our client begins no request before the server's SETTINGS.
    AwaitedSettings,
    /// Our client's keep-alive PINGs are off.
    NoKeepAlive,
    /// Our client waits for each response.
    NoCancellation,
    /// Our client sends requests again that the server did not process.
    Replay,
    /// The header encoders of our client and our origin use the table that the other end allows.
    HeaderTable,
    /// The same encoders use the Huffman code.
    Huffman,
    /// Our client acknowledges over TCP at once.
    QuickAcks,
    /// Pushes are refused.
    NoPush,
    /// Receive windows of our origin that no path here fills.
    LargeServerWindows,
    /// This congestion control at both ends.
    Congestion(String),
    /// The emulated link's queues hold what passes in a round trip.
    LongQueue,
    /// The emulated link loses no packet at random: what its loss costs a client that is not ours.
    NoLoss,
    /// Our origin accepts HTTP/1.1 alone over TLS: what a client that is not ours makes of it, if it follows ALPN.
    Http1,
    /// Connections keep their congestion windows while they are idle.
    KeptCongestionWindow,
    /// A setting of the server that we started.
    Server(ServerSetting),
}

/// A setting of a server, as its product writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSetting {
    /// What is changed.
    pub change: Change,
    /// The product and the line: `nginx: keepalive_requests 100000;`.
    pub words: String,
    /// The ids of the causes that it removes.
    pub causes: Vec<String>,
}

impl Knob {
    /// The settings that change something of `cell`.
    pub fn of(cell: &Cell) -> Vec<Self> {
        Self::all(cell).into_iter().filter(|knob| knob.apply(cell) != *cell).collect()
    }

    /// The settings that change something of `cell` for a client that is not ours: of our origin, of the link, and of the
    /// kernels at its ends.
    pub fn of_our_end(cell: &Cell) -> Vec<Self> {
        let all = [
            Self::NoRequestLimit,
            Self::TlsResumption,
            Self::LargeServerWindows,
            Self::NoLoss,
            Self::other_congestion(cell),
            Self::LongQueue,
            Self::KeptCongestionWindow,
            Self::Http1,
        ];
        all.into_iter().filter(|knob| knob.apply(cell) != *cell).collect()
    }

    fn other_congestion(cell: &Cell) -> Self {
        let other = if cell.congestion.as_deref() == Some("bbr") { "cubic" } else { "bbr" };
        Self::Congestion(other.to_owned())
    }

    /// All settings, with the values for `cell`, besides those of servers.
    fn all(cell: &Cell) -> Vec<Self> {
        let connections = if cell.connections < 4 { 4 } else { MOST_CONNECTIONS };
        vec![
            Self::Connections(connections.max(cell.connections)),
            Self::NoRequestLimit,
            Self::LargeWindows,
            Self::LargeConnectionWindow,
            Self::DefaultCredit,
            Self::LongFrames,
            Self::JoinedWrites,
            Self::SingleFlight,
            Self::KeptConnections,
            Self::TlsResumption,
            Self::ManyStreams,
            Self::AwaitedSettings,
            Self::NoKeepAlive,
            Self::NoCancellation,
            Self::Replay,
            Self::HeaderTable,
            Self::Huffman,
            Self::QuickAcks,
            Self::NoPush,
            Self::LargeServerWindows,
            Self::other_congestion(cell),
            Self::LongQueue,
            Self::KeptCongestionWindow,
        ]
    }

    /// Whether it is worth a try only where a finding names a cause of it: every cell could be changed so, and each change
    /// takes time from the others and widens their intervals.
    pub const fn needs_finding(&self) -> bool {
        matches!(self, Self::AwaitedSettings | Self::QuickAcks)
    }

    /// Whether it can make a difference where responses have `bytes` on average: what fits a window or a frame anyway needs no
    /// larger one.
    pub fn concerns(&self, bytes: f64) -> bool {
        match self {
            Self::LargeWindows => bytes > f64::from(LEAST_WINDOW) / 2.0,
            Self::LongFrames => bytes > f64::from(LARGE_FRAME) / 4.0,
            _ => true,
        }
    }

    /// `cell` with this setting, and nothing else changed. A setting that does not concern it leaves it as it is.
    pub fn apply(&self, cell: &Cell) -> Cell {
        let mut changed = cell.clone();
        match self {
            Self::Connections(count) => (changed.connections, changed.max_connections) = (*count, *count),
            Self::NoRequestLimit => changed.max_requests_per_connection = None,
            Self::SingleFlight => changed.dial = DialPolicy::SingleFlight,
            Self::KeptConnections => {
                changed.policy = ClientPolicy { reconnect_every: None, pool_size: None, ..changed.policy };
            }
            Self::TlsResumption => changed.policy.no_tls_resumption = false,
            Self::ManyStreams => changed.streams = changed.streams.max(MANY_STREAMS),
            // QUIC has neither: its handshake brings the limit of streams, and its acknowledgements are quinn's.
            Self::AwaitedSettings => changed.client.await_settings |= !changed.protocol.is_quic(),
            Self::QuickAcks => changed.policy.quick_acks |= !changed.protocol.is_quic(),
            Self::NoCancellation => changed.policy.cancel_after = None,
            Self::Replay => changed.work.replay = true,
            Self::LargeServerWindows
                // The origin has our flags for these windows in bulk work, and where some were asked for; those of other
                // servers are settings (`Server`).
                if changed.target == Target::Origin
                    && (changed.server.stream_window.is_some()
                        || changed.work.bulk && changed.work.body_length() > u64::from(LEAST_WINDOW))
                    && (is_below(changed.server.stream_window, LARGE_WINDOW)
                        || changed.server.connection_window.is_some_and(|size| size < LARGE_WINDOW)) =>
            {
                changed.server = EngineSettings {
                    stream_window: Some(LARGE_WINDOW),
                    connection_window: Some(LARGE_WINDOW),
                    ..changed.server
                };
            }
            // Over a live network only one of the ends is ours.
            Self::Congestion(name) if changed.link.is_some() && changed.congestion.is_some() => {
                changed.congestion = Some(name.clone());
            }
            Self::LongQueue => {
                if let Some(link) = &mut changed.link {
                    let rtt = link.rtt();
                    lengthen(&mut link.uplink, rtt);
                    lengthen(&mut link.downlink, rtt);
                }
            }
            Self::Http1 if changed.protocol == Protocol::H2 => changed.protocol = Protocol::H1s,
            Self::NoLoss => {
                if let Some(link) = &mut changed.link {
                    (link.uplink.loss, link.downlink.loss) = (LossModel::None, LossModel::None);
                }
            }
            Self::Server(setting) => {
                let own = &mut changed.setup.changes;
                own.retain(|change| change.knob != setting.change.knob);
                own.push(setting.change.clone());
            }
            // The same applies here. Only request bodies count: responses of the servers that we start fit into the
            // first round trip.
            Self::KeptCongestionWindow
                if changed.link.is_some() && changed.work.body_length() > u64::from(INITIAL_WINDOW) =>
            {
                changed.sysctls.client.insert(RESTART.to_owned(), "0".to_owned());
            }
            _ => self.apply_to_engines(&mut changed.client, &mut changed.server),
        }
        changed
    }

    /// The settings of our client's and our origin's engine.
    fn apply_to_engines(&self, client: &mut EngineSettings, server: &mut EngineSettings) {
        match self {
            Self::LargeWindows if is_below(client.stream_window, LARGE_WINDOW) => {
                *client = EngineSettings {
                    stream_window: Some(LARGE_WINDOW),
                    connection_window: None,
                    auto_window: None,
                    window_budget: None,
                    ..*client
                };
            }
            // By default it is as large.
            Self::LargeConnectionWindow
                if client.connection_window.is_some()
                    && is_below(client.connection_window, LARGE_CONNECTION_WINDOW) =>
            {
                client.connection_window = Some(LARGE_CONNECTION_WINDOW);
            }
            Self::DefaultCredit => {
                (client.window_update_threshold, client.window_update_bytes) = (None, None);
            }
            Self::LongFrames if is_below(client.max_frame_size, LARGE_FRAME) => {
                client.max_frame_size = Some(LARGE_FRAME);
            }
            Self::JoinedWrites => (client.no_coalesce, server.no_coalesce) = (false, false),
            Self::NoKeepAlive => client.keep_alive = None,
            Self::HeaderTable => {
                (client.encoder_header_table_size, server.encoder_header_table_size) = (None, None);
            }
            Self::Huffman => (client.no_huffman, server.no_huffman) = (false, false),
            Self::NoPush => client.push = false,
            _ => {}
        }
    }

    /// What is changed, in words: `4 connections`.
    pub fn words(&self) -> String {
        match self {
            Self::Connections(count) => format!("{count} connections"),
            Self::NoRequestLimit => "no limit of requests per connection".to_owned(),
            Self::LargeWindows => {
                format!("a client's stream window of {}", format_bytes(LARGE_WINDOW.into()))
            }
            Self::LargeConnectionWindow => {
                format!("a client's connection window of {}", format_bytes(LARGE_CONNECTION_WINDOW.into()))
            }
            Self::DefaultCredit => "credit at half of a window".to_owned(),
            Self::LongFrames => format!("frames up to {}", format_bytes(LARGE_FRAME.into())),
            Self::JoinedWrites => "several frames in a write".to_owned(),
            Self::SingleFlight => "one dial for all that wait".to_owned(),
            Self::KeptConnections => "connections are kept".to_owned(),
            Self::TlsResumption => "TLS sessions are resumed".to_owned(),
            Self::ManyStreams => format!("{MANY_STREAMS} streams on a connection"),
            Self::AwaitedSettings => "no request before the server's SETTINGS".to_owned(),
            Self::NoKeepAlive => "no keep-alive PINGs".to_owned(),
            Self::NoCancellation => "no cancelled requests".to_owned(),
            Self::Replay => "unprocessed requests are sent again".to_owned(),
            Self::HeaderTable => "the header table that the other end allows".to_owned(),
            Self::Huffman => "the Huffman code in header fields".to_owned(),
            Self::QuickAcks => "acknowledgements at once".to_owned(),
            Self::NoPush => "no push".to_owned(),
            Self::LargeServerWindows => {
                format!("a server's stream window of {}", format_bytes(LARGE_WINDOW.into()))
            }
            Self::Congestion(name) => format!("congestion control {name}"),
            Self::LongQueue => "a queue that holds what passes in a round trip".to_owned(),
            Self::NoLoss => "a link that loses nothing".to_owned(),
            Self::Http1 => "HTTP/1.1 by ALPN".to_owned(),
            Self::Server(setting) => setting.words.clone(),
            Self::KeptCongestionWindow => "congestion windows are kept while idle".to_owned(),
        }
    }

    /// The flags of `compare` that set it, to repeat the experiment; `None` where a flag of the command must go instead
    /// ([`Knob::set_back`]), or where no flag sets it.
    pub fn flags(&self) -> Option<String> {
        match self {
            Self::Connections(count) => Some(format!("-c {count}")),
            Self::NoRequestLimit => Some("--max-requests-per-connection unlimited".to_owned()),
            Self::LargeWindows => Some(format!("-w {LARGE_WINDOW}")),
            Self::LargeConnectionWindow => Some(format!("-W {LARGE_CONNECTION_WINDOW}")),
            Self::LongFrames => Some(format!("-f {LARGE_FRAME}")),
            Self::ManyStreams => Some(format!("-m {MANY_STREAMS}")),
            Self::AwaitedSettings => Some("--await-settings".to_owned()),
            Self::QuickAcks => Some("--quick-acks".to_owned()),
            Self::SingleFlight => Some(format!("--dial-policy {}", DialPolicy::SingleFlight.name())),
            Self::Congestion(name) => Some(format!("--congestion {name}")),
            Self::KeptCongestionWindow => Some(format!("--sysctl-client {RESTART}=0")),
            Self::NoLoss => Some("--loss 0%".to_owned()),
            Self::Http1 => Some("--proto h1s".to_owned()),
            Self::DefaultCredit
            | Self::JoinedWrites
            | Self::KeptConnections
            | Self::TlsResumption
            | Self::NoKeepAlive
            | Self::NoCancellation
            | Self::Replay
            | Self::HeaderTable
            | Self::Huffman
            | Self::NoPush
            | Self::LargeServerWindows
            | Self::LongQueue
            | Self::Server(_) => None,
        }
    }

    /// The flags that set what it sets back: without them, and with [`Knob::flags`], a command repeats the experiment. Each has
    /// its value, if it must have one, behind it: `--keep-alive TIME`.
    pub const fn set_back(&self) -> &'static [&'static str] {
        match self {
            Self::LargeWindows => &["--connection-window SIZE", "--auto-window", "--window-budget SIZE"],
            Self::DefaultCredit => &["--window-update-threshold PERCENT", "--window-update-bytes SIZE"],
            Self::JoinedWrites => &["--no-coalesce"],
            Self::KeptConnections => &["--reconnect-every N", "--pool-size N"],
            Self::TlsResumption => &["--no-tls-resumption"],
            Self::NoKeepAlive => &["--keep-alive TIME"],
            Self::NoCancellation => &["--cancel-after TIME"],
            Self::Replay => &["--no-replay"],
            Self::HeaderTable => &["--encoder-header-table-size SIZE"],
            Self::Huffman => &["--no-huffman"],
            Self::NoPush => &["--push"],
            _ => &[],
        }
    }

    /// The ids of the causes that it removes.
    pub fn causes(&self) -> Vec<&str> {
        let ids: &[&'static str] = match self {
            Self::Connections(_) => &[
                "LOSS101", "LOSS102", "LOSS105", "FLOW103", "FLOW112", "MUX101", "MUX102", "MUX103",
                "MUX105", "HOST105",
            ],
            Self::NoRequestLimit => &["CONN101", "CONN103"],
            Self::LargeWindows => &["FLOW101", "FLOW103", "FLOW104", "FLOW106"],
            Self::LargeConnectionWindow => &["FLOW103", "FLOW108"],
            Self::DefaultCredit => &["FLOW105", "FLOW106"],
            Self::LongFrames => &["FRAME102"],
            Self::JoinedWrites => &["FRAME103"],
            Self::SingleFlight => &["CONN104"],
            Self::KeptConnections | Self::ManyStreams => &["CONN107"],
            Self::AwaitedSettings => &["CONN102"],
            Self::NoKeepAlive => &["LIMIT101"],
            Self::NoCancellation => &["LIMIT102", "FLOW109"],
            Self::Replay => &["CONN103", "CONN110"],
            Self::HeaderTable | Self::Huffman => &["HPACK101"],
            Self::QuickAcks => &["LOSS104"],
            Self::NoPush => &["MUX107"],
            Self::LargeServerWindows => &["FLOW102", "FLOW103", "FLOW112"],
            Self::Congestion(_) => &["LOSS102"],
            Self::LongQueue => &["LOSS106"],
            Self::NoLoss | Self::Http1 => &["LOSS101", "LOSS102"],
            Self::KeptCongestionWindow => &["LOSS103"],
            Self::TlsResumption => &["CONN111"],
            Self::Server(setting) => return setting.causes.iter().map(String::as_str).collect(),
        };
        ids.to_vec()
    }
}

/// Whether a size is below `large`; one that is not set counts as small.
fn is_below(size: Option<u32>, large: u32) -> bool {
    size.is_none_or(|size| size < large)
}

/// Makes the queue of a direction hold what passes in a round trip, if it is shorter.
fn lengthen(direction: &mut Impairment, rtt: Duration) {
    let product = direction.bandwidth_delay_product(rtt);
    if let Some(product) = product.filter(|product| direction.queue_limit() < *product) {
        direction.queue_bytes = Some(product);
    }
}
