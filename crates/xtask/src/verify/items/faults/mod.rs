//! Servers that misbehave, a machine that lacks something, and processes that are killed or stopped, against every command: each ends by
//! itself, with the right exit code, and claims nothing that did not happen.

mod commands;
mod disturbed;
mod machine;
mod servers;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};

use super::{Item, item};
use crate::verify::started::{Ended, Ending};

/// No command here takes as long, but one that hangs: their own timeouts are about a second.
const DEADLINE: Duration = Duration::from_secs(90);

/// The seed of a run for which none was given.
pub fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) % 1_000_000
}

/// A random number: the same for the same seed and purpose.
pub fn draw(seed: u64, purpose: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, purpose).hash(&mut hasher);
    hasher.finish()
}

/// All items; what they draw at random follows from `seed`.
pub fn items(seed: u64) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for (name, server) in servers::all()? {
        let (id, is) = (name.clone(), server.is.clone());
        items.push(item(id, is, move |h2lab| commands::meet(h2lab, &name, &server, seed)));
    }
    items.extend(machine::items(seed));
    items.extend(disturbed::items(seed));
    Ok(items)
}

/// What holds for every run: it ended by itself, in time, with one of these codes, without a panic, and sent the terminal nothing
/// but text.
fn judge(ended: &Ended, allowed: &[i32]) -> Result<()> {
    match ended.ending {
        Ending::Code(code) if allowed.contains(&code) => {}
        Ending::Code(_) | Ending::Signal(_) => bail!("where {allowed:?} would be right"),
        Ending::Late => bail!("not within {} s", DEADLINE.as_secs()),
    }
    let texts = [&ended.stdout, &ended.stderr];
    ensure!(!texts.iter().any(|text| text.contains("panicked at")), "it panicked");
    let is_control = |byte: u8| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t');
    ensure!(!texts.iter().any(|text| text.bytes().any(is_control)), "it prints control characters");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ending: Ending, stdout: &str) -> Ended {
        Ended { ending, took: Duration::ZERO, stdout: stdout.to_owned(), stderr: String::new() }
    }

    #[test]
    fn a_code_that_is_not_allowed_a_signal_a_hang_a_panic_and_an_escape_sequence_are_wrong() {
        assert!(judge(&ended(Ending::Code(3), "text\n"), &[0, 3]).is_ok());
        assert!(judge(&ended(Ending::Code(2), ""), &[0, 3]).is_err());
        assert!(judge(&ended(Ending::Signal(6), ""), &[0, 3]).is_err());
        assert!(judge(&ended(Ending::Late, ""), &[0, 3]).is_err());
        assert!(judge(&ended(Ending::Code(3), "thread 'main' panicked at x"), &[3]).is_err());
        assert!(judge(&ended(Ending::Code(3), "\u{1b}[2J"), &[3]).is_err());
    }

    #[test]
    fn what_is_drawn_follows_from_the_seed() {
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert!(draw(1, "a") != draw(2, "a") && draw(1, "a") != draw(1, "b"));
    }
}
