//! `h2lab diagnose --sidecar URL`: what a running sidecar has seen on its connections lately.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::Result;
use h2lab_analysis::diagnose::CAUSES;
use h2lab_analysis::diagnose::sidecar::{CHECKED, NOT_CHECKED, Own, failing, losses};
use h2lab_base::counts::plural;
use h2lab_base::text::made_printable;
use h2lab_base::units::format_duration;
use h2lab_model::record::{CellRecord, RunRecord, SCHEMA_VERSION};
use h2lab_model::sidecar::{Observations, SidecarStatus};

use super::super::Exit;
use super::super::cells::CellArgs;
use super::super::documents::{Form, json};
use super::super::exit::Usage;
use super::super::output::Concluded;
use super::{DiagnoseArgs, observed};
use crate::run::messages::{Failure, FailureKind};

/// How long the admin listener may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// More bytes than a sidecar keeps.
const MOST_BYTES: u64 = 1 << 30;

impl DiagnoseArgs {
    /// The address of the admin listener, if the value of `--sidecar` is a URL and not a program beside the link.
    pub(super) fn sidecar(&self) -> Result<Option<String>, Usage> {
        let Some(values) = &self.cells.servers.sidecar else { return Ok(None) };
        let [value] = values.values() else { return Ok(None) };
        if let Some(rest) = value.strip_prefix("http://") {
            let address = rest.split('/').next().unwrap_or_default();
            let address = if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                address.to_owned()
            } else {
                format!("{address}:80")
            };
            return Ok(Some(address));
        }
        if value.contains("://") {
            return Err(Usage(format!("--sidecar {value}: an admin listener speaks http://")));
        }
        let is_address = value.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(is_address.then(|| value.clone()))
    }

    fn refuse_for_sidecar(&self) -> Result<()> {
        let why = "has no effect with --sidecar URL: a running sidecar is only watched";
        let given = [
            (self.what.is_some(), "WHAT"),
            (self.via.is_some(), "--via"),
            (self.again.is_some(), "--again"),
            (self.config.is_some(), "--config"),
            (self.fix, "--fix"),
            (self.keylog.is_some(), "--keylog"),
            (self.out.is_some(), "--out"),
            (self.budget.is_some(), "--budget"),
            (self.fail_on.is_some(), "--fail-on"),
            (self.client.is_given(), "--run"),
        ];
        if let Some((_, flag)) = given.iter().find(|(is_given, _)| *is_given) {
            return Err(Usage(format!("{flag} {why}")).into());
        }
        let CellArgs { work, client, policy, link, servers, capture, .. } = &self.cells;
        work.refuse(&[], why)?;
        client.refuse(&[], why)?;
        policy.refuse(&[], why)?;
        link.refuse(&[], why)?;
        servers.refuse(&["sidecar"], why)?;
        capture.refuse(&[], why)?;
        Ok(self.reach.refuse(&[], why)?)
    }

    /// Asks the sidecar, and reports what its connections show.
    pub(super) fn of_sidecar(&self, address: &str, command_line: Vec<String>) -> Result<Exit> {
        self.refuse_for_sidecar()?;
        let seen = ask(address).map_err(|why| Failure {
            kind: FailureKind::Unreachable,
            message: format!("the sidecar's admin listener at {address}: {why}"),
        })?;
        if seen.window_ns == 0 {
            let why = "it keeps nothing to diagnose: window = \"0s\" in its [admin]";
            return Err(
                Failure { kind: FailureKind::Unreachable, message: format!("{address}: {why}") }.into()
            );
        }
        let looked = looked(&seen);
        let status = seen.status.clone();
        let of_observations = seen.notes.clone();
        let run = run(address, seen, command_line);
        let own = |cell: u32| own(&run, &status, cell);
        let mut notes = failing(&status);
        notes.extend(losses(&run.repetitions, &own));
        let has_noted = !notes.is_empty();
        notes.extend(of_observations);
        let concluded = Concluded::of_sidecar(&run, notes, &own);
        let report = concluded.report();
        self.documents.notify(|form, style| {
            Ok(match form {
                Form::Text => h2lab_report::diagnosis_of_sidecar(&report, has_noted, &looked, style),
                Form::Json => json(&h2lab_report::document(&report))?,
                Form::Html => h2lab_report::html(&[report]),
                Form::Markdown => h2lab_report::markdown(&[report]),
                Form::Sarif => json(&h2lab_report::sarif_of_findings(&report))?,
                Form::Junit => h2lab_report::junit_of_findings(&report),
            })
        })?;
        Ok(Exit::Done)
    }
}

/// What is configured for the instance of a cell.
fn own(run: &RunRecord, status: &SidecarStatus, cell: u32) -> Own {
    let Some(record) = run.repetitions.iter().find(|record| record.cell.index == cell) else {
        return Own::default();
    };
    let of_cell = host(record.cell.target.name());
    let instance =
        status.instances.iter().find(|one| host(&one.name).is_some() && host(&one.name) == of_cell);
    let mut ends = record.connections.iter().filter_map(|connection| connection.tcp_client.as_ref());
    Own {
        adapts: instance.is_some_and(|instance| instance.policy == "adaptive"),
        is_bbr: ends.all(|end| end.congestion_control == "bbr"),
    }
}

/// Host and port.
fn host(url: &str) -> Option<&str> {
    url.split_once("://").map(|(_, host)| host)
}

/// What was seen and looked for.
fn looked(seen: &Observations) -> String {
    let window = format_duration(Duration::from_nanos(seen.window_ns));
    let mut out = format!("Seen in the last {window}: ");
    let requests = |record: &CellRecord| record.samples.len() as u64;
    if seen.records.is_empty() {
        out.push_str("no request that was answered.");
    }
    let mut by_cell: Vec<(String, u64, u64)> = Vec::new();
    for record in &seen.records {
        let name = format!("{} of {}", record.cell.protocol, record.cell.target.name());
        let connections =
            record.connections.iter().filter(|connection| connection.requests > 0).count() as u64;
        match by_cell.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, all, on)) => (*all, *on) = (*all + requests(record), *on + connections),
            None => by_cell.push((name, requests(record), connections)),
        }
    }
    let words = |(name, all, on): &(String, u64, u64)| {
        format!("{} over {name} on {}", plural(*all, "request"), plural(*on, "connection"))
    };
    out.push_str(&by_cell.iter().map(words).collect::<Vec<_>>().join(", "));
    if !by_cell.is_empty() {
        out.push('.');
    }
    let _ = write!(
        out,
        " Looked for {} of the {} causes in the catalogue: {}. {NOT_CHECKED} Nothing was changed, so nothing is confirmed.",
        CHECKED.len(),
        CAUSES.len(),
        CHECKED.join(", ")
    );
    out
}

/// The run made from the observations.
fn run(address: &str, seen: Observations, command: Vec<String>) -> RunRecord {
    let began = Duration::from_nanos(seen.taken_unix_ns.saturating_sub(seen.window_ns));
    observed::run(format!("sidecar at {address}"), began, seen.records, command)
}

/// Fetches the observations.
fn ask(address: &str) -> Result<Observations, String> {
    let body = get(address, "/observations").map_err(|error| error.to_string())?;
    let (head, body) = split(&body).ok_or("it does not speak HTTP/1.1: is that the admin listener?")?;
    let status = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = String::from_utf8_lossy(status);
    if !status.starts_with("HTTP/1.1 200 ") {
        return Err(format!(
            "it answers `{}` to /observations: is that the admin listener of `h2lab sidecar`?",
            made_printable(&status)
        ));
    }
    let seen: Observations = serde_json::from_slice(body)
        .map_err(|error| format!("its answer is none of this version of h2lab: {error}"))?;
    if seen.schema > SCHEMA_VERSION {
        return Err("it is of a newer version of h2lab".to_owned());
    }
    Ok(seen)
}

fn split(response: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((&response[..end], &response[end + 4..]))
}

fn get(address: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let resolved = address.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&resolved, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut response)?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_sidecar_is_told_as_such() {
        let seen = Observations {
            schema: SCHEMA_VERSION,
            status: SidecarStatus::default(),
            window_ns: 30_000_000_000,
            taken_unix_ns: 0,
            records: Vec::new(),
            notes: Vec::new(),
        };
        let words = looked(&seen);
        assert!(
            words.starts_with("Seen in the last 30s: no request that was answered. Looked for 8 of "),
            "{words}"
        );
        let text = serde_json::to_string(&seen).expect("JSON");
        assert_eq!(serde_json::from_str::<Observations>(&text).expect("what was written"), seen);
    }

    #[test]
    fn a_response_is_split_behind_its_head() {
        assert_eq!(
            split(b"HTTP/1.1 200 OK\r\na: b\r\n\r\nbody"),
            Some((&b"HTTP/1.1 200 OK\r\na: b"[..], &b"body"[..]))
        );
        assert_eq!(split(b"HTTP/1.1"), None);
    }
}
