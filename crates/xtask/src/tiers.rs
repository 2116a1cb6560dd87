//! How long each part of a run took.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Names of parts and their durations, in the order in which they ended.
#[derive(Debug)]
pub struct Tiers {
    begun: Instant,
    parts: Vec<(String, Duration)>,
}

impl Tiers {
    /// The run begins.
    pub fn begin() -> Self {
        Self { begun: Instant::now(), parts: Vec::new() }
    }

    /// Runs a part, and records how long it took, whether it succeeds or not.
    pub fn time<T>(&mut self, name: impl Into<String>, part: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = part();
        self.add(name.into(), begun.elapsed());
        done
    }

    /// Records a part that ran in parallel with those before it.
    pub fn add(&mut self, name: String, taken: Duration) {
        self.parts.push((name, taken));
    }

    /// Prints the table, on stderr: stdout stays with the test results.
    pub fn print(&self) {
        eprint!("{}", self.table(self.begun.elapsed()));
    }

    fn table(&self, all: Duration) -> String {
        let width = self.parts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let mut table = "\nxtask: seconds of each tier\n".to_owned();
        for (name, taken) in self.parts.iter().chain([&("all".to_owned(), all)]) {
            let _ = writeln!(table, "  {name:<width$}  {:>7.1}", taken.as_secs_f64()); // cannot fail
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_part_and_how_long_all_took() {
        let mut tiers = Tiers::begin();
        tiers.add("lints".to_owned(), Duration::from_millis(61_500));
        tiers.add("simulation".to_owned(), Duration::from_millis(250));
        let rows = "  lints          61.5\n  simulation      0.2\n  all            61.6\n";
        let table = tiers.table(Duration::from_millis(61_600));
        assert_eq!(table, format!("\nxtask: seconds of each tier\n{rows}"));
    }
}
