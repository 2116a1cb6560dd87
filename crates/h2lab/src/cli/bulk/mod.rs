//! `h2lab bulk`: large transfers, both ends.

mod drive;
mod get;
pub mod kept;
mod put;
mod serve;
mod token;
mod transfer;
mod uploads;
mod view;

use anyhow::Result;
use clap::{Args, Subcommand};
use h2lab_model::workload::EngineSettings;

use super::client::ClientArgs;
use super::exit::Usage;
use super::{Exit, help};

/// Transfer large files fast, and report what limited the throughput
///
/// `bulk get` fetches files whole or in parts, over several streams and connections of h1, h1s, h2, h2c or h3;
/// interrupted transfers can be resumed, and files are checked against the server's checksum. Any server that supports ranges
/// will do: nginx, Apache, Caddy. `bulk put` does the same in the other direction. `bulk serve` serves a folder, or bytes from
/// memory to measure the network alone; curl works with it too. `bulk drive` runs clients and
/// servers on several machines at once, and reports their joint throughput.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab bulk serve --listen 127.0.0.1:8080 --memory", "any number of bytes, at /bytes/10G"),
        ("h2lab bulk get --discard --http2-prior-knowledge http://127.0.0.1:8080/bytes/10G", "how fast is the network?"),
        ("h2lab bulk serve --tls-listen 0.0.0.0:8443 --h3 /srv/data", "a folder, over h1s, h2 and h3"),
        ("h2lab bulk put -c 4 data.tar https://127.0.0.1:8443/", "a file, to a server with --writable"),
        ("h2lab bulk get -c 4 https://service.example/data.tar", "one file in parts, over four connections"),
        ("h2lab bulk drive --clients ssh:kek-1,ssh:kek-2 --servers ssh:lyon-1,ssh:lyon-2 -z 60s", "two clients, two servers"),
    ],
))]
pub struct BulkArgs {
    #[command(subcommand)]
    command: Command,
}

// A subcommand is described at its arguments: a doc comment here would replace all of that in the help.
#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Get(Box<get::GetArgs>),
    Put(Box<put::PutArgs>),
    Drive(Box<drive::DriveArgs>),
}

/// Runs the subcommand.
pub fn main(args: &BulkArgs, command_line: Vec<String>) -> Result<Exit> {
    match &args.command {
        Command::Serve(args) => serve::main(args),
        Command::Get(args) => get::main(args, command_line),
        Command::Put(args) => put::main(args, command_line),
        Command::Drive(args) => drive::main(args, command_line),
    }
}

/// Header fields that say which bytes of a file move, and by which checksum: each request has its own.
const OF_A_PART: [&str; 8] = [
    "accept-encoding",
    "content-range",
    "if-range",
    "range",
    "repr-digest",
    "te",
    "trailer",
    "want-repr-digest",
];

/// Further header fields of each request, and the settings of the engine, checked.
fn fields_and_settings(client: &ClientArgs) -> Result<(Vec<(String, String)>, EngineSettings), Usage> {
    let (fields, settings) = client.checked()?;
    match fields.iter().find(|(name, _)| OF_A_PART.contains(&name.as_str())) {
        Some((name, _)) => Err(Usage(format!(
            "-H/--header must not set `{name}`: h2lab sets it for the part of a file that it requests"
        ))),
        None => Ok((fields, settings)),
    }
}
