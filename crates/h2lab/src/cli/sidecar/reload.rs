//! The file of a sidecar is read again while it runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use h2lab_proxy::config::Config;
use h2lab_roles::sidecar::Live;
use h2lab_roles::sidecar::registry::{Registries, Watched};

use super::super::quotable;
use super::{FIRST_ANSWERS, explained, folder_of, prepared, read_config, summary};

/// How often it is looked whether to read.
const PERIOD: Duration = Duration::from_millis(250);

/// Reads `path` again, in a thread of its own, when `reload` is set, and with `watch` when it or a file that it names has changed. What
/// is wrong is reported, and the configuration before it stays.
pub fn start(
    path: &Path,
    watch: bool,
    file: &Config,
    live: Arc<Live>,
    registries: Registries,
    reload: Arc<AtomicBool>,
) -> Result<()> {
    let path = path.to_owned();
    let mut watched = watched(&path, file);
    let mut reader = Reader { path, live, registries };
    let look = move || {
        loop {
            thread::sleep(PERIOD);
            let has_changed = watch && watched.has_changed();
            if !reload.swap(false, Ordering::Relaxed) && !has_changed {
                continue;
            }
            let result = reader.read();
            let path = reader.path.display();
            match result {
                Ok((new, summary)) => {
                    say!("{path} was read again: {summary}");
                    watched = new;
                }
                Err(error) => say!(
                    "{}\n{path} was read again; what it said before stays",
                    quotable(&format!("{error:#}"))
                ),
            }
        }
    };
    thread::Builder::new().name("reload".to_owned()).spawn(look).context("cannot start a thread")?;
    Ok(())
}

/// The file, and those that it names.
fn watched(path: &Path, file: &Config) -> Watched {
    let folder = folder_of(path);
    let named = file.files().into_iter().map(|name| folder.join(name));
    Watched::new(std::iter::once(path.to_owned()).chain(named).collect())
}

struct Reader {
    path: PathBuf,
    live: Arc<Live>,
    registries: Registries,
}

impl Reader {
    fn read(&mut self) -> Result<(Watched, String)> {
        let file = read_config(&self.path)?;
        let watched = watched(&self.path, &file);
        let config = prepared(&self.path, file)?;
        let next = self.live.prepare(config).map_err(explained)?;
        let summary = summary(&next.config.file);
        for warning in next.config.file.warnings() {
            say!("warning: {}", quotable(&warning));
        }
        self.registries.follow(&next.config.file, FIRST_ANSWERS);
        self.live.commit(next);
        Ok((watched, summary))
    }
}
