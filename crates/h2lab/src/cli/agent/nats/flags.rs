//! The flags of an agent as a service, and what it says that it permits.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_base::units::{format_bytes, format_duration};
use h2lab_model::fleet::{AgentLimits, AgentName, AllowEntry, Permissions};

use super::super::super::exit::Usage;
use super::super::super::nats::NatsArgs;
use super::super::super::values::{duration, size, value, whole};
use super::super::log;
use super::folder::{self, AgentFolder};
use h2lab_net::privileges::{self, CapabilitySet};

/// The flags of a service, which an agent on standard input and output has not. `--nats` is not among them: the variable
/// `H2LAB_NATS` is for all commands.
pub const FLAGS: [&str; 8] =
    ["name", "allow", "max_rate", "max_connections", "max_bytes", "max_time", "folder", "drain_time"];

/// An agent at a NATS server.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Name of this agent, by which drivers address it: 1 to 64 letters, digits, - and _, no - at the beginning
    #[arg(long, value_name = "NAME", value_parser = value::<AgentName>)]
    name: Option<AgentName>,
    /// What drivers may have it do (repeatable): requests to <https://HOST>[:PORT] or <http://HOST>[:PORT], `lab` (cells
    /// behind the emulated link), `serve` (a server of bytes)
    ///
    /// HOST is a name, `*.` and a name for all names below it, an address, a network such as 10.1.0.0/16, or `*`; PORT is
    /// a number, or `*`. Anything else is refused before a packet leaves.
    #[arg(long, value_name = "WHAT", value_parser = value::<AllowEntry>)]
    pub(super) allow: Vec<AllowEntry>,
    /// Refuse loads with more requests per second, and those without a rate
    #[arg(long, value_name = "RATE", value_parser = rate)]
    max_rate: Option<f64>,
    /// Refuse tasks with more connections
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..))]
    max_connections: Option<u32>,
    /// End a load or a transfer after so many bytes; refuse cells of studies and servers, whose bytes are not counted
    #[arg(long, value_name = "SIZE", value_parser = above_zero(size))]
    max_bytes: Option<u64>,
    /// Refuse tasks that take longer; also the longest wait before a start
    ///
    /// Of a load --warmup, -z and --drain count together, of transfers the --duration, of a study each cell by itself with its
    /// warm-up, measured time and drain. Connections of a load are dialled and kept before its start for this time, and
    /// never for more than 10 minutes. A server of bytes is ended after it.
    #[arg(long, value_name = "TIME", value_parser = above_zero(duration))]
    max_time: Option<Duration>,
    /// Where results are written before they are stored at the NATS server; removed at the end [default: a temporary
    /// folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// How long work may go on after SIGTERM or Ctrl-C
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(super) drain_time: Duration,
    // The last: the heading of these flags goes for all that follow them.
    #[command(flatten)]
    pub(super) server: NatsArgs,
}

/// A bound that `read` reads. One of 0 would refuse every task.
fn above_zero<T: Default + PartialEq>(
    read: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| match read(text) {
        Ok(bound) if bound == T::default() => {
            Err("0 would refuse every task: give more than 0, or omit the flag for no bound".to_owned())
        }
        other => other,
    }
}

/// Requests per second: a number above 0.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("`{text}` is not a number of requests per second above 0"))
}

impl ServiceArgs {
    /// Whether a server is named.
    pub const fn is_given(&self) -> bool {
        self.server.is_given()
    }

    /// The name and what is permitted: an agent that permits nothing is of no use.
    pub(super) fn checked(&self) -> Result<(AgentName, Permissions), Usage> {
        let name = self.name.clone().ok_or_else(|| {
            Usage(
                "--nats: give the agent a name by which drivers address it, such as --name kek-1".to_owned(),
            )
        })?;
        if self.allow.is_empty() {
            let words = "--nats: say what drivers may have it do: --allow 'https://*.staging.example', --allow lab, \
                         --allow serve";
            return Err(Usage(words.to_owned()));
        }
        let limits = AgentLimits {
            rate: self.max_rate,
            connections: self.max_connections,
            bytes: self.max_bytes,
            time: self.max_time,
        };
        if limits.bytes.is_some() && self.allow.iter().all(is_uncounted) {
            let words = "--max-bytes: it refuses `lab` and `serve`, whose bytes are not counted while they run, so that nothing \
                         is left: omit it, or add --allow 'https://HOST'";
            return Err(Usage(words.to_owned()));
        }
        Ok((name, Permissions { allow: self.allow.iter().cloned().collect(), limits }))
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.allow.iter().any(|entry| entry.to_string() == word)
    }

    /// The rights that root's agent keeps; `None` is all of them, since a lab needs them and gives them up itself.
    pub(super) fn rights(&self) -> Option<CapabilitySet> {
        (!self.has("lab")).then_some(privileges::NONE)
    }

    /// The folder of this agent alone, which is removed when it is dropped.
    pub(super) fn make_folder(&self) -> Result<AgentFolder> {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        for left in folder::remove_left(&parent) {
            log::line(&format!("removed {}, which an agent that was killed has left", left.display()));
        }
        let made = AgentFolder::make(&parent);
        made.with_context(|| format!("--folder {}: cannot make a folder in it", parent.display()))
    }
}

/// Whether nobody counts the bytes of what is permitted by this: `--max-bytes` refuses it then.
fn is_uncounted(entry: &AllowEntry) -> bool {
    ["lab", "serve"].contains(&entry.to_string().as_str())
}

/// What an agent permits, and within which bounds: what it refuses in any case is not among that.
pub(super) fn permitted(allow: &[AllowEntry], limits: &AgentLimits) -> String {
    let all = |entries: Vec<&AllowEntry>| entries.iter().map(ToString::to_string).collect::<Vec<_>>();
    let is_refused = |entry: &&AllowEntry| limits.bytes.is_some() && is_uncounted(entry);
    let (refused, permitted): (Vec<_>, Vec<_>) = allow.iter().partition(is_refused);
    let refused = match all(refused).as_slice() {
        [] => String::new(),
        refused => format!("; refused are {}", refused.join(", ")),
    };
    // A server of bytes has no rate, and as many connections as its clients dial.
    let bounds = [
        limits.rate.map(|most| {
            format!("--max-rate {most} (of loads and cells; refused are closed loops and transfers)")
        }),
        limits.connections.map(|most| format!("--max-connections {most} (of loads, cells and transfers)")),
        limits.bytes.map(|most| {
            let most = format_bytes(most);
            format!("--max-bytes {most} (of loads and transfers{refused})")
        }),
        limits.time.map(|most| format!("--max-time {}", format_duration(most))),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    let permitted = all(permitted).join(", ");
    if bounds.is_empty() { permitted } else { format!("{permitted}; bounds: {}", bounds.join(", ")) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::super::AgentArgs;
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agent: AgentArgs,
    }

    fn checked(line: &str) -> Result<(AgentName, Permissions), String> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.agent.service.checked().map_err(|error| error.to_string())
    }

    #[test]
    fn an_agent_needs_a_name_and_something_that_it_permits() {
        for (line, words) in [
            ("--nats a --allow lab", "--name kek-1"),
            ("--nats a --name kek-1", "--allow lab"),
            ("--nats a --name kek.1 --allow lab", "1 to 64"),
            ("--nats a --name=-x --allow lab", "no - at the beginning"),
            ("--nats a --name=- --allow lab", "no - at the beginning"),
            ("--nats a --name kek-1 --allow ftp://a", "--allow"),
        ] {
            let refusal = checked(line).unwrap_err();
            assert!(refusal.contains(words), "{line}: {refusal}");
        }
        let (name, permissions) =
            checked("--nats a --name kek-1 --allow lab --allow https://*.a.example").unwrap();
        assert_eq!(name.as_str(), "kek-1");
        assert_eq!(permissions.allow.texts(), ["lab", "https://*.a.example"]);
        assert_eq!(permissions.limits, AgentLimits::default());
    }

    #[test]
    fn bounds_are_read_with_their_units_and_none_is_zero() {
        let of = |bounds: &str| checked(&format!("--nats a --name b --allow http://a {bounds}"));
        let limits =
            of("--max-rate 0.5 --max-connections 10 --max-bytes 1G --max-time 10m").unwrap().1.limits;
        let expected = AgentLimits {
            rate: Some(0.5),
            connections: Some(10),
            bytes: Some(1 << 30),
            time: Some(Duration::from_secs(600)),
        };
        assert_eq!(limits, expected);
        for (bad, words) in [
            ("--max-rate 0", "above 0"),
            ("--max-rate inf", "above 0"),
            ("--max-rate fast", "above 0"),
            ("--max-connections 0", "1 or more"),
            ("--max-time soon", "--max-time"),
            ("--max-time 0s", "more than 0"),
            ("--max-time 0", "more than 0"),
            ("--max-bytes 0", "more than 0"),
            ("--max-bytes 0k", "more than 0"),
        ] {
            let refusal = of(bad).unwrap_err();
            assert!(refusal.contains(words), "{bad}: {refusal}");
        }
        let limits =
            of("--max-rate 0.001 --max-connections 1 --max-bytes 1 --max-time 1ns").unwrap().1.limits;
        assert_eq!((limits.bytes, limits.time), (Some(1), Some(Duration::from_nanos(1))));
    }

    #[test]
    fn what_an_agent_says_that_it_permits_is_what_it_does_not_refuse_in_any_case() {
        let said = |line: &str| {
            let words = ["x", "--nats", "a", "--name", "b"].into_iter().chain(line.split_whitespace());
            let args = Line::try_parse_from(words).unwrap().agent.service;
            args.checked().map(|(_, permissions)| permitted(&args.allow, &permissions.limits))
        };
        for (line, expected) in [
            ("--allow lab --allow serve", "lab, serve"),
            ("--allow lab --max-time 10m", "lab; bounds: --max-time 600s"),
            (
                "--allow http://a --max-rate 0.5 --max-connections 3",
                "http://a; bounds: --max-rate 0.5 (of loads and cells; refused are closed loops and transfers), \
                 --max-connections 3 (of loads, cells and transfers)",
            ),
            (
                "--allow http://a --max-bytes 1000",
                "http://a; bounds: --max-bytes 1000 B (of loads and transfers)",
            ),
            (
                "--allow lab --allow http://a --allow serve --max-bytes 1000",
                "http://a; bounds: --max-bytes 1000 B (of loads and transfers; refused are lab, serve)",
            ),
        ] {
            assert_eq!(said(line).unwrap(), expected, "{line}");
        }
        for line in ["--allow lab --max-bytes 1G", "--allow serve --allow lab --max-bytes 1G"] {
            let refusal = said(line).unwrap_err().to_string();
            assert!(refusal.starts_with("--max-bytes: ") && refusal.contains("--allow"), "{refusal}");
        }
    }

    #[test]
    fn the_flags_of_a_service_are_refused_beside_stdio() {
        for flag in ["--name b", "--allow lab", "--max-rate 1", "--folder .", "--drain-time 1s"] {
            let refusal = checked(&format!("--stdio {flag}")).unwrap_err();
            assert!(refusal.contains("cannot be used with"), "{flag}: {refusal}");
        }
    }

    #[test]
    fn only_an_agent_with_labs_keeps_the_rights_of_root() {
        let rights = |line: &str| {
            let words = ["x", "--nats", "a", "--name", "b"].into_iter().chain(line.split_whitespace());
            Line::try_parse_from(words).unwrap().agent.service.rights()
        };
        assert_eq!(rights("--allow lab --allow serve"), None);
        assert_eq!(rights("--allow serve --allow http://a"), Some(privileges::NONE));
    }

    #[test]
    fn the_folder_of_an_agent_is_gone_when_it_ends() {
        let parent = tempfile::tempdir().unwrap();
        let args = |folder: PathBuf| {
            let words = ["x".into(), "--folder".into(), folder.into_os_string()];
            Line::try_parse_from(words).unwrap().agent.service
        };
        let folder = args(parent.path().to_owned()).make_folder().unwrap();
        let path = folder.path().to_owned();
        assert!(path.is_dir() && path.parent() == Some(parent.path()));
        drop(folder);
        assert!(!path.exists());
        let error = args(parent.path().join("none")).make_folder().unwrap_err().to_string();
        assert!(error.starts_with("--folder "), "{error}");
    }
}
