//! Changes that were tried in vain, and the fixes that they leave.

use h2lab_model::Fix;
use h2lab_model::experiment::Knob;
use h2lab_model::settings::{Knob as Setting, Role};

use super::{Experiment, Outcome, Trial};
use crate::diagnose::Finding;

impl Experiment {
    /// The trials of the changes that take this cause away, if all of them are decided and none helped; else none.
    pub fn in_vain(&self, cause: &str) -> Vec<&Trial> {
        let tried: Vec<&Trial> =
            self.trials.iter().filter(|trial| trial.knob.causes().contains(&cause)).collect();
        let is_vain = |trial: &&Trial| matches!(trial.outcome, Outcome::Refuted | Outcome::Worse);
        if tried.iter().all(is_vain) { tried } else { Vec::new() }
    }

    /// The fixes of a finding without those that were tried in vain. Effects are on times: what costs failed requests is
    /// not refuted by them.
    pub fn fixes_left<'a>(&self, finding: &'a Finding) -> Vec<&'a Fix> {
        let in_vain = if finding.of_failures { Vec::new() } else { self.in_vain(&finding.rule) };
        let is_left = |fix: &&Fix| !in_vain.iter().any(|trial| is_tried_by(fix, &trial.knob));
        finding.fixes.iter().filter(is_left).collect()
    }
}

/// Whether a change is what a fix of one of its causes advises, to whatever value.
fn is_tried_by(fix: &Fix, knob: &Knob) -> bool {
    let Some(wish) = fix.wish else { return is_habit(knob) };
    let is_of_client = wish.role == Role::Client;
    match knob {
        Knob::Connections(_) => wish.knob == Setting::UpstreamConnections,
        Knob::NoRequestLimit => matches!(wish.knob, Setting::H1Requests | Setting::H2Requests),
        // Where the connection's window is not set, it is as large as the stream's.
        Knob::LargeWindows => {
            is_of_client && matches!(wish.knob, Setting::StreamWindow | Setting::ConnectionWindow)
        }
        Knob::LargeConnectionWindow => is_of_client && wish.knob == Setting::ConnectionWindow,
        Knob::LargeServerWindows => {
            !is_of_client && matches!(wish.knob, Setting::StreamWindow | Setting::ConnectionWindow)
        }
        Knob::LongFrames => wish.knob == Setting::MaxFrameSize,
        Knob::HeaderTable => wish.knob == Setting::HeaderTableSize,
        Knob::NoPush => wish.knob == Setting::Push,
        Knob::TlsResumption => wish.knob == Setting::SessionResumption,
        Knob::Congestion(_) => wish.knob == Setting::CongestionControl,
        Knob::KeptCongestionWindow => wish.knob == Setting::SlowStartAfterIdle,
        Knob::Http1 => wish.knob == Setting::UpstreamProtocol,
        Knob::Server(setting) => wish.role == Role::Front && wish.knob == setting.change.knob,
        Knob::DefaultCredit
        | Knob::JoinedWrites
        | Knob::SingleFlight
        | Knob::KeptConnections
        | Knob::ManyStreams
        | Knob::AwaitedSettings
        | Knob::NoKeepAlive
        | Knob::NoCancellation
        | Knob::Replay
        | Knob::Huffman
        | Knob::QuickAcks
        | Knob::LongQueue
        | Knob::NoLoss => false,
    }
}

/// Whether a change takes away a habit that is no setting of the table: the fixes of its causes name it in words alone.
const fn is_habit(knob: &Knob) -> bool {
    matches!(
        knob,
        Knob::DefaultCredit
            | Knob::JoinedWrites
            | Knob::SingleFlight
            | Knob::KeptConnections
            | Knob::ManyStreams
            | Knob::AwaitedSettings
            | Knob::NoKeepAlive
            | Knob::NoCancellation
            | Knob::Replay
            | Knob::NoPush
            | Knob::TlsResumption
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::settings::Wish;

    #[test]
    fn of_a_finding_only_the_fixes_that_were_tried_in_vain_are_left_out() {
        let fix = |words: &str, wish: Option<(Setting, Role)>| Fix {
            wish: wish.map(|(knob, role)| Wish { knob, role, value: None }),
            ..Fix::new("client", words, "why")
        };
        let fixes = vec![
            fix("connections", Some((Setting::UpstreamConnections, Role::Client))),
            fix("bbr", Some((Setting::CongestionControl, Role::Kernel))),
            fix("HTTP/3", None),
        ];
        let finding = Finding { rule: "LOSS102".to_owned(), fixes, ..Finding::default() };
        let left = |finding: &Finding, outcomes: &[(Knob, Outcome)]| {
            let trial = |(knob, outcome): &(Knob, Outcome)| Trial {
                knob: knob.clone(),
                cell: 2,
                rounds: 2,
                effect: None,
                outcome: outcome.clone(),
                closes: None,
            };
            let trials = outcomes.iter().map(trial).collect();
            let experiment = Experiment { trials, ..Experiment::unmeasured() };
            experiment.fixes_left(finding).iter().map(|fix| fix.setting.clone()).collect::<Vec<_>>()
        };
        let more = |outcome| (Knob::Connections(4), outcome);
        let bbr = || (Knob::Congestion("bbr".to_owned()), Outcome::Worse);
        assert_eq!(left(&finding, &[]), ["connections", "bbr", "HTTP/3"]);
        assert_eq!(left(&finding, &[more(Outcome::Undecided)]), ["connections", "bbr", "HTTP/3"]);
        assert_eq!(left(&finding, &[more(Outcome::Refuted)]), ["bbr", "HTTP/3"]);
        assert_eq!(left(&finding, &[more(Outcome::Refuted), bbr()]), ["HTTP/3"]);
        let of_failures = Finding { of_failures: true, ..finding };
        assert_eq!(left(&of_failures, &[more(Outcome::Refuted)]), ["connections", "bbr", "HTTP/3"]);
        // A habit has no setting in the table, and a window has one at either end.
        let habit = Finding {
            rule: "CONN104".to_owned(),
            fixes: vec![fix("one dial for all", None)],
            ..Finding::default()
        };
        assert!(left(&habit, &[(Knob::SingleFlight, Outcome::Refuted)]).is_empty());
        let windows = [Role::Client, Role::Front]
            .map(|role| fix(role.words(), Some((Setting::ConnectionWindow, role))));
        let windows = Finding { rule: "FLOW103".to_owned(), fixes: windows.to_vec(), ..Finding::default() };
        let at_server = left(&windows, &[(Knob::LargeConnectionWindow, Outcome::Refuted)]);
        assert_eq!(at_server, [Role::Front.words()]);
    }
}
