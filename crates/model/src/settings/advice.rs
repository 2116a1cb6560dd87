//! From a knob and a value to a fix for the product that was seen.

use super::{Knob, Peer, Role, Setting, Version, products};
use crate::Fix;

/// The `setting` of a fix for a product of which nothing is known.
pub const NOT_KNOWN: &str = "unknown";
/// The `setting` of a fix where the product has none.
pub const NONE: &str = "none";

/// What must change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// What.
    pub knob: Knob,
    /// At which end.
    pub role: Role,
    /// To at least this: bytes, a count or milliseconds. `None` where there is nothing to count.
    pub value: Option<u64>,
}

/// The fix for `peer`: the line to write and what it costs; why there is none; or, for a product that we do not know, how those that
/// we know write it.
pub fn advise(peer: &Peer, wish: Wish) -> Fix {
    let Some(product) = peer.product else {
        return Fix::new(&peer.words(), NOT_KNOWN, unknown(wish));
    };
    let entries: Vec<&Setting> = product.entries(wish.knob, wish.role).collect();
    match fitting(&entries, peer.version.as_ref()) {
        Some(setting) => {
            let line = line(setting, wish);
            let is_capped = line.as_ref().is_some_and(|(_, is_capped)| *is_capped);
            let text = line.as_ref().map_or(NONE, |(text, _)| text);
            let why = why(setting, is_capped, older(&entries, setting, peer), wish);
            Fix { wish: Some(wish), ..Fix::new(&product.name, text, why) }
        }
        None if entries.is_empty() => {
            let why = format!("we know of no setting of {} for {}", product.name, wish.knob.words());
            Fix::new(&product.name, NOT_KNOWN, why)
        }
        None => {
            let (seen, what) = (peer.words(), wish.knob.words());
            let why = format!("{seen} has no setting for {what}: {}", others(&entries, wish));
            Fix::new(&product.name, NONE, why)
        }
    }
}

/// What is written in the configuration of `peer` if `seen` were let through; `None` if it is the same number, or not
/// known.
pub fn written(peer: &Peer, knob: Knob, role: Role, seen: u64) -> Option<u64> {
    let entries: Vec<&Setting> = peer.product?.entries(knob, role).collect();
    let setting = fitting(&entries, peer.version.as_ref()).filter(|setting| setting.more > 0)?;
    seen.checked_sub(setting.more)
}

/// The entry for a version, else the newest.
pub(super) fn fitting<'a>(entries: &[&'a Setting], version: Option<&Version>) -> Option<&'a Setting> {
    match version {
        Some(version) => entries.iter().find(|setting| setting.is_in(version)).copied(),
        None => entries.last().copied(),
    }
}

/// Which setting a program lacks because it is too old. It named the setting in quotes, as programs do that refuse a
/// configuration.
pub fn newer(peer: &Peer, said: &str) -> Option<String> {
    let (product, version) = (peer.product?, peer.version.as_ref()?);
    let is_named =
        |name: &str| ['"', '\''].iter().any(|quote| said.contains(&format!("{quote}{name}{quote}")));
    let mut named = product
        .settings
        .iter()
        .filter_map(|setting| Some((setting, setting.name.as_deref()?, setting.from.as_ref()?)));
    let (setting, name, from) = named.find(|(_, name, from)| *from > version && is_named(name))?;
    let entries: Vec<&Setting> = product.entries(setting.knob, setting.role).collect();
    let here = fitting(&entries, Some(version)).and_then(|setting| setting.name.as_ref());
    let here = here.map_or("it has nothing for it".to_owned(), |name| format!("there it is `{name}`"));
    Some(format!("`{name}` is known since {from}, and this is {}: {here}", peer.words()))
}

/// The entries of other versions; `None` if the version of `peer` is known, so that they do not matter.
fn older<'a>(entries: &[&'a Setting], chosen: &Setting, peer: &Peer) -> Option<Vec<&'a Setting>> {
    let others = entries.iter().copied().filter(|entry| !std::ptr::eq(*entry, chosen));
    // That there is none before a setting's first version is told by its range.
    peer.version.is_none().then(|| others.filter(|entry| entry.write.is_some()).collect())
}

/// Where it stands, what it costs, and what other versions have.
fn why(setting: &Setting, is_capped: bool, older: Option<Vec<&Setting>>, wish: Wish) -> String {
    let mut why: Vec<String> = setting.none.iter().cloned().collect();
    if is_capped {
        why.push("the most that it takes".to_owned());
    }
    why.extend(setting.place.clone());
    why.extend(setting.default.as_ref().map(|default| format!("{default} by default")));
    why.extend(setting.side.clone());
    why.extend((setting.more > 0).then(|| format!("it lets through {} more than is written", setting.more)));
    if let Some(older) = older {
        why.extend(setting.versions());
        why.extend((!older.is_empty()).then(|| others(&older, wish)));
    }
    why.join("; ") + unchecked(setting)
}

/// How many products are named where the server's is not known.
const FIRST: usize = 4;

/// How products that we know write it, each with its name. `None` if none has a setting.
pub fn known(wish: Wish) -> Option<String> {
    let each: Vec<String> = products()
        .iter()
        .filter_map(|product| {
            let entries: Vec<&Setting> = product.entries(wish.knob, wish.role).collect();
            let has_setting = entries.iter().any(|setting| setting.write.is_some());
            has_setting.then(|| format!("{} {}", product.name, others(&entries, wish)))
        })
        .collect();
    (!each.is_empty()).then(|| each.join("; "))
}

/// How proxies write it. Those whose default is `announced`, as a peer was seen to have, come first. `None` if none has
/// a setting.
pub fn proxies(wish: Wish, announced: Option<u64>) -> Option<String> {
    let mut each: Vec<(bool, String)> = Vec::new();
    for product in products().iter().filter(|product| product.proxy) {
        let entries: Vec<&Setting> = product.entries(wish.knob, wish.role).collect();
        if !entries.iter().any(|setting| setting.write.is_some()) {
            continue;
        }
        let its = |setting: &&&Setting| announced.is_some() && default_size(setting) == announced;
        let seen = entries.iter().find(its).map(|setting| {
            let versions = setting.versions().map_or(String::new(), |versions| format!(" {versions}"));
            format!(" (its default{versions}, {}, is what is announced here)", announced.unwrap_or(0))
        });
        let text = format!("{} {}", product.name, others(&entries, wish));
        each.push((seen.is_none(), text + &seen.unwrap_or_default()));
    }
    each.sort_by_key(|(is_other, _)| *is_other);
    let each: Vec<String> = each.into_iter().map(|(_, text)| text).collect();
    (!each.is_empty()).then(|| each.join("; "))
}

/// The default of a setting in bytes: `65535`, `64k`.
fn default_size(setting: &Setting) -> Option<u64> {
    let text = setting.default.as_deref()?;
    match text.strip_suffix('k') {
        Some(kibi) => kibi.parse::<u64>().ok()?.checked_mul(1024),
        None => text.parse().ok(),
    }
}

fn unknown(wish: Wish) -> String {
    let nothing = format!("we do not know this product's setting for {}", wish.knob.words());
    known(wish).map_or(nothing.clone(), |known| format!("{nothing}; elsewhere: {}", first(&known)))
}

/// The first of `known`, and that `h2lab explain` has more: the reader of a finding has only one of these products.
pub fn first(known: &str) -> String {
    match known.match_indices("; ").nth(FIRST - 1) {
        Some((end, _)) => format!("{}; `h2lab explain` has more", &known[..end]),
        None => known.to_owned(),
    }
}

/// The line to write, and whether its range ends below what is wanted; `None` if there is no setting.
pub(super) fn line(setting: &Setting, wish: Wish) -> Option<(String, bool)> {
    let template = setting.write.as_ref()?;
    match (setting.unit, wish.value) {
        (Some(unit), Some(value)) => {
            let written = unit.write(value, setting.range);
            Some((template.replace("{value}", &written.number.to_string()), written.is_capped))
        }
        // Where the caller has no value the name alone says what to look at.
        (Some(_), None) => Some((setting.name.clone()?, false)),
        (None, _) => Some((template.clone(), false)),
    }
}

/// What versions have, the newest first: `` `a` since 3.0, `b` before 3.0``.
fn others(entries: &[&Setting], wish: Wish) -> String {
    entries.iter().rev().map(|setting| one(setting, wish)).collect::<Vec<_>>().join(", ")
}

/// What a range of versions has: `` `a` since 3.0``.
pub(super) fn one(setting: &Setting, wish: Wish) -> String {
    let text = line(setting, wish).map_or_else(|| NONE.to_owned(), |(text, _)| format!("`{text}`"));
    let versions = setting.versions().map_or(String::new(), |versions| format!(" {versions}"));
    format!("{text}{versions}{}", unchecked(setting))
}

fn unchecked(setting: &Setting) -> &'static str {
    if setting.checked.is_empty() { " (unchecked)" } else { "" }
}
