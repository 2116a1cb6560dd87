//! What a page's response will refer to, sent before it comes: 103 Early Hints (RFC 8297) and pushes (RFC 9113 §8.4).
//!
//! The links are configured, or learned from `Link` of earlier responses to the same path. A table of what was learned is bounded in
//! entries and bytes, and entries expire.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use h2lab_base::units::Time;

use crate::config::{Hint, Hints};
use crate::head::{Head, Part};

/// The most pages whose links are stored.
const MOST_PAGES: usize = 1_024;
/// The most bytes of the links of a page, and of its host and path.
const MOST_BYTES: usize = 4 * 1024;
/// How long learned links are used.
const BELIEVED: Duration = Duration::from_secs(600);
/// The most links of a page that are examined.
const MOST_LINKS: usize = 32;

/// Links of pages.
#[derive(Debug, Default)]
pub struct Pages {
    configured: Vec<Hint>,
    learns: bool,
    learned: BTreeMap<Box<[u8]>, Learned>,
    /// The keys of `learned`, the oldest first.
    order: VecDeque<Box<[u8]>>,
}

#[derive(Debug)]
struct Learned {
    links: Vec<u8>,
    at: Time,
}

impl Pages {
    /// Those of a configuration. The hint of a host goes before one of every host.
    pub fn new(configured: &[Hint], hints: &Hints) -> Self {
        let mut configured = configured.to_vec();
        configured.sort_by_key(Hint::is_of_every_host);
        Self { configured, learns: hints.learn, ..Self::default() }
    }

    /// Whether there is nothing to send, now or ever.
    pub const fn are_off(&self) -> bool {
        self.configured.is_empty() && !self.learns
    }

    /// The links of the page that is asked for, as the value of a `Link` field.
    pub fn links(&self, request: &Head, now: Time) -> Option<&[u8]> {
        if self.are_off() || request.get(Part::Method) != b"GET" {
            return None;
        }
        let (authority, path) = (request.get(Part::Authority), request.get(Part::Path));
        if let Some(hint) = self.configured.iter().find(|hint| hint.is_of(authority, path)) {
            return Some(hint.links());
        }
        let learned = self.learned.get(&key(authority, path)?)?;
        (now.since(learned.at) < BELIEVED).then_some(&learned.links)
    }

    /// A response has come: stores its links for its page. Not where the request or the response concerns one user:
    /// nobody else may learn its links.
    pub fn learn(&mut self, request: &Head, response: &Head, now: Time) {
        if !self.learns || request.get(Part::Method) != b"GET" || response.status != 200 {
            return;
        }
        let is_private = |field: h2lab_wire::Field<'_>| match field.name {
            b"set-cookie" => true,
            b"cache-control" => {
                let value = field.value.to_ascii_lowercase();
                [&b"private"[..], b"no-store"]
                    .iter()
                    .any(|word| value.windows(word.len()).any(|part| part == *word))
            }
            _ => false,
        };
        if request.field(b"authorization").is_some() || response.fields().any(is_private) {
            return;
        }
        let mut links = Vec::new();
        let values = response.fields().filter(|field| field.name == b"link").map(|field| field.value);
        for member in values.flat_map(members).filter(|member| is_early(member)).take(MOST_LINKS) {
            if !links.is_empty() {
                links.extend_from_slice(b", ");
            }
            links.extend_from_slice(member);
        }
        let Some(key) = key(request.get(Part::Authority), request.get(Part::Path)) else { return };
        if links.is_empty() || links.len() > MOST_BYTES {
            // A page that has no links any more loses its entry.
            if self.learned.remove(&key).is_some() {
                self.order.retain(|other| *other != key);
            }
            return;
        }
        if self.learned.insert(key.clone(), Learned { links, at: now }).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MOST_PAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.learned.remove(&oldest);
        }
    }
}

fn key(authority: &[u8], path: &[u8]) -> Option<Box<[u8]>> {
    let key = [authority.to_ascii_lowercase().as_slice(), b" ", path].concat();
    (key.len() <= MOST_BYTES).then(|| key.into())
}

/// The members of a `Link` value (RFC 8288 §3): commas within `<>` and quotes separate none.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut in_target, mut in_quotes, mut is_escaped) = (false, false, false);
    let separates = move |byte: &u8| {
        let is_end = *byte == b',' && !in_target && !in_quotes;
        match *byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' if in_quotes => is_escaped = true,
            b'"' if !in_target => in_quotes = !in_quotes,
            b'<' if !in_quotes => in_target = true,
            b'>' if !in_quotes => in_target = false,
            _ => {}
        }
        is_end
    };
    value.split(separates).map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// The target of a member, and its parameters.
fn parts(member: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = member.strip_prefix(b"<")?;
    let end = rest.iter().position(|byte| *byte == b'>')?;
    Some((&rest[..end], &rest[end + 1..]))
}

/// Whether a parameter without quotes, or with them, has this name and lists this word.
fn has(parameters: &[u8], name: &[u8], word: &[u8]) -> bool {
    parameters.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).any(|parameter| {
        let (key, value) = match parameter.iter().position(|byte| *byte == b'=') {
            Some(at) => (&parameter[..at], &parameter[at + 1..]),
            None => (parameter, &b""[..]),
        };
        let value = value.trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        let lists = || value.split(u8::is_ascii_whitespace).any(|other| other.eq_ignore_ascii_case(word));
        key.trim_ascii().eq_ignore_ascii_case(name) && (word.is_empty() || lists())
    })
}

/// Whether a client can do something about a link before the response: fetch it, or connect.
fn is_early(member: &[u8]) -> bool {
    let rels: [&[u8]; 3] = [b"preload", b"modulepreload", b"preconnect"];
    parts(member).is_some_and(|(_, parameters)| rels.iter().any(|rel| has(parameters, b"rel", rel)))
}

/// The paths on the page's own server that links of it preload, without those that say `nopush`.
pub fn pushable(links: &[u8]) -> impl Iterator<Item = &str> {
    members(links).take(MOST_LINKS).filter_map(|member| {
        let (target, parameters) = parts(member)?;
        let target = str::from_utf8(target).ok()?;
        let is_path = target.starts_with('/') && !target.starts_with("//");
        let is_clean = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let is_wanted = has(parameters, b"rel", b"preload") && !has(parameters, b"nopush", b"");
        (is_path && is_clean && is_wanted).then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(1);

    fn head(fields: &[(&str, &str)]) -> Head {
        let mut head = Head::default();
        for (name, value) in fields {
            head.add(name.as_bytes(), &[value.as_bytes()]);
        }
        head
    }

    fn request(path: &str, fields: &[(&str, &str)]) -> Head {
        let mut request = head(fields);
        request.set(Part::Method, b"GET");
        request.set(Part::Authority, b"A.test");
        request.set(Part::Path, path.as_bytes());
        request
    }

    fn response(fields: &[(&str, &str)]) -> Head {
        let mut response = head(fields);
        response.status = 200;
        response
    }

    fn pages(learn: bool) -> Pages {
        let hint =
            Hint::new(Some("a.test"), "/page", &["</a.css>; rel=preload; as=style", "</b.js>; rel=preload"]);
        Pages::new(&[hint], &Hints { learn, ..Hints::default() })
    }

    #[test]
    fn members_are_cut_at_commas_outside_of_targets_and_quotes() {
        let all: Vec<&[u8]> = members(b"</a,b>; rel=preload; title=\"x, \\\", y\" ,, <c>").collect();
        assert_eq!(all, [&b"</a,b>; rel=preload; title=\"x, \\\", y\""[..], b"<c>"]);
        let links = b"</a>; rel=preload, </b>; rel=\"x preload\"; nopush, <//c/d>; rel=preload, <https://e/>; rel=preload, \
                      </f>; rel=next, </g h>; rel=preload, </i>;REL=\"next PRELOAD\"; as=style";
        assert_eq!(pushable(links).collect::<Vec<_>>(), ["/a", "/i"]);
    }

    #[test]
    fn what_is_configured_is_told_for_its_page() {
        let pages = pages(false);
        let links = |path: &str| pages.links(&request(path, &[]), NOW).map(<[u8]>::to_vec);
        assert_eq!(
            links("/page").as_deref(),
            Some(&b"</a.css>; rel=preload; as=style, </b.js>; rel=preload"[..])
        );
        assert_eq!(links("/page?q"), links("/page"));
        assert_eq!([links("/page/x"), links("/")], [None, None]);
        let mut post = request("/page", &[]);
        post.set(Part::Method, b"POST");
        assert_eq!(pages.links(&post, NOW), None);
    }

    #[test]
    fn the_hint_of_a_host_goes_before_one_of_every_host_wherever_it_stands() {
        let hints = [
            Hint::new(None, "/page", &["<any>; rel=preload"]),
            Hint::new(Some("b.test"), "/page", &["<b>; rel=preload"]),
            Hint::new(Some("a.TEST"), "/page", &["<a>; rel=preload"]),
            Hint::new(None, "/", &["<any>; rel=preload"]),
        ];
        for hints in [hints.to_vec(), hints.into_iter().rev().collect()] {
            let pages = Pages::new(&hints, &Hints::default());
            let links = |path: &str| pages.links(&request(path, &[]), NOW);
            assert_eq!(links("/page"), Some(&b"<a>; rel=preload"[..]));
            assert_eq!(links("/"), Some(&b"<any>; rel=preload"[..]));
        }
    }

    #[test]
    fn links_are_learned_until_they_are_old_and_never_of_one_user() {
        let mut pages = pages(true);
        let link = ("link", "</x>; rel=preload, </y>; rel=next");
        let told = |pages: &Pages, at: Time| pages.links(&request("/p", &[]), at).map(<[u8]>::to_vec);
        for (asks, says) in [
            (&[("authorization", "x")][..], &[link][..]),
            (&[], &[link, ("set-cookie", "a=b")]),
            (&[], &[link, ("cache-control", "max-age=1, Private")]),
            (&[], &[("link", "</y>; rel=next")]),
        ] {
            pages.learn(&request("/p", asks), &response(says), NOW);
            assert_eq!(told(&pages, NOW), None, "{asks:?} {says:?}");
        }
        let mut missing = response(&[link]);
        missing.status = 404;
        pages.learn(&request("/p", &[]), &missing, NOW);
        assert_eq!(told(&pages, NOW), None);
        pages.learn(&request("/p", &[]), &response(&[link]), NOW);
        assert_eq!(told(&pages, NOW).as_deref(), Some(&b"</x>; rel=preload"[..]));
        assert_eq!(told(&pages, NOW + BELIEVED), None, "it is old");
        pages.learn(&request("/p", &[]), &response(&[]), NOW);
        assert_eq!(told(&pages, NOW), None, "there are none any more");
    }

    #[test]
    fn the_table_is_bounded() {
        let mut pages = pages(true);
        let link = response(&[("link", "</x>; rel=preload")]);
        for n in 0..2 * MOST_PAGES {
            pages.learn(&request(&format!("/{n}"), &[]), &link, NOW);
        }
        assert_eq!((pages.learned.len(), pages.order.len()), (MOST_PAGES, MOST_PAGES));
        assert!(pages.links(&request("/0", &[]), NOW).is_none());
        pages.learn(&request(&"x".repeat(MOST_BYTES), &[]), &link, NOW);
        assert_eq!(pages.learned.len(), MOST_PAGES);
    }
}
