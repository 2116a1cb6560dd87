//! The flags for how much is sent, over how many connections, and how often. A flag overrides the scenario.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use h2lab_model::scenario::{ArrivalShape, Axis, ConnectionCount, Ramp, Scenario};

use super::values::{axis, duration, durations, replace, value, whole};

/// How much work.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Work (several values: comma list)")]
pub struct WorkArgs {
    /// Connections of h2, h2c and h3; auto: as many as the PFTK model needs for loss, RTT and rate
    #[arg(short = 'c', long, value_name = "LIST", value_parser = axis::<ConnectionCount>)]
    pub connections: Option<Axis<ConnectionCount>>,
    /// Maximum concurrent streams per connection
    #[arg(short = 'm', long, value_name = "LIST", value_parser = axis::<u32>)]
    pub streams: Option<Axis<u32>>,
    /// Requests per second in total, open loop
    #[arg(short = 'q', short_alias = 'R', long, alias = "qps", value_name = "LIST", value_parser = axis::<f64>)]
    pub rate: Option<Axis<f64>>,
    /// Use a closed loop with this many requests in flight
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..), conflicts_with_all = ["rate", "ramp"])]
    pub concurrency: Option<u32>,
    /// Open loop whose rate changes: 100..5000/60s, or in ten steps 100..5000/60s/10
    #[arg(long, value_name = "FROM..TO/TIME[/STEPS]", value_parser = value::<Ramp>, conflicts_with_all = ["rate", "arrival"])]
    pub ramp: Option<Ramp>,
    /// Arrival process of an open loop
    #[arg(long, value_name = "SHAPE", conflicts_with = "concurrency")]
    pub arrival: Option<ArrivalArg>,
    /// Measured time of one repetition of a cell
    #[arg(short = 'z', short_alias = 'D', long = "duration", value_name = "LIST", value_parser = durations)]
    pub measure: Option<Axis<Duration>>,
    /// Repetitions of each cell, pooled; more and longer repetitions give narrower intervals
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..))]
    pub repetitions: Option<u32>,
    /// Time before measuring in which requests are sent but not counted
    #[arg(long, alias = "warm-up-time", value_name = "TIME", value_parser = duration)]
    pub warmup: Option<Duration>,
    /// Grace period after measuring for requests in flight
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub drain: Option<Duration>,
    /// Cancel a request after this long without a response
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Seeds of all random choices
    #[arg(long, value_name = "LIST", value_parser = axis::<u64>)]
    pub seed: Option<Axis<u64>>,
    /// Quick run: the scenario's [quick] table, else one repetition of 1 s per cell
    #[arg(long, conflicts_with_all = ["repetitions", "measure"])]
    pub quick: bool,
}

/// `--arrival`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ArrivalArg {
    /// At even intervals.
    Constant,
    /// At exponentially distributed intervals.
    Poisson,
}

impl WorkArgs {
    /// The scenario of a file, quick or in full, before flags override it.
    pub fn chosen(&self, file: &Scenario) -> Result<Scenario> {
        Ok(if self.quick { file.quickened()? } else { file.in_full() })
    }

    /// Overrides the scenario's values with the flags.
    pub fn apply(&self, scenario: &mut Scenario) {
        let work = &mut scenario.work;
        replace(&mut work.warmup, self.warmup.as_ref());
        replace(&mut work.drain, self.drain.as_ref());
        replace(&mut work.timeout, self.timeout.as_ref());
        replace(&mut work.measure, self.measure.as_ref());
        if let Some(rate) = &self.rate {
            (work.rate, work.concurrency, work.ramp) = (rate.clone(), None, None);
        }
        if let Some(ramp) = self.ramp {
            // With several rates of a file, the same cell would be repeated.
            (work.ramp, work.concurrency, work.rate) = (Some(ramp), None, Axis::one(work.rate.values()[0]));
            work.arrival = ArrivalShape::Constant;
        }
        if let Some(concurrency) = self.concurrency {
            // With several rates of a file, the same cell would be repeated.
            (work.concurrency, work.rate) = (Some(concurrency), Axis::one(work.rate.values()[0]));
            work.ramp = None;
        }
        work.arrival = match self.arrival {
            Some(ArrivalArg::Constant) => ArrivalShape::Constant,
            Some(ArrivalArg::Poisson) => ArrivalShape::Poisson,
            None => work.arrival,
        };
        let matrix = &mut scenario.matrix;
        if self.connections.is_some() {
            // The flag applies to every arm.
            matrix.arms.iter_mut().for_each(|arm| arm.connections = None);
        }
        replace(&mut matrix.connections, self.connections.as_ref());
        replace(&mut matrix.streams, self.streams.as_ref());
        replace(&mut scenario.repetitions, self.repetitions.as_ref());
        replace(&mut scenario.seed, self.seed.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_look_is_the_files_own_or_one_short_repetition() {
        let own = Scenario::from_toml("repetitions = 9\n[quick]\nrepetitions = 2").unwrap();
        let quick = |file: &Scenario| WorkArgs { quick: true, ..WorkArgs::default() }.chosen(file).unwrap();
        assert_eq!((quick(&own).repetitions, quick(&Scenario::default()).repetitions), (2, 1));
        assert_eq!(WorkArgs::default().chosen(&own).unwrap().quick, None, "a run has no such table");
    }

    #[test]
    fn a_rate_on_the_command_line_ends_a_closed_loop() {
        let mut scenario = Scenario::default();
        scenario.work.concurrency = Some(8);
        let flags = WorkArgs { rate: Some(Axis::one(10.0)), ..WorkArgs::default() };
        flags.apply(&mut scenario);
        assert_eq!(scenario.work.concurrency, None);
    }

    #[test]
    fn a_concurrency_on_the_command_line_ends_an_open_loop_of_any_rates() {
        let mut scenario = Scenario::default();
        scenario.work.rate = "100,200".parse().unwrap();
        WorkArgs { concurrency: Some(8), ..WorkArgs::default() }.apply(&mut scenario);
        scenario.repetitions = 1;
        assert_eq!(scenario.plan().len(), 2, "one h1 cell and one h2c cell");
        scenario.validate().unwrap();
    }

    #[test]
    fn a_ramp_on_the_command_line_ends_a_closed_loop_and_a_rate_ends_a_ramp() {
        let mut scenario = Scenario::default();
        scenario.work.concurrency = Some(8);
        WorkArgs { ramp: "1..2/1s".parse().ok(), ..WorkArgs::default() }.apply(&mut scenario);
        assert_eq!((scenario.work.concurrency, scenario.work.ramp.is_some()), (None, true));
        WorkArgs { rate: Some(Axis::one(10.0)), ..WorkArgs::default() }.apply(&mut scenario);
        assert_eq!(scenario.work.ramp, None);
    }
}
