//! How long each part of a run took.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Names of parts and their durations, in the order in which they ran.
#[derive(Debug, Default)]
pub struct Tiers(Vec<(String, Duration)>);

impl Tiers {
    /// Runs a part, and notes how long it took whether it succeeds or not.
    pub fn time<T>(&mut self, name: impl Into<String>, part: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = part();
        self.0.push((name.into(), begun.elapsed()));
        done
    }

    /// Prints the table, on stderr: stdout stays with the test results.
    pub fn print(&self) {
        eprint!("{}", self.table());
    }

    fn table(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let mut table = "\nxtask: seconds of each tier\n".to_owned();
        let sum = ("all".to_owned(), self.0.iter().map(|(_, taken)| *taken).sum());
        for (name, taken) in self.0.iter().chain([&sum]) {
            let _ = writeln!(table, "  {name:<width$}  {:>7.1}", taken.as_secs_f64()); // a String takes everything
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_part_and_their_sum() {
        let tiers = Tiers(vec![
            ("lints".to_owned(), Duration::from_millis(61_500)),
            ("simulation".to_owned(), Duration::from_millis(250)),
        ]);
        let rows = "  lints          61.5\n  simulation      0.2\n  all            61.8\n";
        assert_eq!(tiers.table(), format!("\nxtask: seconds of each tier\n{rows}"));
    }
}
