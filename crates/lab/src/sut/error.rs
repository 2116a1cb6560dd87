//! Why a server could not be started.

use std::io;
use std::path::PathBuf;

use super::package::Package;
use h2lab_net::process::WaitError;

/// Why there is no server. The text says what to do if that is known.
#[derive(Debug, thiserror::Error)]
pub enum SutError {
    /// No server has that name.
    #[error("there is no server `{name}`; known: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// Its program is not on this machine.
    #[error("{program} is not installed; {}", package.remedy())]
    Missing {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: Package,
    },
    /// Its program does not print its version: it is not the program we expect.
    #[error("{server} does not print its version; its output:\n{said}")]
    NoVersion {
        /// The server.
        server: &'static str,
        /// What it prints instead.
        said: String,
    },
    /// It rejects the configuration that we wrote: its version is not one that we know.
    #[error("{server} does not accept our configuration {}; its output:\n{said}", file.display())]
    ConfigRefused {
        /// The server.
        server: &'static str,
        /// The configuration.
        file: PathBuf,
        /// What it prints.
        said: String,
    },
    /// The user's configuration cannot be read.
    #[error("{server} cannot be started with {}: {why}", file.display())]
    OwnConfig {
        /// The server.
        server: &'static str,
        /// The configuration.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// It rejects the user's configuration.
    #[error("{server} does not accept {}; its output:\n{said}", file.display())]
    OwnRefused {
        /// The server.
        server: &'static str,
        /// The configuration.
        file: PathBuf,
        /// What it prints.
        said: String,
    },
    /// It did not listen.
    #[error("{server} does not listen: {why}; its output:\n{said}")]
    NotStarted {
        /// The server.
        server: &'static str,
        /// Whether it ended or took too long.
        why: WaitError,
        /// What it prints.
        said: String,
    },
    /// It is a proxy without an upstream.
    #[error("{server} is a proxy and has no upstream")]
    NoUpstream {
        /// The proxy.
        server: &'static str,
    },
    /// It does not support a setting that was requested; another server may.
    #[error("{server}: {why}")]
    Unsupported {
        /// The server.
        server: &'static str,
        /// What it does not support.
        why: String,
    },
    /// A folder, a file or a process could not be made.
    #[error("cannot start {server}: {source}")]
    Io {
        /// The server.
        server: &'static str,
        /// Why.
        source: io::Error,
    },
}
