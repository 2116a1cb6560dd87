//! What must hold between two rows, as ratios of their rounds.

use std::fmt::Write as _;

use super::super::Pair;
use super::super::ratio::Ratios;

/// What one transfer cost.
#[derive(Debug, Clone, Copy)]
pub struct TransferFigures {
    /// Gbit/s of bodies.
    pub gbit: f64,
    /// CPU-seconds of the server per GB (10⁹ bytes).
    pub server: f64,
    /// Those of the client's whole process.
    pub client: f64,
}

impl TransferFigures {
    /// Both ends together.
    pub fn both(&self) -> f64 {
        self.server + self.client
    }
}

/// Which figure is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Rate,
    Server,
    Client,
    Both,
}

impl Of {
    fn of(self, figures: &TransferFigures) -> f64 {
        match self {
            Self::Rate => figures.gbit,
            Self::Server => figures.server,
            Self::Client => figures.client,
            Self::Both => figures.both(),
        }
    }

    /// Whether a ratio is within a limit: a lower limit for rates, an upper limit for costs.
    fn holds(self, ratio: f64, limit: f64) -> bool {
        if self == Self::Rate { ratio >= limit } else { ratio <= limit }
    }
}

/// Two rows, and what must hold between them.
#[derive(Debug)]
pub struct Gate {
    /// The row of ours.
    pub ours: &'static str,
    /// The row that it is compared with.
    pub peer: &'static str,
    of: Of,
    what: &'static str,
    limit: f64,
    aim: f64,
}

const fn rate(ours: &'static str, peer: &'static str, limit: f64, aim: f64) -> Gate {
    Gate { ours, peer, of: Of::Rate, what: "rate", limit, aim }
}

const fn cost(peer: &'static str, of: Of, what: &'static str) -> Gate {
    Gate { ours: "h2c", peer, of, what, limit: 1.08, aim: 1.0 }
}

/// What step 5 promises.
pub const GATES: &[Gate] = &[
    rate("h2c", "raw", 0.95, 0.99),
    rate("h2c", "iperf3", 0.95, 0.99),
    rate("h2c", "h1", 0.97, 1.0),
    rate("h2", "rustls", 0.95, 1.0),
    cost("raw", Of::Server, "server's CPU/GB"),
    cost("raw", Of::Client, "client's CPU/GB"),
    cost("raw", Of::Both, "CPU/GB of both"),
    cost("iperf3", Of::Server, "server's CPU/GB"),
    cost("iperf3", Of::Client, "client's CPU/GB"),
    cost("iperf3", Of::Both, "CPU/GB of both"),
];

/// Whether a gate concerns the row `id`.
pub fn concern(id: &str) -> bool {
    GATES.iter().any(|gate| gate.ours == id || gate.peer == id)
}

/// Ratios of the rounds of two rows in a figure.
fn ratios(of: Of, ours: &[TransferFigures], peer: &[TransferFigures]) -> Ratios {
    let pair = |(ours, peer)| Pair { ours: of.of(ours), peer: of.of(peer) };
    Ratios::of(&ours.iter().zip(peer).map(pair).collect::<Vec<_>>())
}

/// The median ratio of a row's rates to those of its yardstick, with its interval; and that of the CPU of both ends.
pub fn beside(ours: &[TransferFigures], yardstick: &[TransferFigures]) -> String {
    let rate = ratios(Of::Rate, ours, yardstick);
    let cost = ratios(Of::Both, ours, yardstick);
    format!("{:.2} ({:.2} to {:.2}) | {:.2}", rate.median, rate.low, rate.high, cost.median)
}

/// Head of the gates' table.
pub const HEAD: &str =
    "| | ours | peer | ratio | 95 % of median | limit | aim | |\n|---|---|---|---|---|---|---|---|\n";

impl Gate {
    /// Its line of the table, and whether it holds; it does not if a row is missing.
    pub fn judge(&self, ours: &[TransferFigures], peer: &[TransferFigures]) -> (String, bool) {
        let Self { limit, aim, what, .. } = self;
        let sign = if self.of == Of::Rate { "≥" } else { "≤" };
        let mut line = format!("| {} / {}: {what} |", self.ours, self.peer);
        if ours.is_empty() || peer.is_empty() {
            let _ = writeln!(line, " | | | | {sign} {limit:.2} | {aim:.2} | **not measured** |"); // cannot fail
            return (line, false);
        }
        let found = ratios(self.of, ours, peer);
        let holds = self.of.holds(found.median, *limit);
        let _ = writeln!(
            line,
            " {:.3} | {:.3} | {:.3} | {:.3} to {:.3} | {sign} {limit:.2} | {aim:.2} | {} |",
            found.ours,
            found.peer,
            found.median,
            found.low,
            found.high,
            if holds { "" } else { "**MISSED**" },
        );
        (line, holds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::row;
    use super::*;

    fn figures(gbit: f64, cpu: f64) -> Vec<TransferFigures> {
        vec![TransferFigures { gbit, server: cpu, client: cpu }; 9]
    }

    #[test]
    fn gates_are_between_rows_that_exist() {
        assert!(GATES.iter().all(|gate| row(gate.ours).is_some() && row(gate.peer).is_some()));
    }

    #[test]
    fn a_rate_may_not_fall_below_its_limit_and_a_cost_not_exceed_it() {
        let (rate, cost) = (&GATES[0], &GATES[4]);
        assert!((rate.of, cost.of) == (Of::Rate, Of::Server));
        let peer = figures(100.0, 1.0);
        assert!(rate.judge(&figures(95.0, 9.0), &peer).1 && !rate.judge(&figures(94.9, 0.1), &peer).1);
        assert!(cost.judge(&figures(1.0, 1.08), &peer).1 && !cost.judge(&figures(999.0, 1.09), &peer).1);
    }

    #[test]
    fn what_could_not_be_measured_does_not_hold() {
        let (line, holds) = GATES[1].judge(&figures(1.0, 1.0), &[]);
        assert!(!holds && line.contains("**not measured**"), "{line}");
    }
}
