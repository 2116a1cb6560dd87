//! The score card.

use crate::probe::{Check, ChecklistItem, Mark, Severity, Verdict};

/// A line for each check that was decided, after one with the grade.
///
/// The grade is that of the worst failure: A without any, B with minor ones (low), C medium, D high, E critical.
pub fn score_card(checks: &[Check]) -> Vec<ChecklistItem> {
    let graded: Vec<&Check> = checks.iter().filter(|check| check.id.starts_with("CLNT")).collect();
    let decided =
        graded.iter().filter(|check| matches!(check.verdict, Verdict::Pass | Verdict::Fail)).count();
    if decided == 0 {
        return Vec::new();
    }
    let passed = graded.iter().filter(|check| check.verdict == Verdict::Pass).count();
    let failed: Vec<&&Check> = graded.iter().filter(|check| check.verdict == Verdict::Fail).collect();
    let worst = failed.iter().map(|check| check.severity).max();
    let grade = match worst {
        None => 'A',
        Some(Severity::Info | Severity::Low) => 'B',
        Some(Severity::Medium) => 'C',
        Some(Severity::High) => 'D',
        Some(Severity::Critical) => 'E',
    };
    let ids = |checks: &[&&Check]| checks.iter().map(|check| check.id.clone()).collect();
    let why = worst.map_or_else(String::new, |worst| format!("; the worst failure is {worst}"));
    let mut card = vec![ChecklistItem {
        item: format!("grade {grade}"),
        mark: if failed.is_empty() { Mark::Ticked } else { Mark::Crossed },
        why: format!("{passed} of {decided}{why}"),
        checks: ids(&failed),
    }];
    card.extend(graded.iter().map(|check| ChecklistItem {
        item: check.name.clone(),
        mark: match check.verdict {
            Verdict::Pass => Mark::Ticked,
            Verdict::Fail => Mark::Crossed,
            Verdict::Ignored | Verdict::Unsupported | Verdict::Undecided => Mark::Open,
        },
        why: check.summary.split([':', ';']).next().unwrap_or_default().to_owned(),
        checks: vec![check.id.clone()],
    }));
    card
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::id;

    #[test]
    fn the_grade_is_that_of_the_worst_failure() {
        let pass = Check::new(id::CLNT102, Verdict::Pass, "well: so");
        let low = Check::new(id::CLNT102, Verdict::Fail, "x");
        let high = Check::new(id::CLNT106, Verdict::Fail, "y");
        let open = Check::new(id::CLNT104, Verdict::Undecided, "z");
        let grade = |checks: &[Check]| {
            let card = score_card(checks);
            (card[0].item.clone(), card[0].why.clone(), card.len())
        };
        assert_eq!(grade(&[pass.clone(), open.clone()]), ("grade A".to_owned(), "1 of 1".to_owned(), 3));
        assert_eq!(grade(&[pass.clone(), low.clone()]).0, "grade B");
        let (name, why, _) = grade(&[pass, low, high]);
        assert_eq!((name.as_str(), why.as_str()), ("grade D", "1 of 3; the worst failure is high"));
        assert!(score_card(&[open]).is_empty());
    }
}
