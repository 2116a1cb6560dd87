//! Runs a command on each side of an emulated link, and prints the link's statistics.
//!
//! `cargo run --example link -- 12.5ms 3% 1 'ping -c 100 -i 0.01 10.9.0.2'`: one-way delay, loss, seed, the client's
//! command for the shell, and optionally the server's, which is at 10.9.0.2 and is not waited for.

use std::process::ExitCode;
use std::time::Instant;

use h2lab_base::units::parse_duration;
use h2lab_lab::topology::{Namespaces, Pump, PumpOptions, Side, TopologySpec, enter};
use h2lab_link::{Impairment, LinkSpec, LossModel};

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [delay, loss, seed, client, server @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: link DELAY LOSS SEED CLIENT [SERVER]");
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
    let shell = |side, command: &String| {
        let mut shell = namespaces.command(side, "sh");
        shell.args(["-c", command]);
        shell
    };
    // Ends when this process does, which is the first of its PID namespace.
    let _server = server.first().map(|command| shell(Side::Server, command).spawn()).transpose()?;
    let status = shell(Side::Client, client).status()?;
    let result = pump.stop()?;
    eprintln!(
        "{:#?}\n{:?}, {} packets in the packet log",
        result.summary,
        result.priority,
        result.packets.len()
    );
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
