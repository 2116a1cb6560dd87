//! Runs a command on the client's side of an emulated link and says what the link did.
//!
//! `cargo run --example link -- 12.5ms 3% 1 ping -c 100 -i 0.01 10.9.0.2`: one-way delay, loss, seed, command.

use std::process::ExitCode;
use std::time::Instant;

use h2lab::topology::{Namespaces, Pump, PumpOptions, Side, TopologySpec, enter};
use h2lab_core::link::{Impairment, LinkSpec, LossModel};
use h2lab_core::units::parse_duration;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [delay, loss, seed, program, rest @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: link DELAY LOSS SEED COMMAND [ARGUMENT…]");
    };
    let impairment = Impairment {
        delay: parse_duration(delay)?,
        loss: LossModel::bernoulli(loss.parse()?),
        ..Impairment::default()
    };
    let seed = seed.parse()?;
    let start = Instant::now();
    let entered = enter()?;
    let namespaces = Namespaces::create(&TopologySpec::default())?;
    eprintln!("{entered:?}, set up in {:?}, {:?}", start.elapsed(), namespaces.congestion());
    let pump = Pump::start(&namespaces, &LinkSpec::symmetric(impairment), seed, PumpOptions::default())?;
    let status = namespaces.command(Side::Client, program).args(rest).status()?;
    let result = pump.stop()?;
    eprintln!("{:#?}\n{:?}, {} packets in the ledger", result.summary, result.priority, result.packets.len());
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
