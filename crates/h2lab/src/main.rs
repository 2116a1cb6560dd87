//! The `h2lab` binary. Never contains: anything but the call of the library, which has everything.

use std::process::ExitCode;

fn main() -> ExitCode {
    h2lab::cli::main(std::env::args_os())
}
