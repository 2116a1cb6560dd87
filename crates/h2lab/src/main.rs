//! The `h2lab` binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    h2lab::cli::main(std::env::args_os())
}
