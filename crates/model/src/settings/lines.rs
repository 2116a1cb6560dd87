//! Lines of pages that say what must change: the table says how each product writes it, so that no page has a product's setting.

use super::advice::one;
use super::{Knob, Peer, Product, Role, Setting, Wish, advise, products};
use crate::Fix;

/// Columns of a page.
const WIDTH: usize = 100;

/// What such a line asks for: ``- setting: `h2.stream-window.receive` front 1048576``. The value may be left out.
pub fn wish(line: &str) -> Option<Wish> {
    let (knob, rest) = line.strip_prefix("- setting: `")?.split_once("` ")?;
    let (role, value) = rest.split_once(' ').map_or((rest, None), |(role, value)| (role, Some(value)));
    let value = value.map(|value| value.parse::<u64>().ok());
    let value = match value {
        Some(None) => return None,
        other => other.flatten(),
    };
    Some(Wish { knob: knob.parse::<Knob>().ok()?, role: role.parse::<Role>().ok()?, value })
}

/// The products that have a setting for it. h2lab itself is listed only for the kernel's role: elsewhere it is not the
/// product to repair.
fn having(wish: Wish) -> impl Iterator<Item = (&'static Product, Vec<&'static Setting>)> {
    let is_wanted = move |product: &&Product| product.id != "h2lab" || wish.role == Role::Kernel;
    let entries = move |product: &'static Product| {
        let entries: Vec<&Setting> = product.entries(wish.knob, wish.role).collect();
        entries.iter().any(|setting| setting.write.is_some()).then_some((product, entries))
    };
    products().iter().filter(is_wanted).filter_map(entries)
}

/// The page with each such line replaced by what it is about and a line for each product.
pub fn expanded(page: &str) -> String {
    let lines = page.lines().flat_map(|line| match wish(line) {
        Some(wish) => {
            let title = format!("Settings {} for {}:", wish.role.words(), wish.knob.words());
            let each = having(wish).flat_map(|(product, entries)| rendered(product, &entries, wish));
            let lines = [String::new(), title, String::new()].into_iter();
            lines.chain(each).chain([String::new()]).collect()
        }
        None => vec![line.to_owned()],
    });
    let mut lines: Vec<String> = lines.collect();
    lines.dedup_by(|later, line| later.is_empty() && line.is_empty());
    lines.join("\n") + "\n"
}

/// ``- nginx: `keepalive_requests 100000;` since 1.19.7 (1000 by default), `http2_max_requests 100000;` before 1.19.7 …``.
fn rendered(product: &Product, entries: &[&Setting], wish: Wish) -> Vec<String> {
    let each = entries.iter().rev().map(|setting| {
        let default = setting.default.as_ref();
        one(setting, wish) + &default.map_or(String::new(), |default| format!(" (by default: {default})"))
    });
    let text = format!("- {}: {}", product.name, each.collect::<Vec<_>>().join(", "));
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("  {word}"));
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// The fix for each product, that for `peer` by its version; for `peer` also why it has none.
pub fn fixes(peer: &Peer, wish: Wish) -> Vec<Fix> {
    let is_peer = |product: &Product| peer.product.is_some_and(|seen| seen.id == product.id);
    let own = peer.product.filter(|product| product.entries(wish.knob, wish.role).next().is_some());
    let others = having(wish).filter(|(product, _)| !is_peer(product));
    own.map(|_| advise(peer, wish))
        .into_iter()
        .chain(others.map(|(product, _)| advise(&Peer::started(product.id), wish)))
        .collect()
}
