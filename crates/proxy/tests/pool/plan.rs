//! What happens in a simulated run, and when.

use std::time::Duration;

use h2lab_base::units::Ratio;
use h2lab_link::LossModel;

/// Who decides how many connections there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One for each request under way.
    Http1,
    /// This many; the one with the fewest open requests carries the next.
    Fixed(usize),
    /// The pool.
    Adaptive,
}

/// An instance's server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Server {
    /// It ends a connection with a GOAWAY after this many requests.
    pub quota: Option<u32>,
    /// The time that it takes for a request, one after the other, when it is warm.
    pub warm: Duration,
    /// The time for the first request after a start; from there it falls in equal steps.
    pub cold: Duration,
    /// Requests after which it is warm.
    pub warms_up: u32,
}

/// What happens at a time.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// From now on packets are lost by this model.
    Loss(LossModel),
    /// From now on this many requests per second are due.
    Rate(f64),
    /// The instance of this number ends all of its connections with a GOAWAY: it answers what has arrived, and nothing after that.
    GoAway(usize),
    /// There is a further instance.
    Join(Server),
    /// The instance of this number is killed: its connections end with RST, and its port is closed.
    Die(usize),
    /// It is back, and cold.
    Return(usize),
}

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub kind: Kind,
    pub rtt: Duration,
    pub seed: u64,
    /// The instances that are there from the start.
    pub servers: Vec<Server>,
    /// Seconds after the first request, and what happens then.
    pub steps: Vec<(f64, Step)>,
    /// How long requests are due, in seconds.
    pub seconds: f64,
}

impl Plan {
    /// One instance that answers at once, without losses; 1,000 requests per second.
    pub fn new(kind: Kind, rtt_ms: u64, seconds: f64, seed: u64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        let steps = vec![(0.0, Step::Rate(1_000.0))];
        Self { kind, rtt, seed, servers: vec![Server::default()], steps, seconds }
    }

    pub fn with(mut self, server: Server) -> Self {
        self.servers = vec![server];
        self
    }

    pub fn at(mut self, second: f64, step: Step) -> Self {
        self.steps.push((second, step));
        self
    }

    /// Each packet is lost independently with this probability.
    pub fn losing(self, second: f64, share: f64) -> Self {
        self.at(second, Step::Loss(LossModel::bernoulli(ratio(share))))
    }

    pub fn rate(self, second: f64, per_second: f64) -> Self {
        self.at(second, Step::Rate(per_second))
    }
}

pub fn ratio(share: f64) -> Ratio {
    Ratio::new(share).expect("a share")
}
