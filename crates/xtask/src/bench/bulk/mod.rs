//! `cargo xtask bench bulk`: what one connection carries on loopback, and at what CPU of each end, compared with TCP
//! without HTTP and with other programs that move files.
//!
//! Servers have the first CPU and clients the second. In a round all rows are measured one after the other, every
//! second round in the opposite order; what is printed are medians, and medians of the rounds' ratios. Everything runs
//! in a network namespace where all connections have one congestion control, which is read back before the first round
//! ([`network`]).

mod gates;
mod network;
mod rows;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use self::gates::{GATES, TransferFigures};
use self::rows::{ROWS, Row, row};
use self::servers::Servers;
use super::ratio::middle;
use super::{Arguments, meter, need};
use crate::generators::CLIENT_CPU;
use crate::process;
use crate::verify::binary::H2lab;

/// The default number of rounds, and with `--quick`.
const ROUNDS: u32 = 9;
const QUICK_ROUNDS: u32 = 3;
/// The factor of rounds for rows with gates: two transfers of the same kind differ by a tenth. So the median of 9 pairs
/// has an interval of a tenth to each side, which cannot decide about 3 %.
const ROUNDS_OF_GATES: u32 = 3;
/// Programs that make the namespace, bind to CPUs and read congestion control back; and their Debian packages.
const TOOLS: &[(&str, &str)] = &[
    ("unshare", "util-linux"),
    ("taskset", "util-linux"),
    ("setpriv", "util-linux"),
    ("ip", "iproute2"),
    ("ss", "iproute2"),
];

/// All rounds of all rows, by id.
type Measured = BTreeMap<&'static str, Vec<TransferFigures>>;

/// Measures what `--only` selects, prints it, and records it; fails if a gate does not hold.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen = chosen(&arguments.only)?;
    need(TOOLS)?;
    // Built before the namespace is entered: inside it nothing can be downloaded.
    let (h2lab, raw) = (H2lab::build()?, H2lab::build_example("raw")?);
    if !network::is_inside() {
        return network::enter();
    }
    let (rows, mut notes) = installed(chosen);
    let mut servers = Servers::new(h2lab, raw)?;
    for row in &rows {
        servers.start(row.server)?;
    }
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { QUICK_ROUNDS } else { ROUNDS });
    notes += &warm_up(&rows, &servers, arguments.quick)?;
    print!("{notes}");
    let mut measured = Measured::new();
    let all_rounds = if arguments.quick { rounds } else { rounds * ROUNDS_OF_GATES };
    for round in 0..all_rounds {
        let mut order: Vec<&Row> = rows.clone();
        order.retain(|row| round < rounds || gates::concern(row.id));
        if round % 2 == 1 {
            order.reverse();
        }
        for row in order {
            let figures = measure(row, &servers, row.in_run(arguments.quick))?;
            measured.entry(row.id).or_default().push(figures);
        }
    }
    let (judged, held) = judge(&arguments.only, &measured);
    let table = format!("{}\n{judged}", table(&rows, &measured));
    print!("\n{table}");
    if let Some(file) = &arguments.record {
        std::fs::write(file, markdown(arguments, rounds, &notes, &table))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    // With this few bytes and rounds the gates decide nothing.
    Ok(if held || arguments.quick { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rows that `--only` selects, and those that they are compared with.
fn chosen(only: &[String]) -> Result<Vec<&'static Row>> {
    let ids: BTreeSet<&str> = ROWS.iter().filter(|row| is_wanted(only, row.id)).map(|row| row.id).collect();
    if ids.is_empty() {
        let ids: Vec<&str> = ROWS.iter().map(|row| row.id).collect();
        bail!("nothing begins with that; there are {}", ids.join(", "));
    }
    let yardsticks: BTreeSet<&str> = ids.iter().filter_map(|id| row(id)).map(|row| row.yardstick).collect();
    Ok(ROWS.iter().filter(|row| ids.contains(row.id) || yardsticks.contains(row.id)).collect())
}

fn is_wanted(only: &[String], id: &str) -> bool {
    only.is_empty() || only.iter().any(|only| id.starts_with(only.as_str()))
}

/// The rows whose programs are installed; for the others, how to install them.
fn installed(rows: Vec<&'static Row>) -> (Vec<&'static Row>, String) {
    let mut notes = String::new();
    let is_here = |row: &&Row| match row.server.missing() {
        None => true,
        Some((name, how)) => {
            // Writing to a String cannot fail.
            let _ = writeln!(notes, "* {} is **missing**: {name} is not installed: {how}", row.id);
            false
        }
    };
    let rows = rows.into_iter().filter(is_here).collect();
    (rows, notes)
}

/// Runs each row once without counting it. Returns the congestion control of its sockets, which must be the same for
/// all.
fn warm_up(rows: &[&Row], servers: &Servers, is_quick: bool) -> Result<String> {
    let mut read = BTreeSet::new();
    for row in rows {
        let words = row.words(servers, row.in_run(is_quick))?;
        let mut client = Command::new("taskset");
        client.args(["-c", CLIENT_CPU]).args(words).stdin(Stdio::null());
        let client =
            client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("cannot start taskset")?;
        let names = network::read_back(client).with_context(|| row.id)?;
        let is_over_tcp = row.id != "h3"; // QUIC has its own, the same by default, which is in the report of each transfer
        let expected: BTreeSet<String> =
            is_over_tcp.then(|| network::CONGESTION.to_owned()).into_iter().collect();
        ensure!(names == expected, "{}: its sockets have congestion control {names:?}", row.id);
        read.extend(names);
    }
    let names: Vec<String> = read.into_iter().collect();
    Ok(format!(
        "* congestion control, read back of both ends of each row's connections: {}\n",
        names.join(", ")
    ))
}

/// One transfer.
fn measure(row: &Row, servers: &Servers, bytes: u64) -> Result<TransferFigures> {
    let serving = servers.get(row.server)?;
    let words = row.words(servers, bytes)?;
    let arguments = [vec!["-c".to_owned(), CLIENT_CPU.to_owned()], words].concat();
    let before = serving.cpu_s()?;
    let client = meter::run("taskset", &arguments).with_context(|| row.id)?;
    let taken = serving.cpu_s()? - before;
    let reported = row.parse(&client.stdout)?;
    ensure!(reported.bytes >= bytes, "{}: {} of {bytes} bytes came", row.id, reported.bytes);
    let gigabytes = reported.bytes as f64 / 1e9;
    Ok(TransferFigures {
        gbit: gigabytes * 8.0 / reported.elapsed_s,
        server: reported.server_cpu_s.unwrap_or(taken) / gigabytes,
        client: client.cpu_us / 1e6 / gigabytes,
    })
}

/// All rows with their medians.
fn table(rows: &[&Row], measured: &Measured) -> String {
    let mut table = String::from(
        "| | Gbit/s | CPU-s/GB server | client | both | beside | rate × (95 % of median) | CPU × | |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let figures = &measured[row.id];
        let median = |value: fn(&TransferFigures) -> f64| {
            let mut values: Vec<f64> = figures.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            middle(&values)
        };
        let _ = writeln!(
            table,
            "| {} | {:.2} | {:.3} | {:.3} | {:.3} | {} | {} | {} |",
            row.id,
            median(|figures| figures.gbit),
            median(|figures| figures.server),
            median(|figures| figures.client),
            median(TransferFigures::both),
            row.yardstick,
            gates::beside(figures, &measured[row.yardstick]),
            row.claim,
        );
    }
    table
}

/// The gates between rows that were selected, and whether they hold.
fn judge(only: &[String], measured: &Measured) -> (String, bool) {
    let of = |id| measured.get(id).map_or(&[][..], Vec::as_slice);
    let (mut table, mut held) = (gates::HEAD.to_owned(), true);
    let concerns = |id| is_wanted(only, id) || measured.contains_key(id);
    for gate in GATES.iter().filter(|gate| is_wanted(only, gate.ours) && concerns(gate.peer)) {
        let (line, holds) = gate.judge(of(gate.ours), of(gate.peer));
        table.push_str(&line);
        held &= holds;
    }
    (table, held)
}

/// The tables, and how to reproduce them.
fn markdown(arguments: &Arguments, rounds: u32, notes: &str, table: &str) -> String {
    let only = arguments.only.iter().fold(String::new(), |words, id| words + " --only " + id);
    let quick = if arguments.quick { " --quick" } else { "" };
    format!(
        "# Bulk transfers on loopback\n\n`cargo xtask bench bulk --rounds {rounds}{quick}{only}`: one connection (chasqui's \
         HTTP/1.1 has four), the server on the first CPU and the client on the second; medians of {rounds} rounds in alternating \
         order (of rows in the second table three times as many), and of the rounds' ratios with their 95 % intervals. GB are 10⁹ bytes. The client's CPU is that of its whole \
         process.\n\n{}{notes}\n{table}",
        versions()
    )
}

/// The versions that the peers print.
fn versions() -> String {
    let mut lines = String::new();
    for (name, argument) in
        [("iperf3", "--version"), ("go", "version"), ("nginx", "-v"), ("curl", "--version")]
    {
        let Some(program) = process::find(name) else { continue };
        let Ok(output) = Command::new(program).arg(argument).output() else { continue };
        // nginx prints it on stderr.
        let said = [output.stdout, output.stderr].concat();
        let first = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
        let _ = writeln!(lines, "* {first}"); // writing to a String cannot fail
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|&id| id.to_owned()).collect();
        chosen(&only).unwrap().iter().map(|row| row.id).collect()
    }

    #[test]
    fn what_is_selected_comes_with_its_yardstick() {
        assert_eq!(ids(&["h2c-1000"]), ["raw", "h2c-1000"]);
        assert_eq!(ids(&["h1s"]), ["rustls", "h1s"]);
        assert_eq!(ids(&[]).len(), ROWS.len());
        assert!(chosen(&["no-such-row".to_owned()]).is_err());
    }

    #[test]
    fn gates_between_rows_that_nobody_asked_for_are_not_judged() {
        let lines = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&id| id.to_owned()).collect();
            judge(&only, &Measured::new()).0.lines().count() - 2
        };
        assert_eq!((lines(&[]), lines(&["h3"]), lines(&["rustls", "h2"])), (GATES.len(), 0, 1));
    }
}
