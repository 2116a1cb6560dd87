//! Finds the line of an error in the file: what the types do not check is found only after the text was read.

use std::net::SocketAddr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, Instance};

/// A step from a table to what is in it.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    /// The value of a key.
    Key(&'a str),
    /// The listener with this address.
    Listener(SocketAddr),
    /// The member of the list in which this text stands, as a value or within one.
    With(&'a str),
    /// The key that a message names, if it is there.
    Named(&'a str),
}

use Step::{Key, Listener, Named, With};

/// The same error with its line, if it has one.
pub(super) fn located(text: &str, error: ConfigError) -> ConfigError {
    let Ok(root) = DeTable::parse(text) else { return error };
    let found = steps(&error).into_iter().find_map(|steps| offset(root.get_ref(), &steps));
    match found {
        Some(at) => {
            let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            ConfigError::At { line, error: Box::new(error) }
        }
        None => error,
    }
}

/// The line, from 1, in which `instance` of `service` stands, or the service, if it stands elsewhere.
pub fn instance_line(text: &str, service: &str, instance: &Instance) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let is_it = |written: &str| written.parse::<Instance>().as_ref() == Ok(instance);
    let of_service =
        DeTable::get(root.get_ref(), "service").and_then(|all| all.get_ref().as_table()?.get(service));
    let here = of_service?;
    let at =
        find(here.get_ref(), &is_it).or_else(|| offset(root.get_ref(), &[Key("service"), Key(service)]))?;
    Some(1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count())
}

/// Ways to what is wrong: the first one that exists is used.
fn steps(error: &ConfigError) -> Vec<Vec<Step<'_>>> {
    let of_service = |name| vec![Key("service"), Key(name)];
    let key_of = |name, key| vec![Key("service"), Key(name), Key(key)];
    let of_listener = |address: &SocketAddr, key| vec![Key("listen"), Listener(*address), Key(key)];
    let one = |steps| vec![steps];
    match error {
        ConfigError::UnknownService { service, .. } => one(vec![Key("listen"), With(service)]),
        ConfigError::NoRoute(address) | ConfigError::SameAddress(address) => {
            one(of_listener(address, "address"))
        }
        ConfigError::NoInstance(name)
        | ConfigError::SeveralSources(name)
        | ConfigError::ServiceName { name, .. } => one(of_service(name)),
        ConfigError::Consul { service, why } => one([key_of(service, "consul"), vec![Named(why)]].concat()),
        ConfigError::Refresh(name) | ConfigError::ShortRefresh(name) => one(key_of(name, "refresh")),
        ConfigError::SameRoute { address, .. } => one(of_listener(address, "route")),
        ConfigError::NeedsTls(address) => one(of_listener(address, "client-ca")),
        ConfigError::NoProxyProtocol(address) => one(of_listener(address, "proxy-protocol-from")),
        ConfigError::NotTransparent { key, address } => one(of_listener(address, key)),
        ConfigError::ConnectNowhere(address) => one(of_listener(address, "connect-service")),
        ConfigError::Via(_) => one(vec![Key("fields"), Key("via")]),
        ConfigError::Path(text) | ConfigError::ConnectPattern(text) => one(vec![Key("listen"), With(text)]),
        ConfigError::Hint(text)
        | ConfigError::SameHint { path: text, .. }
        | ConfigError::HintHost { host: text, .. } => one(vec![Key("hint"), With(text)]),
        ConfigError::ProxyProtocol { service, .. } => one(key_of(service, "proxy-protocol")),
        ConfigError::Overlap { admin: "", address, .. } => one(of_listener(address, "address")),
        ConfigError::AdminIsPublic(_) | ConfigError::Overlap { .. } => {
            one(vec![Key("admin"), Key("address")])
        }
        ConfigError::AdminWindow(_) => one(vec![Key("admin"), Key("window")]),
        ConfigError::Memory { .. } => one(vec![Key("memory")]),
        ConfigError::Value { place, why } => value(place, why),
        ConfigError::Time { place, why } => value(place, why),
        _ => Vec::new(),
    }
}

/// The table that `[service.NAME.TABLE]`, `[TABLE]` or a key names.
fn value<'a>(place: &'a str, why: &'a str) -> Vec<Vec<Step<'a>>> {
    if let Some(table) = place.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
        let service = table.strip_prefix("service.");
        let steps = match service.map(|rest| rest.rsplit_once('.').ok_or(rest)) {
            Some(Ok((name, table))) => vec![Key("service"), Key(name), Key(table), Named(why)],
            Some(Err(name)) => vec![Key("service"), Key(name)],
            None => vec![Key(table), Named(why)],
        };
        return vec![steps];
    }
    if let Some(name) = place.strip_prefix("service \"").and_then(|rest| rest.strip_suffix('"')) {
        return vec![vec![Key("service"), Key(name), Named(why)]];
    }
    if let Some(address) = place.strip_prefix("the listener on ").and_then(|rest| rest.parse().ok()) {
        return vec![vec![Key("listen"), Listener(address), Named(why)]];
    }
    let (key, rest) = place.split_once(' ').unwrap_or((place, ""));
    match rest.rsplit_once(' ').and_then(|(_, address)| address.parse().ok()) {
        Some(address) => vec![vec![Key("listen"), Listener(address), Key(key), Named(why)]],
        None => vec![vec![Key(key)]],
    }
}

/// The offset of what these steps lead to, or of the last step that exists.
fn offset(root: &DeTable<'_>, steps: &[Step<'_>]) -> Option<usize> {
    let mut at = None;
    let mut here: Option<&DeValue<'_>> = None;
    for step in steps {
        let table = here.map_or(Some(root), DeValue::as_table);
        let found = match step {
            Key(key) => table.and_then(|table| table.iter().find(|(name, _)| name.get_ref() == key)),
            Named(words) => table.and_then(|table| {
                let is_word = |key: &str| {
                    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
                    words.split(|c| !is_of_word(c)).any(|word| word == key)
                };
                let mut named = table.iter().filter(|(name, _)| is_word(name.get_ref()));
                named.next().filter(|_| named.next().is_none())
            }),
            Listener(address) => {
                let has_it = |table: &&Spanned<DeValue<'_>>| is_listener(table.get_ref(), *address);
                here = here.and_then(DeValue::as_array)?.iter().rfind(has_it).map(Spanned::get_ref);
                let key =
                    here.and_then(DeValue::as_table)?.iter().find(|(name, _)| name.get_ref() == "address");
                at = key.map(|(name, _)| name.span().start).or(at);
                continue;
            }
            With(text) => return here.and_then(|here| holder(here, text)).or(at),
        };
        let Some((name, value)) = found else { return at };
        at = Some(name.span().start);
        here = Some(value.get_ref());
    }
    at
}

fn is_listener(value: &DeValue<'_>, address: SocketAddr) -> bool {
    let written = value.as_table().and_then(|table| table.get("address")?.get_ref().as_str());
    written.and_then(|text| text.parse().ok()) == Some(address)
}

/// The offset of this string, at any depth.
fn holder(value: &DeValue<'_>, text: &str) -> Option<usize> {
    find(value, &|written| written == text)
}

/// The offset of a string for which `is_it` holds, at any depth.
fn find(value: &DeValue<'_>, is_it: &dyn Fn(&str) -> bool) -> Option<usize> {
    let of = |value: &Spanned<DeValue<'_>>| {
        let is_this = value.get_ref().as_str().is_some_and(is_it);
        if is_this { Some(value.span().start) } else { find(value.get_ref(), is_it) }
    };
    match value {
        DeValue::Array(items) => items.iter().find_map(of),
        DeValue::Table(table) => table.iter().find_map(|(_, value)| of(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, instance_line};

    /// The line that the error names.
    fn line(text: &str) -> String {
        let told = Config::parse(text).expect_err("it is wrong").to_string();
        told.split(':').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let listen = "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n";
        let service = "[service.a]\ninstances = ['http://a']\n";
        let with = |key: &str, table: &str| format!("{listen}{key}\n{service}{table}\n");
        for (text, expected) in [
            (listen.to_owned(), "line 3"),
            (with("client-ca = 'x'", ""), "line 4"),
            (with("route = [{ path = '/', service = 'a' },\n{ path = 'b', service = 'a' }]", ""), "line 5"),
            (with("connect-service = 'a'", ""), "line 4"),
            (
                with(
                    "[[listen]]\naddress = '127.0.0.1:2'\nproxy-protocol-from = ['::/0']\nservice = 'a'",
                    "",
                ),
                "line 6",
            ),
            (with("[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'", ""), "line 5"),
            (with("rate = { per-second = 0 }", ""), "line 4"),
            (with("", "refresh = '5s'"), "line 7"),
            (with("", "file = 'b'"), "line 5"),
            (with("", "[service.a.retry]\nbudget = 101"), "line 8"),
            (with("", "[service.a.outlier]\nshare = 101"), "line 8"),
            (with("", "[service.b]\nconsul.service = ''"), "line 8"),
            (with("", "[retry]\nattempts = 11"), "line 8"),
            (with("", "h3 = true"), "line 7"),
            (with("tls = true\nh3 = true\nproxy-protocol = true", ""), "line 2"),
            (with("", "[service.a.timeouts]\nresponse = '1s'\nconnect = '9000h'"), "line 9"),
            (with("", "[fields]\nvia = ''"), "line 8"),
            (with("", "[admin]\naddress = '0.0.0.0:1'"), "line 8"),
            (with("", "[[hint]]\npath = '/'\nlink = ['x']"), "line 8"),
            (
                with("", "[[hint]]\npath = '/'\nlink = ['<x>']\n[[hint]]\npath = '/'\nlink = ['<y>']"),
                "line 8",
            ),
            (with("", "[service.'connect:b:1']\ninstances = ['http://b:1']"), "line 7"),
            ("memory = '1M'\n".to_owned() + &with("", ""), "line 1"),
        ] {
            assert_eq!(line(&text), expected, "{text}");
        }
        let told = Config::parse("zone = 'a'").expect_err("it is wrong").to_string();
        assert!(told.starts_with("no listener is defined"), "{told}");
    }

    #[test]
    fn an_instance_is_found_in_its_service() {
        let text =
            "[service.a]\ninstances = [\n'http://x',\n'http://y']\n[service.b]\ninstances = ['http://x']\n";
        let line = |service: &str, url: &str| instance_line(text, service, &url.parse().expect("one"));
        assert_eq!(
            [line("a", "http://x:80"), line("a", "http://y"), line("b", "http://x")],
            [Some(3), Some(4), Some(6)]
        );
        assert_eq!([line("a", "http://z"), line("c", "http://x")], [Some(1), None]);
    }
}
