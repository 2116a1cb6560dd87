//! What limited a transfer, in the same words wherever it is reported.

use h2lab_model::bulk::{Binding, BindingKind};
use h2lab_model::{Confidence, Fix};

/// The limit with its cause, and how sure it is unless it was seen: `the stream window (FLOW101), guessed`.
pub(super) fn named(limit: &Binding) -> String {
    match limit.confidence {
        None | Some(Confidence::Observed) => limit.words(),
        Some(sure) => format!("{}, {}", limit.words(), sure.name()),
    }
}

/// As a conclusion: `Probably limited by the CPU`. What is guessed is no fact: `Perhaps limited by the stream window (FLOW101), or
/// the sender had nothing more to send`.
pub(super) fn concluded(limit: &Binding) -> String {
    let words = limit.words();
    match limit.confidence {
        None => "No limit was found".to_owned(),
        Some(Confidence::Confirmed | Confidence::Observed) => format!("Limited by {words}"),
        Some(Confidence::Inferred) => format!("Probably limited by {words}"),
        Some(Confidence::Guessed) => {
            format!("Perhaps limited by {words}, or the sender had nothing more to send")
        }
    }
}

/// The first of its changes, as a sentence with a space before it; empty if there is none.
pub(super) fn change(limit: &Binding) -> String {
    let change = match limit.confidence {
        Some(Confidence::Guessed) => "A change that decides it",
        _ => "Change",
    };
    let fix = limit.fixes.first().filter(|fix| fix.has_setting());
    fix.map_or(String::new(), |fix| format!(" {change}: {} ({}).", fix.setting, fix.product))
}

/// What lifts it, a line each.
pub(super) fn fixes(limit: &Binding) -> Vec<String> {
    limit.fixes.iter().map(Fix::line).collect()
}

/// Whether two limits are one in a list: a guess is not reported together with what was observed.
pub(super) fn is_same(one: &Binding, other: &Binding) -> bool {
    (one.kind, &one.cause, one.confidence) == (other.kind, &other.cause, other.confidence)
}

/// Whether there is one to report.
pub(super) fn is_known(limit: &Binding) -> bool {
    limit.kind != BindingKind::Unknown
}

#[cfg(test)]
pub(super) fn testing(kind: BindingKind, confidence: Option<Confidence>) -> Binding {
    let fixes = vec![Fix::new("client", "-w 16777216", "a stream window of 16 MiB here")];
    Binding { kind, cause: None, confidence, sentence: "64 KiB of it were in flight".to_owned(), fixes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_as_surely_as_it_is_known() {
        let of = |confidence| {
            let limit = testing(BindingKind::StreamWindow, confidence);
            (named(&limit), concluded(&limit), change(&limit))
        };
        let told = |named: &str, concluded: &str, change: &str| {
            (named.to_owned(), concluded.to_owned(), format!(" {change}: -w 16777216 (client)."))
        };
        assert_eq!(
            of(Some(Confidence::Observed)),
            told("the stream window", "Limited by the stream window", "Change")
        );
        assert_eq!(
            of(Some(Confidence::Inferred)),
            told("the stream window, inferred", "Probably limited by the stream window", "Change")
        );
        assert_eq!(
            of(Some(Confidence::Guessed)),
            told(
                "the stream window, guessed",
                "Perhaps limited by the stream window, or the sender had nothing more to send",
                "A change that decides it"
            )
        );
        assert_eq!(concluded(&testing(BindingKind::Unknown, None)), "No limit was found");
    }

    #[test]
    fn what_names_no_setting_is_no_change() {
        let mut limit = testing(BindingKind::StreamWindow, Some(Confidence::Observed));
        limit.fixes[0].setting = h2lab_model::settings::NOT_KNOWN.to_owned();
        assert_eq!((change(&limit), fixes(&limit).len()), (String::new(), 1));
        limit.fixes.clear();
        assert_eq!((change(&limit), fixes(&limit).len()), (String::new(), 0));
    }
}
