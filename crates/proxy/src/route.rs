//! Which service a request is for.

use crate::config::Route;

/// The routes of a listener, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes {
    ordered: Vec<Entry>,
    /// The service of requests that no route takes.
    default: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    host: Option<Host>,
    path: Option<String>,
    service: u32,
}

/// The hosts of a route, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    /// Every name that ends so, with its dot.
    Below(String),
}

impl Host {
    fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let text = text.strip_suffix('.').unwrap_or(&text);
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        match text.strip_prefix('*') {
            Some(rest) if rest.starts_with('.') => Self::Below(rest.to_owned()),
            _ => Self::Name(text.to_owned()),
        }
    }

    fn takes(&self, host: &[u8]) -> bool {
        match self {
            Self::Name(name) => host.eq_ignore_ascii_case(name.as_bytes()),
            Self::Below(end) => host
                .len()
                .checked_sub(end.len())
                .is_some_and(|at| at > 0 && host[at..].eq_ignore_ascii_case(end.as_bytes())),
        }
    }

    /// The more specific it is, the earlier it is tried.
    fn weight(&self) -> usize {
        match self {
            Self::Name(_) => usize::MAX,
            Self::Below(end) => end.len(),
        }
    }
}

impl Routes {
    /// The routes of a listener; `number` gives the number of a service, and `default` is that of requests that no route takes.
    pub fn new(routes: &[Route], default: Option<u32>, number: impl Fn(&str) -> u32) -> Self {
        let entry = |route: &Route| Entry {
            host: route.host.as_deref().map(Host::of),
            path: route.path.clone(),
            service: number(&route.service),
        };
        let mut ordered: Vec<Entry> = routes.iter().map(entry).collect();
        let rank = |entry: &Entry| {
            let host = entry.host.as_ref().map_or(0, Host::weight);
            std::cmp::Reverse((host, entry.path.as_ref().map_or(0, String::len)))
        };
        // Stable: of equals the first in the file.
        ordered.sort_by_key(rank);
        Self { ordered, default }
    }

    /// The service of a request.
    pub fn service(&self, authority: &[u8], path: &[u8]) -> Option<u32> {
        let host = host_of(authority);
        let takes = |entry: &&Entry| {
            let is_host = entry.host.as_ref().is_none_or(|name| name.takes(host));
            is_host && entry.path.as_deref().is_none_or(|prefix| is_below(path, prefix.as_bytes()))
        };
        self.ordered.iter().find(takes).map(|entry| entry.service).or(self.default)
    }
}

/// The host of an authority, without port, the brackets of IPv6 and the dot that ends an absolute name.
pub(crate) fn host_of(authority: &[u8]) -> &[u8] {
    if let Some(rest) = authority.strip_prefix(b"[") {
        return rest.split(|byte| *byte == b']').next().unwrap_or_default();
    }
    let host = authority.split(|byte| *byte == b':').next().unwrap_or_default();
    host.strip_suffix(b".").unwrap_or(host)
}

/// Why a route's host matches no request, if it matches none.
pub(crate) fn why_no_host(host: &str) -> Option<&'static str> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match bare {
        "" => Some("it is empty; leave host out to match every host"),
        "*" => Some("* alone is not a name; leave host out to match every host"),
        "*." => Some("a name must follow, as in *.example.test"),
        _ if !bare.is_ascii() => Some("write it as requests do, in ASCII (xn--…)"),
        _ if bare.strip_prefix("*.").unwrap_or(bare).contains('*') => {
            Some("* is allowed only as the first label, as in *.example.test")
        }
        _ if bare.contains(':') && bare.parse::<std::net::Ipv6Addr>().is_err() => {
            Some("remove the port: hosts match on any port")
        }
        _ => None,
    }
}

/// Whether a path is this one, or below it.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(prefix) else { return false };
    prefix.ends_with(b"/") || matches!(rest.first(), None | Some(b'/' | b'?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(list: &[(&str, &str)], default: Option<u32>) -> Routes {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let routes: Vec<Route> = (0..)
            .zip(list)
            .map(|(n, (host, path)): (u32, _)| Route {
                host: given(host),
                path: given(path),
                service: n.to_string(),
            })
            .collect();
        Routes::new(&routes, default, |name| name.parse().expect("a number"))
    }

    #[test]
    fn the_host_decides_before_the_path_and_the_longest_path_wins() {
        let routes = routes(
            &[
                ("", "/"),
                ("", "/api"),
                ("a.test", ""),
                ("a.test", "/api"),
                ("*.b.test", ""),
                ("*.c.b.test", ""),
            ],
            Some(9),
        );
        let of = |host: &str, path: &str| routes.service(host.as_bytes(), path.as_bytes());
        assert_eq!(of("x", "/"), Some(0));
        assert_eq!(
            [of("x", "/api"), of("x", "/api/1"), of("x", "/api?q"), of("x", "/apis")],
            [1, 1, 1, 0].map(Some)
        );
        assert_eq!([of("A.test:8080", "/"), of("a.test", "/api/x")], [2, 3].map(Some));
        assert_eq!(
            [of("x.b.test", "/api"), of("y.c.b.test", "/"), of("b.test", "/api")],
            [4, 5, 1].map(Some)
        );
        assert_eq!(of("x", "*"), Some(9), "OPTIONS * is below no path");
    }

    #[test]
    fn without_a_default_what_no_route_takes_goes_nowhere() {
        let routes = routes(&[("a", "/x/")], None);
        assert_eq!(routes.service(b"a", b"/x/y"), Some(0));
        assert_eq!([routes.service(b"a", b"/x"), routes.service(b"b", b"/x/y")], [None, None]);
        assert_eq!(Routes::default().service(b"", b""), None);
    }

    #[test]
    fn a_host_is_taken_however_it_is_written() {
        let routes = routes(&[("[2001:db8::1]", ""), ("a.test.", ""), ("*.b.test", "")], None);
        assert_eq!(routes.service(b"[2001:db8::1]:8080", b"/"), Some(0));
        assert_eq!([routes.service(b"a.test", b"/"), routes.service(b"A.test.:80", b"/")], [Some(1); 2]);
        assert_eq!(routes.service(b"x.b.test.", b"/"), Some(2));
    }

    #[test]
    fn hosts_that_take_no_request_are_refused() {
        for host in ["", "*", "*.", "a:80", "[::1]:80", "a.*", "*.*.test", "b\u{fc}cher.test"] {
            assert!(why_no_host(host).is_some(), "{host}");
        }
        for host in ["a", "*.a", "::1", "[::1]", "192.0.2.1", "a."] {
            assert_eq!(why_no_host(host), None, "{host}");
        }
    }

    #[test]
    fn an_address_is_a_host_without_its_brackets() {
        let routes = routes(&[("2001:db8::1", "")], None);
        assert_eq!(routes.service(b"[2001:DB8::1]:80", b"/"), Some(0));
        assert_eq!(routes.service(b"[2001:db8::2]", b"/"), None);
        assert_eq!(routes.service(b"[", b"/"), None);
    }
}
