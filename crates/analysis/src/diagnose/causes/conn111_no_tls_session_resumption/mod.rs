//! CONN111: every new connection pays for a full TLS handshake.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::conn::CONN111 as META;
use super::views::{dials, mean};
use crate::diagnose::{Case, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::ConnectionRecord;
use h2lab_model::settings::{self, Knob};

/// At least this many full handshakes must have taken place when a session could have been resumed.
const LEAST: usize = 4;
/// At most this part of the handshakes that could have resumed a session may have done so.
const RESUMED: f64 = 0.1;

/// The rule.
#[derive(Debug)]
pub(super) struct NoTlsSessionResumption;

impl Rule for NoTlsSessionResumption {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let mut total = Total::default();
        for repetition in &case.repetitions {
            total.add(repetition);
        }
        let could = total.full + total.resumed;
        if total.full < LEAST || total.resumed as f64 > could as f64 * RESUMED {
            return Vec::new();
        }
        let how = "waiting for what full TLS handshakes take beyond a round trip";
        let finding = case.finding(&META, total.waiting, how);
        if !case.is_worth(finding.cost_share) {
            return Vec::new();
        }
        let each = mean(total.beyond, total.full as u64);
        vec![Finding {
            symptom: format!(
                "{} of {} after the first were full ones, of {} beyond a round trip each; {} resumed a session{}",
                count(total.full as u64),
                plural(could as u64, "TLS handshake"),
                measured_time(each),
                count(total.resumed as u64),
                total.beside()
            ),
            evidence: vec![
                Evidence::new("full TLS handshakes after the first connection was ready", total.full as f64, "handshakes"),
                Evidence::new("handshakes that resumed a session", total.resumed as f64, "handshakes"),
                Evidence::new("what each took beyond a round trip", millis_f64(each), "ms"),
                Evidence::new("waiting of requests for that", millis_f64(total.waiting), "ms"),
            ],
            fixes: fixes(case),
            confirm: "run the same cell with sessions resumed, and see the handshakes of `connections` become shorter".to_owned(),
            ..finding
        }]
    }
}

#[derive(Debug, Default)]
struct Total {
    full: usize,
    resumed: usize,
    /// Handshakes that began before the first had brought a session.
    early: usize,
    /// What the full handshakes took beyond one round trip.
    beyond: Duration,
    /// The part of that for which requests waited.
    waiting: Duration,
}

impl Total {
    /// The part of the symptom about the other connections.
    fn beside(&self) -> String {
        if self.early == 0 {
            return String::new();
        }
        let began = "before the first had brought a session";
        format!("; {} began {began}", plural(self.early as u64, "other"))
    }

    fn add(&mut self, repetition: &Repetition<'_>) {
        let (record, rtt) = (repetition.record, repetition.facts().rtt);
        let connections = &record.connections;
        let first = connections.iter().map(|connection| connection.ready_at).min().unwrap_or(Time::NEVER);
        // The session's ticket comes after the handshake (RFC 8446 §4.6.1).
        let could =
            |connection: &&ConnectionRecord| first.happened() && connection.connected_at > first + rtt;
        let beyond = |connection: &ConnectionRecord| {
            connection.ready_at.since(connection.connected_at).saturating_sub(rtt)
        };
        let is_early = |connection: &&ConnectionRecord| connection.ready_at > first && !could(connection);
        self.early += connections.iter().filter(is_early).filter(|one| one.ready_at.happened()).count();
        for connection in connections.iter().filter(could) {
            match connection.tls_resumed {
                Some(true) => self.resumed += 1,
                Some(false) => {
                    self.full += 1;
                    self.beyond += beyond(connection);
                }
                None => {}
            }
        }
        for sample in &record.samples {
            let connection = record.connection(sample.connection).filter(could);
            if let Some(connection) = connection.filter(|connection| connection.tls_resumed == Some(false)) {
                self.waiting += dials::waited(record, &sample).min(beyond(connection));
            }
        }
    }
}

fn fixes(case: &Case<'_>) -> Vec<Fix> {
    if case.cell().policy.no_tls_resumption {
        let ours = "resume TLS sessions (remove --no-tls-resumption)";
        return vec![Fix::new("client", ours, "a resumed handshake needs no certificate and no signature")];
    }
    let keep = "keep sessions between connections, and one client object for all callers";
    // A server that resumes sessions without a setting needs no change.
    let server = Some(case.advise(Knob::SessionResumption, None)).filter(|fix| fix.setting != settings::NONE);
    let client = Fix::new("client", keep, "a session that is not kept cannot be resumed");
    server.into_iter().chain([client]).collect()
}
