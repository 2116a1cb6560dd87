//! Experiments: the same cell with one setting changed and nothing else, which shows what that setting costs or gains.

use h2lab_base::counters::INITIAL_WINDOW;
use h2lab_base::units::format_bytes;

use crate::scenario::{Cell, Change, Target};
use crate::workload::engine::LEAST_WINDOW;
use crate::workload::{ClientPolicy, DialPolicy, EngineSettings};

/// The stream window that no path needs to exceed in an experiment: 1.3 Gbit/s over a round trip of 100 ms.
const LARGE_WINDOW: u32 = 16 << 20;
/// Frames of four times the least that RFC 9113 §4.2 demands: longer ones gain nothing (docs/bulk.md).
const LARGE_FRAME: u32 = 64 << 10;
/// As many streams as RFC 9113 §6.5.2 recommends that a server allows at least.
const MANY_STREAMS: u32 = 100;
/// Whether an idle connection's congestion window is reset to that of a new connection (tcp(7)).
const RESTART: &str = "net.ipv4.tcp_slow_start_after_idle";
/// Connections that a live server is never asked to exceed.
const MOST_CONNECTIONS: u32 = 16;

/// A setting that an experiment changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knob {
    /// This many connections.
    Connections(u32),
    /// The server ends no connection after some number of requests.
    NoRequestLimit,
    /// Receive windows of our client that no path here fills.
    LargeWindows,
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
    /// Pushes are refused.
    NoPush,
    /// Receive windows of our origin that no path here fills.
    LargeServerWindows,
    /// This congestion control at both ends.
    Congestion(String),
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
        let connections = if cell.connections < 4 { 4 } else { MOST_CONNECTIONS };
        let congestion = if cell.congestion.as_deref() == Some("bbr") { "cubic" } else { "bbr" };
        let all = [
            Self::Connections(connections.max(cell.connections)),
            Self::NoRequestLimit,
            Self::LargeWindows,
            Self::DefaultCredit,
            Self::LongFrames,
            Self::JoinedWrites,
            Self::SingleFlight,
            Self::KeptConnections,
            Self::TlsResumption,
            Self::ManyStreams,
            Self::NoPush,
            Self::LargeServerWindows,
            Self::Congestion(congestion.to_owned()),
            Self::KeptCongestionWindow,
        ];
        all.into_iter().filter(|knob| knob.apply(cell) != *cell).collect()
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
        let client = &mut changed.client;
        match self {
            Self::Connections(count) => (changed.connections, changed.max_connections) = (*count, *count),
            Self::NoRequestLimit => changed.max_requests_per_connection = None,
            Self::LargeWindows if client.stream_window.is_none_or(|window| window < LARGE_WINDOW) => {
                *client = EngineSettings {
                    stream_window: Some(LARGE_WINDOW),
                    connection_window: None,
                    auto_window: None,
                    window_budget: None,
                    ..*client
                };
            }
            Self::DefaultCredit => {
                (client.window_update_threshold, client.window_update_bytes) = (None, None);
            }
            Self::LongFrames if client.max_frame_size.is_none_or(|size| size < LARGE_FRAME) => {
                client.max_frame_size = Some(LARGE_FRAME);
            }
            Self::JoinedWrites => {
                (client.no_coalesce, changed.server.no_coalesce) = (false, false);
            }
            Self::SingleFlight => changed.dial = DialPolicy::SingleFlight,
            Self::KeptConnections => {
                changed.policy = ClientPolicy { reconnect_every: None, pool_size: None, ..changed.policy };
            }
            Self::TlsResumption => changed.policy.no_tls_resumption = false,
            Self::ManyStreams => changed.streams = changed.streams.max(MANY_STREAMS),
            Self::NoPush => client.push = false,
            Self::LargeServerWindows
                // Only the origin of bulk work has our flags for these windows; those of other servers are settings
                // (`Server`).
                if changed.target == Target::Origin
                    && changed.work.bulk
                    && changed.work.body_length() > u64::from(LEAST_WINDOW)
                    && changed.server.stream_window.is_none_or(|window| window < LARGE_WINDOW) =>
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
            Self::LargeWindows
            | Self::LongFrames
            | Self::LargeServerWindows
            | Self::Congestion(_)
            | Self::KeptCongestionWindow => {}
        }
        changed
    }

    /// What is changed, in words: `4 connections`.
    pub fn words(&self) -> String {
        match self {
            Self::Connections(count) => format!("{count} connections"),
            Self::NoRequestLimit => "no limit of requests per connection".to_owned(),
            Self::LargeWindows => {
                format!("a client's stream window of {}", format_bytes(LARGE_WINDOW.into()))
            }
            Self::DefaultCredit => "credit at half of a window".to_owned(),
            Self::LongFrames => format!("frames up to {}", format_bytes(LARGE_FRAME.into())),
            Self::JoinedWrites => "several frames in a write".to_owned(),
            Self::SingleFlight => "one dial for all that wait".to_owned(),
            Self::KeptConnections => "connections are kept".to_owned(),
            Self::TlsResumption => "TLS sessions are resumed".to_owned(),
            Self::ManyStreams => format!("{MANY_STREAMS} streams on a connection"),
            Self::NoPush => "no push".to_owned(),
            Self::LargeServerWindows => {
                format!("a server's stream window of {}", format_bytes(LARGE_WINDOW.into()))
            }
            Self::Congestion(name) => format!("congestion control {name}"),
            Self::Server(setting) => setting.words.clone(),
            Self::KeptCongestionWindow => "congestion windows are kept while idle".to_owned(),
        }
    }

    /// The flags of `compare` that set it, to repeat the experiment; `None` where a flag of the command must go instead, or where
    /// no flag sets it.
    pub fn flags(&self) -> Option<String> {
        match self {
            Self::Connections(count) => Some(format!("-c {count}")),
            Self::NoRequestLimit => Some("--max-requests-per-connection unlimited".to_owned()),
            Self::LargeWindows => Some(format!("-w {LARGE_WINDOW}")),
            Self::LongFrames => Some(format!("-f {LARGE_FRAME}")),
            Self::ManyStreams => Some(format!("-m {MANY_STREAMS}")),
            Self::SingleFlight => Some(format!("--dial-policy {}", DialPolicy::SingleFlight.name())),
            Self::Congestion(name) => Some(format!("--congestion {name}")),
            Self::KeptCongestionWindow => Some(format!("--sysctl-client {RESTART}=0")),
            Self::DefaultCredit
            | Self::JoinedWrites
            | Self::KeptConnections
            | Self::TlsResumption
            | Self::NoPush
            | Self::LargeServerWindows
            | Self::Server(_) => None,
        }
    }

    /// The ids of the causes that it removes.
    pub fn causes(&self) -> Vec<&str> {
        let ids: &[&'static str] = match self {
            Self::Connections(_) => &[
                "LOSS101", "LOSS102", "LOSS105", "FLOW103", "MUX101", "MUX102", "MUX103", "MUX105", "HOST105",
            ],
            Self::NoRequestLimit => &["CONN101"],
            Self::LargeWindows => &["FLOW101", "FLOW103", "FLOW104", "FLOW106"],
            Self::DefaultCredit => &["FLOW105", "FLOW106"],
            Self::LongFrames => &["FRAME102"],
            Self::JoinedWrites => &["FRAME103"],
            Self::SingleFlight => &["CONN104"],
            Self::KeptConnections | Self::ManyStreams => &["CONN107"],
            Self::NoPush => &["MUX107"],
            Self::LargeServerWindows => &["FLOW102", "FLOW103"],
            Self::Congestion(_) => &["LOSS102"],
            Self::KeptCongestionWindow => &["LOSS103"],
            Self::TlsResumption => &["CONN111"],
            Self::Server(setting) => return setting.causes.iter().map(String::as_str).collect(),
        };
        ids.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::cell;
    use crate::settings::Knob as Setting;
    use crate::workload::Protocol;

    #[test]
    fn a_knob_changes_one_setting_and_those_that_change_nothing_are_left_out() {
        let plain = cell(0, 0, Protocol::H2c, 1, 0.0);
        let knobs = Knob::of(&plain);
        assert!(knobs.contains(&Knob::Connections(4)), "{knobs:?}");
        assert!(!knobs.contains(&Knob::NoRequestLimit), "there is none");
        assert!(
            !knobs.contains(&Knob::ManyStreams)
                && !knobs.contains(&Knob::JoinedWrites)
                && !knobs.contains(&Knob::SingleFlight)
        );
        for knob in &knobs {
            let changed = knob.apply(&plain);
            assert_ne!(changed, plain, "{knob:?}");
            assert_eq!(knob.apply(&changed), changed, "{knob:?} twice");
            assert!(!Knob::of(&changed).contains(knob), "{knob:?}");
        }
    }

    #[test]
    fn what_the_user_set_is_set_back() {
        let mut odd = cell(0, 0, Protocol::H2c, 16, 0.0);
        odd.max_requests_per_connection = Some(100);
        odd.dial = DialPolicy::Stampede;
        odd.client.no_coalesce = true;
        odd.client.window_update_bytes = Some(1);
        odd.client.stream_window = Some(65_535);
        odd.policy.reconnect_every = Some(1);
        odd.policy.no_tls_resumption = true;
        odd.streams = 1;
        let knobs = Knob::of(&odd);
        for knob in [
            Knob::NoRequestLimit,
            Knob::SingleFlight,
            Knob::JoinedWrites,
            Knob::DefaultCredit,
            Knob::LargeWindows,
            Knob::KeptConnections,
            Knob::TlsResumption,
            Knob::ManyStreams,
        ] {
            assert!(knobs.contains(&knob), "{knob:?} of {knobs:?}");
        }
        assert!(!knobs.iter().any(|knob| matches!(knob, Knob::Connections(_))), "16 are the most");
        let windows = Knob::LargeWindows.apply(&odd);
        assert_eq!(windows.client.window_update_bytes, Some(1), "that is another knob");
    }

    #[test]
    fn a_setting_of_the_server_replaces_another_value_of_the_same_and_nothing_else() {
        let knob = |knob, value| {
            let change = Change { knob, value: Some(value) };
            Knob::Server(ServerSetting { change, words: "x".to_owned(), causes: vec!["CONN101".to_owned()] })
        };
        let plain = cell(0, 0, Protocol::H2c, 1, 0.0);
        let once = knob(Setting::H2Requests, 7).apply(&plain);
        let twice = knob(Setting::H2Requests, 9).apply(&knob(Setting::Push, 1).apply(&once));
        let values: Vec<Option<u64>> = twice.setup.changes.iter().map(|change| change.value).collect();
        assert_eq!(values, [Some(1), Some(9)]);
        assert_eq!(Cell { setup: plain.setup.clone(), ..once }, plain);
        assert_eq!(knob(Setting::Push, 1).causes(), ["CONN101"]);
    }

    #[test]
    fn congestion_windows_are_kept_where_bodies_need_more_than_a_new_connection_sends_at_once() {
        let mut upload = cell(0, 0, Protocol::H2c, 1, 0.0);
        let is_tried = |cell: &Cell| Knob::of(cell).contains(&Knob::KeptCongestionWindow);
        upload.work.body_bytes = INITIAL_WINDOW.into();
        assert!(!is_tried(&upload));
        upload.work.body_bytes += 1;
        assert!(is_tried(&upload));
        upload.link = None;
        assert!(!is_tried(&upload), "the kernel of a live network is the user's");
    }

    #[test]
    fn knobs_say_in_words_and_flags_what_they_set() {
        assert_eq!(Knob::Connections(4).words(), "4 connections");
        assert_eq!(Knob::Connections(4).flags().as_deref(), Some("-c 4"));
        assert_eq!(Knob::LargeWindows.words(), "a client's stream window of 16 MiB");
    }
}
