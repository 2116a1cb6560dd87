//! Our end of a client's run: the server and the link, with the settings of a cell.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_analysis::diagnose::passive::{Capture, Captured};
use h2lab_link::LinkSpec;
use h2lab_model::scenario::{Axis, Cell, Change, RequestLimit, Scenario, Sysctls, Target};
use h2lab_model::settings::Knob;
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_net::scratch;
use h2lab_net::tls::Identity;

use super::super::{DiagnoseArgs, capture};
use super::doubts;
use crate::cli::impair::LinkArgs;
use crate::cli::link;
use crate::run::commands::{CommandLab, Commands, CommandsResult, Detached};

/// The link's delay each way, unless the user says otherwise: what a client does badly costs round trips, and loopback hides it.
const DELAY: Duration = Duration::from_micros(12_500);
/// Ports of our origin, in a network of its own.
pub(super) const CLEAR_PORT: u16 = 8080;
pub(super) const TLS_PORT: u16 = 8443;
/// How long our origin may take to listen.
const WAIT: Duration = Duration::from_secs(10);
/// Receive windows of our origin, of streams and connections, unless the user says otherwise: with the 64 KiB of RFC 9113
/// they would limit the uploads of every client.
const WINDOW: u32 = 16 << 20;

impl DiagnoseArgs {
    /// The settings of our end, as the flags have them.
    pub(super) fn our_end(&self) -> Result<Cell> {
        let delay = self.cells.link.delay.clone().or(Some(Axis::one(DELAY)));
        let (link, congestion, sysctls) =
            link::link(&LinkArgs { delay, ..LinkArgs::clone(&self.cells.link) })?;
        let seed = self.cells.work.seed.as_ref().and_then(|seeds| seeds.values().first()).copied();
        let limits = self.cells.servers.max_requests_per_connection.as_ref().map(Axis::values);
        let limit = match limits {
            Some([RequestLimit(limit), ..]) => *limit,
            _ => None,
        };
        let engine = &self.cells.client.engine;
        let plan = Scenario::default().plan();
        let mut cell = plan.into_iter().next().context("a scenario has a cell")?;
        (cell.target, cell.protocol) = (Target::Origin, self.client.protocol());
        (cell.index, cell.repetition, cell.seed) = (0, 0, seed.unwrap_or(1));
        (cell.link, cell.congestion, cell.sysctls) = (Some(link), congestion, sysctls);
        cell.max_requests_per_connection = limit;
        cell.server = EngineSettings {
            stream_window: engine.stream_window.or(Some(WINDOW)),
            connection_window: engine.connection_window.or(Some(WINDOW)),
            ..EngineSettings::default()
        };
        cell.policy.no_tls_resumption = self.reach.tls.no_tls_resumption;
        let streams = self.cells.work.streams.as_ref().and_then(|streams| streams.values().first());
        let streams = streams.map(|streams| Some(u64::from(*streams)));
        let change = |value| Change { knob: Knob::MaxConcurrentStreams, value };
        cell.setup.changes = streams.map(change).into_iter().collect();
        Ok(cell)
    }

    /// The causes that our server has only because flags ask for them.
    pub(super) fn asked_for(&self) -> Vec<&'static str> {
        let (engine, cells) = (&self.cells.client.engine, &self.cells);
        let windows = engine.stream_window.is_some() || engine.connection_window.is_some();
        let all: [(bool, &[&'static str]); 4] = [
            (cells.servers.max_requests_per_connection.is_some(), &["CONN101", "CONN103"]),
            (windows, &["FLOW102", "FLOW103", "FLOW112"]),
            (cells.work.streams.is_some(), &["MUX101", "CONN102"]),
            (self.reach.tls.no_tls_resumption, &["CONN111"]),
        ];
        let asked = all.into_iter().filter(|(is_asked, _)| *is_asked);
        asked.flat_map(|(_, rules)| rules.iter().copied()).collect()
    }

    /// The certificate and key of our origin, made in `folder`; nothing without TLS.
    fn certify(&self, folder: &Path) -> Result<()> {
        if !self.client.tls {
            return Ok(());
        }
        let identity = Identity::self_signed(&["server", "localhost", "10.9.0.2"])
            .context("cannot make a certificate")?;
        for (name, text) in [(CERT, identity.certificates_pem), (KEY, identity.key_pem)] {
            let path = folder.join(name);
            scratch::create(&path)
                .and_then(|mut file: File| file.write_all(text.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// The command of our origin with the settings of `cell`.
    fn origin(&self, folder: &Path, cell: &Cell) -> Result<String> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let listen = if self.client.tls { ("--tls-listen", TLS_PORT) } else { ("--listen", CLEAR_PORT) };
        let mut words = vec![program.to_string_lossy().into_owned(), "origin".to_owned()];
        let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
        add(listen.0, format!("0.0.0.0:{}", listen.1));
        if self.client.tls {
            for (flag, name) in [("--cert", CERT), ("--key", KEY)] {
                add(flag, folder.join(name).to_string_lossy().into_owned());
            }
        }
        for (flag, value) in flags(cell) {
            add(flag, value.to_string());
        }
        let is_http1 = cell.protocol == Protocol::H1s;
        let switches = [(cell.policy.no_tls_resumption, "--no-tls-resumption"), (is_http1, "--http1.1")];
        words.extend(switches.iter().filter(|(is_on, _)| *is_on).map(|(_, flag)| (*flag).to_owned()));
        Ok(format!("exec {}", h2lab_report::shell_line(&words)))
    }
}

/// The names of the certificate's and the key's file.
const CERT: &str = "cert.pem";
const KEY: &str = "key.pem";

/// The flags of `h2lab origin` that have a value, with the values that `cell` has.
fn flags(cell: &Cell) -> impl Iterator<Item = (&'static str, u64)> {
    let mut changes = cell.setup.changes.iter();
    let streams = changes.find(|change| change.knob == Knob::MaxConcurrentStreams);
    let all = [
        ("-w", cell.server.stream_window.map(u64::from)),
        ("-W", cell.server.connection_window.map(u64::from)),
        ("--max-requests-per-connection", cell.max_requests_per_connection.map(u64::from)),
        ("--max-concurrent-streams", streams.and_then(|change| change.value)),
    ];
    all.into_iter().filter_map(|(flag, value)| Some((flag, value?)))
}

/// The lab in which a client is run, once or several times.
pub(super) struct Runs<'a> {
    args: &'a DiagnoseArgs,
    folder: &'a Path,
    commands: Commands,
    /// From the first run on.
    lab: Option<CommandLab>,
}

/// A run of the client.
pub(super) struct Made {
    pub done: CommandsResult,
    pub captured: Captured,
    /// Why its packets could not be read to their end, if so.
    pub damage: Option<String>,
    /// Why its times are not to be trusted.
    pub doubts: Vec<String>,
}

impl<'a> Runs<'a> {
    /// Of this command, whose output goes to the file `said`; other files are made in `folder`.
    pub(super) fn prepare(
        args: &'a DiagnoseArgs,
        words: &str,
        folder: &'a Path,
        said: &Path,
    ) -> Result<Self> {
        args.certify(folder)?;
        let file =
            |path: &Path| scratch::create(path).with_context(|| format!("cannot write {}", path.display()));
        let commands = Commands {
            link: LinkSpec::default(),
            congestion: None,
            sysctls: Sysctls::default(),
            ipv6: false,
            seed: 0,
            server: None,
            wait: WAIT,
            server_log: Some(file(&folder.join("origin"))?),
            client: args.client.filled(words, &folder.join(CERT)),
            detached: Some(Detached { output: file(said)?, limit: args.client.limit() }),
            captured_beside: Some(folder.to_owned()),
            removed: Some(folder.to_owned()),
            client_to_stderr: false,
            panic: false,
        };
        Ok(Self { args, folder, commands, lab: None })
    }

    /// Runs the client with our end as `cell` has it. The first time, this process becomes the lab.
    pub(super) fn make(&mut self, cell: &Cell) -> Result<Made> {
        let link = cell.link.clone().context("our end has a link")?;
        self.commands.link.clone_from(&link);
        self.commands.congestion.clone_from(&cell.congestion);
        self.commands.sysctls.clone_from(&cell.sysctls);
        self.commands.seed = cell.seed;
        self.commands.server = Some(self.args.origin(self.folder, cell)?);
        if self.lab.is_none() {
            self.lab = Some(self.commands.enter()?);
        }
        let lab = self.lab.as_mut().context("it was entered")?;
        let done = lab.run(&self.commands)?;
        let doubts = doubts::of(&done.link.summary, done.server_waited, done.took, link.rtt());
        let (captured, damage) = packets(&done, self.folder, link)?;
        Ok(Made { done, captured, damage, doubts })
    }
}

/// The packets as the client saw them, and why they could not be read to their end, if so.
fn packets(done: &CommandsResult, folder: &Path, link: LinkSpec) -> Result<(Captured, Option<String>)> {
    let path = folder.join("packets.pcapng");
    let kept = done.captured.as_ref().context("packets are kept here")?;
    kept.store(&path, &done.link.packets, None)?;
    capture::packets(&path, Capture::of_run(link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::experiment;

    #[test]
    fn a_change_of_our_end_is_a_flag_of_the_server() {
        let plan = Scenario::default().plan();
        let mut cell = Cell { target: Target::Origin, ..plan[0].clone() };
        let written = |cell: &Cell| {
            flags(cell).map(|(flag, value)| format!("{flag} {value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(written(&cell), "");
        cell.server.stream_window = Some(65_535);
        cell.max_requests_per_connection = Some(9);
        cell.setup.changes = vec![Change { knob: Knob::MaxConcurrentStreams, value: Some(2) }];
        let few = "-w 65535 --max-requests-per-connection 9 --max-concurrent-streams 2";
        assert_eq!(written(&cell), few);
        let windows = experiment::Knob::LargeServerWindows.apply(&cell);
        assert_eq!(written(&windows), few.replace("-w 65535", "-w 16777216 -W 16777216"));
        let endless = experiment::Knob::NoRequestLimit.apply(&cell);
        assert_eq!(written(&endless), "-w 65535 --max-concurrent-streams 2");
        let streams = experiment::ServerSetting {
            change: Change { knob: Knob::MaxConcurrentStreams, value: Some(128) },
            words: String::new(),
            causes: Vec::new(),
        };
        let many = experiment::Knob::Server(streams).apply(&cell);
        assert_eq!(written(&many), few.replace("streams 2", "streams 128"));
    }
}
