//! The result of an item: figures, each of which holds or does not.

use std::fmt;

/// One figure, as it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemFigure {
    /// Whether the promise holds for it; `None` for a figure that only informs.
    holds: Option<bool>,
    text: String,
}

impl fmt::Display for ItemFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.holds {
            None => "     ",
            Some(true) => "ok   ",
            Some(false) => "FAIL ",
        };
        write!(f, "{mark}{}", self.text)
    }
}

/// All figures of an item.
#[derive(Debug, Default)]
pub struct ItemOutcome {
    figures: Vec<ItemFigure>,
}

impl ItemOutcome {
    /// An item that could not be shown at all.
    pub fn broken(error: &anyhow::Error) -> Self {
        let mut outcome = Self::default();
        outcome.check(false, format!("{error:#}"));
        outcome
    }

    /// Adds a figure that only informs.
    pub fn note(&mut self, text: impl Into<String>) {
        self.figures.push(ItemFigure { holds: None, text: text.into() });
    }

    /// Adds a figure for which the promise holds or does not.
    pub fn check(&mut self, holds: bool, text: impl Into<String>) {
        self.figures.push(ItemFigure { holds: Some(holds), text: text.into() });
    }

    /// Adds the figures of another part of the same item. A part in which nothing was checked shows nothing.
    pub fn add(&mut self, part: Self) {
        if !part.figures.iter().any(|figure| figure.holds.is_some()) {
            self.check(false, "a part of this item checked nothing");
        }
        self.figures.extend(part.figures);
    }

    /// The figures, in the order in which they were found.
    pub fn figures(&self) -> &[ItemFigure] {
        &self.figures
    }

    /// Whether something was checked and all of it holds: an item without a check shows nothing.
    pub fn holds(&self) -> bool {
        let mut checks = self.figures.iter().filter_map(|figure| figure.holds).peekable();
        checks.peek().is_some() && checks.all(|holds| holds)
    }

    /// `holds` or `FAILS`.
    pub fn word(&self) -> &'static str {
        if self.holds() { "holds" } else { "FAILS" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_figure_that_fails_fails_the_item_and_notes_do_not_count() {
        let mut outcome = ItemOutcome::default();
        outcome.note("seen");
        assert!(!outcome.holds(), "nothing was checked");
        outcome.check(true, "good");
        assert!(outcome.holds());
        outcome.check(false, "bad");
        assert!(!outcome.holds());
    }

    #[test]
    fn a_part_that_checked_nothing_fails_the_whole() {
        let mut outcome = ItemOutcome::default();
        outcome.check(true, "good");
        outcome.add(ItemOutcome::default());
        assert!(!outcome.holds());
    }

    #[test]
    fn an_error_is_a_failure_with_its_whole_chain() {
        let outcome = ItemOutcome::broken(&anyhow::anyhow!("inner").context("outer"));
        assert!(!outcome.holds());
        assert_eq!(outcome.figures()[0].to_string(), "FAIL outer: inner");
    }
}
