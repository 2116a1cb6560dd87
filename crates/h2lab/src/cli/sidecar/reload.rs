//! Reloads the configuration file of a sidecar while it runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use h2lab_proxy::config::Config;
use h2lab_roles::sidecar::registry::{Registries, Watched};
use h2lab_roles::sidecar::{Live, certificates, names};

use super::super::quotable;
use super::check::summary;
use super::{FIRST_ANSWERS, explained, folder_of, prepared, read_config};

/// How often it checks whether to reload.
const PERIOD: Duration = Duration::from_millis(250);
/// How often it checks whether certificates expire.
const CERTIFICATES: Duration = Duration::from_secs(3_600);

/// Reads `path` again, in a thread of its own, when `reload` is set, and with `watch` also when it or a file that it
/// names has changed. Errors are reported, and the previous configuration stays. `watched` are the files as they were
/// before the sidecar read them, and `written` is the content of `path` at that time, without flags.
pub fn start(
    path: &Path,
    watch: bool,
    (mut watched, written): (Watched, Config),
    live: Arc<Live>,
    registries: Registries,
    reload: Arc<AtomicBool>,
) -> Result<()> {
    let path = path.to_owned();
    let mut reader = Reader { path, live, registries, written };
    let look = move || {
        let mut said = certificates::Said::default();
        let all = |live: &Live| certificates::as_of_now(&live.state().1.config.certificates);
        // The warnings that were already reported at the start.
        said.anew(&all(&reader.live));
        let mut looked_at = Instant::now();
        loop {
            thread::sleep(PERIOD);
            if looked_at.elapsed() > CERTIFICATES {
                looked_at = Instant::now();
                for warning in said.anew(&all(&reader.live)) {
                    say!("warning: {}", quotable(&warning));
                }
            }
            let has_changed = watch && watched.has_changed();
            if !reload.swap(false, Ordering::Relaxed) && !has_changed {
                continue;
            }
            let result = reader.read(&mut watched);
            let path = reader.path.display();
            match result {
                Ok(summary) => {
                    reader.live.reloaded(None);
                    say!("{path}: reloaded: {summary}");
                    said.anew(&all(&reader.live));
                }
                Err(error) => {
                    let why = quotable(&format!("{error:#}"));
                    say!("error: {why}\n{path}: reload failed; the previous configuration stays in effect");
                    let lines: Vec<&str> = why.lines().map(str::trim).collect();
                    reader.live.reloaded(Some(lines.join(" ")));
                }
            }
        }
    };
    thread::Builder::new().name("reload".to_owned()).spawn(look).context("cannot start a thread for it")?;
    Ok(())
}

/// Those that the file at `path` names.
pub(super) fn named(path: &Path, file: &Config) -> impl Iterator<Item = PathBuf> {
    let folder = folder_of(path);
    file.files().into_iter().map(move |name| folder.join(name))
}

/// Looks up the names again that have no address.
pub(super) fn look_up_again(live: &Arc<Live>) {
    if let Err(error) = names::follow(live) {
        say!("warning: names that do not resolve are not retried: {error}");
    }
}

struct Reader {
    path: PathBuf,
    live: Arc<Live>,
    registries: Registries,
    written: Config,
}

impl Reader {
    /// Puts the present content of the file into effect. `on` becomes all files that it names, also those that are
    /// missing.
    fn read(&mut self, on: &mut Watched) -> Result<String> {
        let mut watched = Watched::new(vec![self.path.clone()]); // before the read: later changes are noticed
        let mut file = read_config(&self.path)?;
        watched.add(named(&self.path, &file));
        *on = watched;
        let not_taken = file.not_taken(&self.written);
        file.keep_start(&self.live.state().1.config.file); // windows follow from `memory`
        let config = prepared(&self.path, file)?;
        let next = self.live.prepare(config).map_err(explained)?;
        let summary = summary(&next.config.file);
        for warning in next.config.warnings() {
            say!("warning: {}", quotable(&warning));
        }
        if !not_taken.is_empty() {
            say!(
                "warning: changes to {} take effect only after a restart or a hand-over (--take-over)",
                not_taken.join(", ")
            );
        }
        self.registries.follow(&next.config.file, FIRST_ANSWERS);
        self.live.commit(next);
        look_up_again(&self.live);
        Ok(summary)
    }
}
