//! Programs in Go, each in a folder beside this file: peers that are not ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use h2lab_net::process;

use crate::support::{folder, need};

/// A program, built when it is first asked for.
pub struct GoProgram {
    folder: &'static str,
    built: OnceLock<Option<tempfile::TempDir>>,
}

impl GoProgram {
    /// The program in this folder.
    pub const fn new(folder: &'static str) -> Self {
        Self { folder, built: OnceLock::new() }
    }

    /// Where it is; `None` if the tests are to do without Go.
    pub fn path(&self) -> Option<PathBuf> {
        let built = self.built.get_or_init(|| {
            let go = need("go")?;
            let place = folder();
            let files =
                Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration")).join(self.folder);
            for file in fs::read_dir(files).expect("it is in the repository").flatten() {
                fs::copy(file.path(), place.path().join(file.file_name())).expect("a temporary file");
            }
            let mut command = Command::new(go);
            command.current_dir(place.path()).args(["build", "-o", "program", "."]);
            // The first time it fetches the modules and builds them and the standard library.
            let (status, said) = process::run(command, Duration::from_secs(300)).expect("go runs");
            assert!(status.success(), "{said}");
            Some(place)
        });
        Some(built.as_ref()?.path().join("program"))
    }
}
