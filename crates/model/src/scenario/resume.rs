//! What a resumed run must have in common with the original, and which parts of a scenario are never stored.

use h2lab_base::secrets::{HIDDEN, without_secrets, without_url_secrets};

use super::cell::{Cell, Target};
use super::file::Scenario;
use crate::workload::{Body, MixEntry};

/// The replacement in a stored scenario for a value that may be a secret.
pub const MASK: &str = "(not kept)";

impl Scenario {
    /// The scenario as it is stored. Contents of requests may be secrets. It keeps the names of header fields without
    /// their values, the length of a body without the body, and the values of queries only if that was asked for.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut kept = self.clone();
        let work = &mut kept.work;
        let had_body = work.body.is_some();
        mask(&mut work.headers, &mut work.body, &mut work.body_bytes, &mut work.mix);
        // That there was a body is recorded, so that filler of its length does not replace it.
        work.body = had_body.then(|| MASK.into());
        for table in kept.vary.iter_mut().chain(&mut kept.quick) {
            if let Some(toml::Value::Table(work)) = table.get_mut("work") {
                mask_table(work);
            }
        }
        if !self.work.secrets {
            let live = kept.matrix.live.iter_mut().flat_map(|live| [&mut live.url, &mut live.path]);
            live.for_each(hide);
            kept.claim = without_secrets(&kept.claim).into_owned();
            hide_paths(&mut kept.work.path, &mut kept.work.mix);
            let tables =
                kept.vary.iter_mut().chain(&mut kept.quick).filter_map(|table| table.get_mut("work"));
            tables.for_each(hide_in_table);
        }
        kept
    }

    /// The flags that must be repeated to run a stored scenario again; empty if none.
    pub fn withheld(&self) -> Vec<String> {
        let is_masked = |value: &str| value == MASK;
        let headers = self.work.headers.iter().filter(|(_, value)| is_masked(value));
        let mut flags: Vec<String> = headers.map(|(name, _)| format!("-H '{name}: …'")).collect();
        if self.work.body.as_ref().is_some_and(is_masked_body) {
            flags.push("-d …".to_owned());
        }
        flags
    }

    /// Whether it lacks what only its file contains: values of queries, or header values or bodies of kinds of requests
    /// or of variations.
    pub fn needs_its_file(&self) -> bool {
        let is_masked = |kind: &MixEntry| {
            let is_body = kind.body.as_ref().is_some_and(is_masked_body);
            is_body || kind.headers.iter().any(|(_, value)| value == MASK) || kind.path.contains(HIDDEN)
        };
        let varies = |table: &toml::Table| {
            let text = table.get("work").map(ToString::to_string).unwrap_or_default();
            text.contains(MASK) || text.contains(HIDDEN)
        };
        let work = &self.work;
        work.mix.iter().any(is_masked) || work.path.contains(HIDDEN) || self.vary.iter().any(varies)
    }

    /// The stored scenario without its masked values, so that flags can set them again.
    #[must_use]
    pub fn to_be_completed(&self) -> Self {
        let mut open = self.clone();
        open.work.headers.retain(|(_, value)| value != MASK);
        if open.work.body.as_ref().is_some_and(is_masked_body) {
            (open.work.body, open.work.body_bytes) = (None, 0);
        }
        open
    }

    /// The keys in which two scenarios differ, with both values: `work.rate was 1000, is 500`. Secrets are not compared, only
    /// whether they are there and how long a body is. Empty if the plans are the same.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let (then, now) = (leaves(&self.without_secrets()), leaves(&now.without_secrets()));
        let value = |all: &[(String, String)], key: &str| {
            all.iter()
                .find(|(other, _)| other == key)
                .map_or("not given".to_owned(), |(_, value)| value.clone())
        };
        let mut keys: Vec<&String> = then.iter().chain(&now).map(|(key, _)| key).collect();
        keys.sort();
        keys.dedup();
        let pairs = keys.into_iter().map(|key| (key, value(&then, key), value(&now, key)));
        pairs
            .filter(|(_, then, now)| then != now)
            .map(|(key, then, now)| format!("{key} was {then}, is {now}"))
            .collect()
    }
}

impl Cell {
    /// The cell as it is stored: see [`Scenario::without_secrets`].
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut kept = self.clone();
        let work = &mut kept.work;
        mask(&mut work.headers, &mut work.body, &mut work.body_bytes, &mut work.mix);
        if !work.secrets {
            hide_paths(&mut work.path, &mut work.mix);
            if let Target::Url { url } = &mut kept.target {
                hide(url);
            }
        }
        kept
    }
}

fn is_masked_body(body: &Body) -> bool {
    body.text() == Some(MASK)
}

fn hide(url: &mut String) {
    *url = without_url_secrets(url).into_owned();
}

fn hide_paths(path: &mut String, mix: &mut [MixEntry]) {
    hide(path);
    for kind in mix {
        hide(&mut kind.path);
    }
}

/// The same as [`mask`] for the table of a variation's work. The table has another form, since it has only the keys
/// that vary.
fn mask_table(work: &mut toml::Table) {
    let mask_text = |text: &mut toml::Value| *text = toml::Value::String(MASK.to_owned());
    if let Some(toml::Value::Array(headers)) = work.get_mut("headers") {
        headers.iter_mut().filter_map(|pair| pair.as_array_mut()?.get_mut(1)).for_each(mask_text);
    }
    work.get_mut("body").into_iter().for_each(mask_text);
    if let Some(toml::Value::Array(mix)) = work.get_mut("mix") {
        mix.iter_mut().filter_map(toml::Value::as_table_mut).for_each(mask_table);
    }
}

/// The same for queries.
fn hide_in_table(work: &mut toml::Value) {
    if let Some(toml::Value::String(path)) = work.get_mut("path") {
        hide(path);
    }
    if let Some(toml::Value::Array(mix)) = work.get_mut("mix") {
        mix.iter_mut().for_each(hide_in_table);
    }
}

fn mask(
    headers: &mut [(String, String)],
    body: &mut Option<Body>,
    body_bytes: &mut u64,
    mix: &mut [MixEntry],
) {
    let of_kinds = mix.iter_mut().flat_map(|kind| &mut kind.headers);
    headers.iter_mut().chain(of_kinds).for_each(|(_, value)| MASK.clone_into(value));
    match body.take() {
        // The length of a masked body was stored when it was masked.
        Some(body) if !is_masked_body(&body) => *body_bytes = body.bytes().len() as u64,
        _ => {}
    }
    // A kind has no key for a length: only that there was a body is recorded.
    mix.iter_mut().filter_map(|kind| kind.body.as_mut()).for_each(|body| *body = MASK.into());
}

/// Every value of a scenario with its key: `link.uplink.loss`.
fn leaves(scenario: &Scenario) -> Vec<(String, String)> {
    let table: toml::Table = toml::from_str(&scenario.to_toml()).expect("it was written just now");
    let mut found = Vec::new();
    collect("", &toml::Value::Table(table), &mut found);
    found
}

fn collect(key: &str, value: &toml::Value, found: &mut Vec<(String, String)>) {
    match value {
        toml::Value::Table(table) => {
            for (name, inner) in table {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect(&key, inner, found);
            }
        }
        // An axis of one value is treated like a single value.
        toml::Value::Array(values) if values.len() == 1 => collect(key, &values[0], found),
        toml::Value::String(text) => found.push((key.to_owned(), text.clone())),
        other => found.push((key.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Scenario {
        let mut scenario = Scenario::default();
        scenario.work.headers = vec![("authorization".to_owned(), "Bearer x".to_owned())];
        scenario.work.body = Some("hidden".into());
        scenario
    }

    #[test]
    fn neither_values_of_fields_nor_bodies_are_kept_but_that_there_were_some_is() {
        let kept = secret().without_secrets();
        let text = kept.to_toml();
        assert!(
            !text.contains("Bearer") && !text.contains("hidden") && text.contains("authorization"),
            "{text}"
        );
        assert_eq!(
            (kept.work.body_bytes, kept.withheld()),
            (6, vec!["-H 'authorization: …'".to_owned(), "-d …".to_owned()])
        );
        assert_eq!(kept.without_secrets(), kept, "once is enough");
        assert!(Scenario::default().without_secrets().withheld().is_empty());
        assert!(!kept.needs_its_file());
    }

    #[test]
    fn queries_are_not_kept_unless_that_was_asked_for_and_what_varies_has_no_secret_either() {
        let text = "[work]\npath = '/a?t=s3cret'\n[[vary]]\nwork = { path = '/b?s3cret', headers = [['x-key', 's3cret']], \
                    body = 's3cret', mix = [{ path = '/c?t=s3cret', weight = 1 }] }";
        let scenario = Scenario::of_a_run(text).unwrap();
        let kept = scenario.without_secrets();
        assert!(!kept.to_toml().contains("s3cret"), "{}", kept.to_toml());
        assert!(kept.to_toml().contains("/a?t=***") && kept.needs_its_file());
        assert_eq!((kept.without_secrets(), kept.differences(&scenario)), (kept.clone(), Vec::new()));
        let asked = Scenario::of_a_run("[work]\npath = '/a?t=s3cret'\nsecrets = true").unwrap();
        assert!(asked.without_secrets().to_toml().contains("/a?t=s3cret"));
        let mut cell = asked.plan().swap_remove(0);
        assert_eq!(cell.without_secrets().work.path, "/a?t=s3cret");
        (cell.work.secrets, cell.target) = (false, Target::Url { url: "http://h/a?t=s3cret".to_owned() });
        let kept = cell.without_secrets();
        assert_eq!((kept.work.path.as_str(), kept.target.name()), ("/a?t=***", "http://h/a?t=***"));
    }

    #[test]
    fn a_stored_scenario_that_is_given_its_secrets_again_is_the_same() {
        let mut again = secret().without_secrets().to_be_completed();
        assert!(again.withheld().is_empty());
        again.work.headers = secret().work.headers;
        again.work.body = Some("HIDDEN".into());
        let stored = secret().without_secrets();
        assert_eq!(stored.differences(&again), Vec::<String>::new(), "what it is cannot be compared");
        again.work.body = Some("longer than before".into());
        assert_eq!(stored.differences(&again), ["work.body-bytes was 6, is 18"]);
        again.work.body = None;
        again.work.body_bytes = 6;
        assert_eq!(stored.differences(&again), ["work.body was (not kept), is not given"]);
    }

    #[test]
    fn differences_are_named_by_key_with_both_values() {
        let then = Scenario::default();
        let now = Scenario::from_toml("repetitions = 3\n[link]\nloss = ['0%', '3%']").unwrap();
        assert_eq!(then.differences(&then), Vec::<String>::new());
        let rendered = then.differences(&now);
        assert_eq!(rendered.len(), 2, "{rendered:?}");
        assert!(rendered[0].starts_with("link.loss was 0%, is ["), "{rendered:?}");
        assert_eq!(rendered[1], "repetitions was 2, is 3");
    }
}
