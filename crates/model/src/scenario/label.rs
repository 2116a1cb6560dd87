//! Labels of cells: the shortest that distinguish the cells of a group.

use std::collections::BTreeMap;

use h2lab_base::units::format_bytes;

use super::cell::Cell;
use super::setup::Change;
use crate::settings::{Peer, edit};

/// Something besides protocol and connections in which cells of a group can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Streams per connection (`-m` with several values).
    Streams,
    /// Requests after which the server ends a connection.
    Limit,
    /// What is dialled when no connection is usable.
    Dial,
    /// The settings of our client's engine (`diagnose`).
    Client,
    /// What our client does with connections and requests (`diagnose`).
    Policy,
    /// The settings of our origin's engine (`diagnose`).
    Server,
    /// What is changed in the server's configuration (`diagnose`).
    Setup,
    /// The congestion control (`diagnose`).
    Congestion,
    /// The sysctls of either side (`diagnose`).
    Sysctls,
    /// The queues of the emulated link (`diagnose`).
    Queue,
    /// The target (several URLs).
    Target,
}

impl Difference {
    /// All, in the order in labels.
    const ALL: [Self; 11] = [
        Self::Streams,
        Self::Limit,
        Self::Dial,
        Self::Client,
        Self::Policy,
        Self::Server,
        Self::Setup,
        Self::Congestion,
        Self::Sysctls,
        Self::Queue,
        Self::Target,
    ];

    /// Whether it can distinguish this cell: HTTP/1.1 has one stream, and dials for each request that waits, whatever was
    /// configured, so that these make no difference there.
    pub const fn concerns(self, cell: &Cell) -> bool {
        match self {
            Self::Streams | Self::Dial | Self::Client | Self::Server => cell.protocol.is_multiplexed(),
            Self::Limit
            | Self::Policy
            | Self::Setup
            | Self::Congestion
            | Self::Sysctls
            | Self::Queue
            | Self::Target => true,
        }
    }

    /// The text that a label adds for it.
    fn words(self, cell: &Cell) -> String {
        match self {
            Self::Streams if cell.streams == 1 => " × 1 stream".to_owned(),
            Self::Streams => format!(" × {} streams", cell.streams),
            Self::Target => format!(" at {}", cell.target.name()),
            _ => self.values(cell).into_iter().flat_map(|value| [", ".to_owned(), value]).collect(),
        }
    }

    /// Its value in `cell`, in words; empty if it is the default.
    pub fn values(self, cell: &Cell) -> Vec<String> {
        match self {
            Self::Streams => vec![cell.streams.to_string()],
            Self::Limit => vec![match cell.max_requests_per_connection {
                Some(requests) => format!("limit {requests}"),
                None => "no limit".to_owned(),
            }],
            Self::Dial => vec![cell.dial.name().to_owned()],
            Self::Client => cell.client.rendered(),
            Self::Policy => {
                let replay = (!cell.work.replay).then(|| "no replay".to_owned());
                cell.policy.rendered().into_iter().chain(replay).collect()
            }
            Self::Server => cell.server.rendered().iter().map(|value| format!("server: {value}")).collect(),
            Self::Setup => cell.setup.changes.iter().map(|change| setting(cell, change)).collect(),
            Self::Congestion => cell.congestion.iter().cloned().collect(),
            Self::Sysctls => cell.sysctls.rendered().collect(),
            Self::Queue => queues(cell),
            Self::Target => vec![cell.target.name().to_owned()],
        }
    }

    /// Its values in the cells that it concerns, each with the number of cells that have it.
    fn among(self, group: &[&Cell]) -> BTreeMap<String, usize> {
        let mut values = BTreeMap::new();
        for cell in group.iter().filter(|cell| self.concerns(cell)) {
            *values.entry(self.words(cell)).or_default() += 1;
        }
        values
    }
}

/// The queues of the emulated link whose size was given: of both directions, if they are alike.
fn queues(cell: &Cell) -> Vec<String> {
    let Some(link) = &cell.link else { return Vec::new() };
    let words =
        |which: &str, bytes: Option<u64>| bytes.map(|bytes| format!("{which}queue {}", format_bytes(bytes)));
    let (up, down) = (link.uplink.queue_bytes, link.downlink.queue_bytes);
    if up == down {
        return words("", up).into_iter().collect();
    }
    [words("uplink ", up), words("downlink ", down)].into_iter().flatten().collect()
}

/// A change of a server's configuration as its product writes it, `keepalive_requests 1000`; else what it controls.
fn setting(cell: &Cell, change: &Change) -> String {
    let words = edit::words(&Peer::started(cell.target.name()), change);
    let line = words.as_deref().and_then(|words| Some(words.split_once(": ")?.1.to_owned()));
    line.unwrap_or_else(|| format!("{} {}", change.knob, change.value.unwrap_or(1)))
}

/// What the labels of a group must name besides protocol and connections, because its cells differ in it.
///
/// The value that most cells of the group have is not named: of ten cells, one with bbr, only that one says its congestion
/// control. Labels stay distinct, as all other values are named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naming(Vec<Named>);

/// A difference that labels name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    difference: Difference,
    /// The value of more than half of the cells, which labels leave out; `None` if no value is that common.
    usual: Option<String>,
}

impl Named {
    /// Whether the label of `cell` names it.
    fn names(&self, cell: &Cell) -> bool {
        self.difference.concerns(cell) && self.usual.as_ref() != Some(&self.difference.words(cell))
    }
}

impl FromIterator<Difference> for Naming {
    fn from_iter<I: IntoIterator<Item = Difference>>(differences: I) -> Self {
        Self(differences.into_iter().map(|difference| Named { difference, usual: None }).collect())
    }
}

impl Naming {
    /// The differences among these cells, all of one group.
    pub fn of(group: &[&Cell]) -> Self {
        let named = Difference::ALL.into_iter().filter_map(|difference| {
            let values = difference.among(group);
            let cells: usize = values.values().sum();
            // A default has no words: if a cell has the default, the labels of the others must name their values.
            let has_default = values.contains_key("");
            let usual = values.iter().find(|(_, count)| !has_default && **count * 2 > cells);
            let usual = usual.map(|(words, _)| words.clone());
            (values.len() > 1).then_some(Named { difference, usual })
        });
        Self(named.collect())
    }

    /// The same for each group of a plan or of a run.
    pub fn by_group<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> BTreeMap<u32, Self> {
        let mut groups: BTreeMap<u32, Vec<&Cell>> = BTreeMap::new();
        for cell in cells {
            groups.entry(cell.group).or_default().push(cell);
        }
        groups.into_iter().map(|(group, cells)| (group, Self::of(&cells))).collect()
    }

    /// Whether `cell` must be distinguished from others of its group by this.
    pub fn distinguishes(&self, difference: Difference, cell: &Cell) -> bool {
        self.0.iter().any(|named| named.difference == difference && named.names(cell))
    }

    /// The label of `cell` in its group: `h1`, `h2c × 4`, `h2c × 4 × 10 streams at http://service:8080/`, `h2 × 1, limit 1000,
    /// stampede`.
    pub fn label(&self, cell: &Cell) -> String {
        cell.label() + &self.rendered(cell)
    }

    /// The label shared by `cell` and those that differ from it only in connections: `h2c`, `h2, limit 1000`.
    pub fn kind(&self, cell: &Cell) -> String {
        cell.spoken() + &self.rendered(cell)
    }

    /// The part after the protocol and its connections.
    fn rendered(&self, cell: &Cell) -> String {
        let rendered = self.0.iter().filter(|named| named.names(cell));
        rendered.map(|named| named.difference.words(cell)).collect()
    }
}

/// The label of each cell of a plan or of a run, by the cell's index. Labels are distinct within a group.
pub fn labels<'a>(cells: impl IntoIterator<Item = &'a Cell> + Clone) -> BTreeMap<u32, String> {
    let groups = Naming::by_group(cells.clone());
    cells.into_iter().map(|cell| (cell.index, groups[&cell.group].label(cell))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn called(matrix: &str) -> Vec<String> {
        let scenario =
            Scenario::from_toml(&format!("repetitions = 1\n[link]\nloss = ['0%', '3%']\n[matrix]\n{matrix}"));
        labels(&scenario.unwrap().plan()).into_values().collect()
    }

    #[test]
    fn targets_are_named_only_where_a_group_has_several() {
        let live = |url: &str| format!("[[matrix.live]]\nurl = '{url}'\npath = '/'\nprotocols = 'h1'\n");
        let (a, b) = (live("http://a/"), live("http://b/"));
        assert_eq!(called(&format!("{a}{b}")), ["h1 at http://a/", "h1 at http://b/"]);
        assert_eq!(called(&a), ["h1"]);
        let servers = called("origin = ['origin', 'nginx']\nprotocols = 'h1'");
        assert_eq!(
            servers,
            ["h1", "h1", "h1", "h1"],
            "two losses at two servers: groups, which have headings"
        );
    }

    #[test]
    fn streams_are_named_only_where_they_differ_and_never_of_http1() {
        let rendered = ["h1", "h2c × 4", "h1", "h2c × 4"];
        assert_eq!(called("connections = 4\nstreams = 10"), rendered);
        let group = ["h1", "h2c × 4 × 1 stream", "h2c × 4 × 10 streams"];
        assert_eq!(called("connections = 4\nstreams = [1, 10]"), [group, group].concat());
    }

    #[test]
    fn cells_of_a_group_that_differ_in_anything_have_different_labels() {
        use crate::experiment::Knob;
        use crate::record::testing::cell;
        use crate::workload::Protocol;

        let mut odd = cell(1, 0, Protocol::H2c, 1, 0.0);
        odd.policy.reconnect_every = Some(7);
        odd.policy.no_tls_resumption = true;
        odd.work.replay = false;
        odd.server.no_coalesce = true;
        odd.max_requests_per_connection = Some(9);
        odd.work.body_bytes = 1 << 20;
        let downlink = &mut odd.link.as_mut().expect("a link").downlink;
        (downlink.bandwidth, downlink.queue_bytes) = ("20mbit".parse().ok(), Some(10_000));
        let mut cells = vec![cell(0, 0, Protocol::H1, 1, 0.0), odd.clone()];
        cells.extend((2..).zip(Knob::of(&odd)).map(|(index, knob)| Cell { index, ..knob.apply(&odd) }));
        let labels = labels(&cells);
        let distinct: std::collections::BTreeSet<&String> = labels.values().collect();
        assert!(cells.len() > 8 && distinct.len() == cells.len(), "{labels:#?}");
        let has = |words: &str| labels.values().any(|label| label.contains(words));
        for words in [
            ", bbr",
            "tcp_slow_start_after_idle=0",
            ", frames up to 64 KiB",
            "reconnects every 7 requests",
            ", downlink queue 61.04 KiB",
        ] {
            assert!(has(words), "{words}: {labels:#?}");
        }
    }

    #[test]
    fn a_value_that_most_cells_have_is_not_named() {
        use crate::record::testing::cell;
        use crate::workload::Protocol;

        let with = |index, congestion: &str| Cell {
            congestion: Some(congestion.to_owned()),
            ..cell(index, 0, if index == 0 { Protocol::H1 } else { Protocol::H2c }, 1, 0.0)
        };
        let called = |cells: &[Cell]| labels(cells).into_values().collect::<Vec<_>>();
        let cells = [with(0, "cubic"), with(1, "cubic"), with(2, "bbr")];
        assert_eq!(called(&cells), ["h1", "h2c × 1", "h2c × 1, bbr"]);
        let halves = [with(0, "cubic"), with(1, "bbr")];
        assert_eq!(called(&halves), ["h1, cubic", "h2c × 1, bbr"], "no value that most have");
    }

    #[test]
    fn limits_and_dial_policies_are_named_only_where_they_differ() {
        let rendered = ["h1", "h2c × 1", "h1", "h2c × 1"];
        assert_eq!(called("max-requests-per-connection = 1000\ndial-policy = 'stampede'"), rendered);
        let group = [
            "h1, no limit",
            "h1, limit 1000",
            "h2c × 1, no limit, single-flight",
            "h2c × 1, limit 1000, single-flight",
            "h2c × 1, no limit, stampede",
            "h2c × 1, limit 1000, stampede",
        ];
        let both =
            "max-requests-per-connection = ['unlimited', 1000]\ndial-policy = 'single-flight,stampede'";
        assert_eq!(called(both), [group, group].concat());
    }
}
