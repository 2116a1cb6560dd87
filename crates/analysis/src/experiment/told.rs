//! Which of several causes a change shows that takes them away together.

use h2lab_model::experiment::Knob;

use super::Trial;
use crate::diagnose::Finding;

/// Pairs of causes that one change takes away together. Where both are found it shows the first, since another
/// change takes the second away and leaves the first.
const TOGETHER: [(&str, &str); 1] = [
    // With more streams no request waits and none is refused. Requests that await the server's SETTINGS are not
    // refused, and wait as before.
    ("MUX101", "CONN102"),
];

impl Finding {
    /// The finding `among` those of the cell that this change shows instead of this one, although it takes the causes of both away.
    pub fn shown_instead<'a>(
        &self,
        knob: &Knob,
        among: impl IntoIterator<Item = &'a Self>,
    ) -> Option<&'a Self> {
        let (first, _) = TOGETHER.iter().find(|(_, second)| self.rule == *second)?;
        let is_first =
            |other: &&Self| other.rule == *first && !other.is_observation() && other.is_removed_by(knob);
        among.into_iter().find(is_first).filter(|_| self.is_removed_by(knob))
    }
}

impl Trial {
    /// Whether a change that helps shows the cause of this finding, `among` those of its cell.
    pub fn shows<'a>(&self, finding: &Finding, among: impl IntoIterator<Item = &'a Finding>) -> bool {
        finding.is_removed_by(&self.knob) && finding.shown_instead(&self.knob, among).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;
    use h2lab_model::experiment::ServerSetting;
    use h2lab_model::scenario::Change;
    use h2lab_model::settings::Knob as Setting;

    #[test]
    fn of_two_causes_that_more_streams_take_away_they_show_the_limit_and_awaited_settings_the_other() {
        let change = Change { knob: Setting::MaxConcurrentStreams, value: Some(128) };
        let causes = ["MUX101", "CONN102"].map(str::to_owned).to_vec();
        let streams = Knob::Server(ServerSetting { change, words: String::new(), causes });
        let shown = |knob: &Knob, found: &[Finding]| {
            let trial = Trial {
                knob: knob.clone(),
                cell: 2,
                rounds: 2,
                effect: None,
                outcome: Outcome::Confirmed,
                closes: None,
            };
            let shown = found.iter().filter(|finding| trial.shows(finding, found));
            shown.map(|finding| finding.rule.clone()).collect::<Vec<_>>()
        };
        let finding = |rule: &str| Finding { rule: rule.to_owned(), ..Finding::default() };
        let [limit, early] = ["MUX101", "CONN102"].map(finding);
        let both = [early.clone(), limit.clone()];
        assert_eq!(shown(&streams, &both), ["MUX101"], "whichever costs more");
        assert_eq!(shown(&Knob::AwaitedSettings, &both), ["CONN102"]);
        assert_eq!(shown(&Knob::Connections(4), &both), ["MUX101"]);
        assert_eq!(shown(&streams, std::slice::from_ref(&early)), ["CONN102"], "nothing else is found");
        let observed = Finding { explains: Some(0.0), ..limit };
        assert_eq!(shown(&streams, &[early, observed])[0], "CONN102", "nothing waited that costs anything");
    }
}
