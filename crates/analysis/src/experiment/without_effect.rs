//! Changes that were tried without effect, and the fixes that they leave.

use h2lab_model::Fix;
use h2lab_model::experiment::Knob;
use h2lab_model::settings::{Knob as Setting, Role};

use super::{Experiment, Outcome, Trial};
use crate::diagnose::Finding;

impl Experiment {
    /// The trials of the changes that remove what was found, if all of them are decided and none helped; else none. Effects are
    /// on times: what costs failed requests is not refuted by them.
    pub fn without_effect(&self, finding: &Finding) -> Vec<&Trial> {
        let is_its = |trial: &&Trial| !finding.of_failures && finding.is_removed_by(&trial.knob);
        let tried: Vec<&Trial> = self.trials.iter().filter(is_its).collect();
        let did_not_help = |trial: &&Trial| matches!(trial.outcome, Outcome::Refuted | Outcome::Worse);
        if tried.iter().all(did_not_help) { tried } else { Vec::new() }
    }

    /// The fixes of a finding without those that were tried without effect.
    pub fn fixes_left<'a>(&self, finding: &'a Finding) -> Vec<&'a Fix> {
        let tried = self.without_effect(finding);
        let is_left = |fix: &&Fix| !tried.iter().any(|trial| is_tried_by(fix, &trial.knob));
        finding.fixes.iter().filter(is_left).collect()
    }
}

impl Trial {
    /// Whether what was tried is what a fix of one of its causes advises. Of a fix in words alone that is not known.
    pub fn tries(&self, fix: &Fix) -> bool {
        fix.wish.is_some() && is_tried_by(fix, &self.knob)
    }
}

/// Whether a change is what a fix of one of its causes advises, to whatever value.
fn is_tried_by(fix: &Fix, knob: &Knob) -> bool {
    let sets = |settings: &[Setting]| fix.wish.is_some_and(|wish| settings.contains(&wish.knob));
    let is_of = |role: Role| fix.wish.is_some_and(|wish| wish.role == role);
    // Client behaviour that is no setting of the table: the fix is in words alone.
    let is_behaviour = fix.wish.is_none();
    match knob {
        Knob::Connections(_) => sets(&[Setting::UpstreamConnections]),
        Knob::NoRequestLimit => sets(&[Setting::H1Requests, Setting::H2Requests]),
        // Where the connection's window is not set, it is as large as the stream's.
        Knob::LargeWindows => {
            is_of(Role::Client) && sets(&[Setting::StreamWindow, Setting::ConnectionWindow])
        }
        Knob::LargeConnectionWindow => is_of(Role::Client) && sets(&[Setting::ConnectionWindow]),
        Knob::LargeServerWindows => {
            !is_of(Role::Client) && sets(&[Setting::StreamWindow, Setting::ConnectionWindow])
        }
        Knob::LongFrames => sets(&[Setting::MaxFrameSize]),
        Knob::HeaderTable => sets(&[Setting::HeaderTableSize]),
        Knob::NoPush => is_behaviour || sets(&[Setting::Push]),
        Knob::TlsResumption => is_behaviour || sets(&[Setting::SessionResumption]),
        Knob::Congestion(_) => sets(&[Setting::CongestionControl]),
        Knob::KeptCongestionWindow => sets(&[Setting::SlowStartAfterIdle]),
        Knob::Http1 => sets(&[Setting::UpstreamProtocol]),
        Knob::Server(setting) => is_of(Role::Front) && sets(&[setting.change.knob]),
        Knob::DefaultCredit
        | Knob::JoinedWrites
        | Knob::SingleFlight
        | Knob::KeptConnections
        | Knob::ManyStreams
        | Knob::AwaitedSettings
        | Knob::NoKeepAlive
        | Knob::NoCancellation
        | Knob::Replay => is_behaviour,
        Knob::Huffman | Knob::QuickAcks | Knob::LongQueue | Knob::NoLoss => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::settings::Wish;

    #[test]
    fn of_a_finding_only_the_fixes_that_were_tried_without_effect_are_left_out() {
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
        let trial = |knob: Knob| Trial {
            knob,
            cell: 2,
            rounds: 2,
            effect: None,
            outcome: Outcome::Confirmed,
            closes: None,
        };
        let tried =
            |knob: Knob| finding.fixes.iter().map(|fix| trial(knob.clone()).tries(fix)).collect::<Vec<_>>();
        assert_eq!(tried(Knob::Congestion("bbr".to_owned())), [false, true, false]);
        assert_eq!(tried(Knob::NoCancellation), [false, false, false], "words may advise anything");
        let of_failures = Finding { of_failures: true, ..finding };
        assert_eq!(left(&of_failures, &[more(Outcome::Refuted), bbr()]), ["connections", "bbr", "HTTP/3"]);
        // Client behaviour has no setting in the table, and a window has one at either end.
        let behaviour = Finding {
            rule: "CONN104".to_owned(),
            fixes: vec![fix("one dial for all", None)],
            ..Finding::default()
        };
        assert!(left(&behaviour, &[(Knob::SingleFlight, Outcome::Refuted)]).is_empty());
        // A change that cannot remove this form of a cause does not disprove it.
        let refuted = [(Knob::SingleFlight, Outcome::Refuted)];
        let other_form = Finding { unaffected_by: Some(Knob::SingleFlight), ..behaviour };
        assert_eq!(left(&other_form, &refuted), ["one dial for all"]);
        // Push is both: a setting of some clients, and behaviour of the others.
        let off = fix("push off", Some((Setting::Push, Role::Client)));
        let push = Finding {
            rule: "MUX107".to_owned(),
            fixes: vec![off, fix("refuse pushes", None)],
            ..Finding::default()
        };
        assert!(left(&push, &[(Knob::NoPush, Outcome::Refuted)]).is_empty());
        let windows = [Role::Client, Role::Front]
            .map(|role| fix(role.words(), Some((Setting::ConnectionWindow, role))));
        let windows = Finding { rule: "FLOW103".to_owned(), fixes: windows.to_vec(), ..Finding::default() };
        let at_server = left(&windows, &[(Knob::LargeConnectionWindow, Outcome::Refuted)]);
        assert_eq!(at_server, [Role::Front.words()]);
    }
}
