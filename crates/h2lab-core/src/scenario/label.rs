//! What cells are called: as shortly as tells each from the others of its group.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::cell::Cell;

/// What the labels of a group must name besides protocol and connections, because its cells differ in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Naming {
    /// Streams per connection (`-m` with several values).
    pub streams: bool,
    /// Requests after which the server ends a connection.
    pub limit: bool,
    /// What is dialled when no connection is usable.
    pub dial: bool,
    /// The target (several URLs).
    pub target: bool,
}

impl Naming {
    /// What tells these cells, all of one group, from each other.
    pub fn of<'a>(group: impl IntoIterator<Item = &'a Cell>) -> Self {
        let (mut naming, mut streams, mut target) = (Self::default(), None, None);
        let (mut limit, mut dial) = (None, None);
        for cell in group {
            naming.target |= *target.get_or_insert(&cell.target) != &cell.target;
            let requests = cell.max_requests_per_connection;
            naming.limit |= *limit.get_or_insert(requests) != requests;
            // HTTP/1.1 has one stream, and dials for each that waits, whatever was asked for: no difference that a user
            // made.
            if cell.protocol.is_multiplexed() {
                naming.streams |= *streams.get_or_insert(cell.streams) != cell.streams;
                naming.dial |= *dial.get_or_insert(cell.policy.dial) != cell.policy.dial;
            }
        }
        naming
    }

    /// The same for each group of a plan or of a run.
    pub fn by_group<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> BTreeMap<u32, Self> {
        let mut groups: BTreeMap<u32, Vec<&Cell>> = BTreeMap::new();
        for cell in cells {
            groups.entry(cell.group).or_default().push(cell);
        }
        groups.into_iter().map(|(group, cells)| (group, Self::of(cells))).collect()
    }

    /// What `cell` is called in its group: `h1`, `h2c × 4`, `h2c × 4 × 10 streams at http://service:8080/`,
    /// `h2 × 1, limit 1000, stampede`.
    pub fn label(self, cell: &Cell) -> String {
        let mut label = cell.label();
        if self.streams && cell.protocol.is_multiplexed() {
            let plural = if cell.streams == 1 { "" } else { "s" };
            let _ = write!(label, " × {} stream{plural}", cell.streams);
        }
        if self.limit {
            let _ = match cell.max_requests_per_connection {
                Some(requests) => write!(label, ", limit {requests}"),
                None => write!(label, ", no limit"),
            };
        }
        if self.dial && cell.protocol.is_multiplexed() {
            let _ = write!(label, ", {}", cell.policy.dial.name());
        }
        if self.target {
            let _ = write!(label, " at {}", cell.target.name());
        }
        label
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
            Scenario::from_toml(&format!("visits = 1\n[link]\nloss = ['0%', '3%']\n[matrix]\n{matrix}"));
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
        let told = ["h1", "h2c × 4", "h1", "h2c × 4"];
        assert_eq!(called("connections = 4\nstreams = 10"), told);
        let group = ["h1", "h2c × 4 × 1 stream", "h2c × 4 × 10 streams"];
        assert_eq!(called("connections = 4\nstreams = [1, 10]"), [group, group].concat());
    }

    #[test]
    fn limits_and_dial_policies_are_named_only_where_they_differ() {
        let told = ["h1", "h2c × 1", "h1", "h2c × 1"];
        assert_eq!(called("max-requests-per-connection = 1000\ndial-policy = 'stampede'"), told);
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
