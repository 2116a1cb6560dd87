//! The flags of who may use a bulk server.

use std::path::{Path, PathBuf};

use clap::Args;

use super::super::exit::Usage;
use h2lab_roles::origin::BearerToken;

/// What clients must show.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Serve only requests with this token (`Authorization: Bearer TOKEN`; bulk get and put: --oauth2-bearer); others get 401
    ///
    /// Other users of this machine can read it in the process list; --token-file avoids that. Without TLS, anyone on the path
    /// can read it.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// Read the token from the first line of this file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// The token, if there is to be one. Errors do not repeat it.
    pub fn token(&self) -> Result<Option<BearerToken>, Usage> {
        let (flag, text) = match (&self.token, &self.token_file) {
            (Some(token), _) => ("--token".to_owned(), Ok(token.clone())),
            (None, Some(path)) => (format!("--token-file {}", path.display()), first_line(path)),
            (None, None) => return Ok(None),
        };
        let text = text.map_err(|error| Usage(format!("{flag}: {error}")))?;
        BearerToken::new(&text).map(Some).map_err(|error| Usage(format!("{flag}: {error}")))
    }
}

fn first_line(path: &Path) -> std::io::Result<String> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
