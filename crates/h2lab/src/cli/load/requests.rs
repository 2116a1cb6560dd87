//! From URLs, files and flags to the kinds of requests that are sent: all to one server.

use std::path::Path;

use h2lab_model::workload::{Body, MixEntry};

use super::super::exit::Usage;
use super::super::reach;
use super::super::requests::header;
use h2lab_roles::client::url::Url;

/// The requests to one server.
#[derive(Debug)]
pub struct Requests {
    /// The first URL, which names the server.
    pub url: Url,
    /// As it was given, without its weight.
    pub text: String,
    /// The kinds of requests; one if a single URL was given.
    pub kinds: Vec<MixEntry>,
}

/// One target with its place, for errors.
struct Entry {
    place: String,
    url: Url,
    text: String,
    kind: MixEntry,
}

/// Reads URLs and the file of them, whose paths may have placeholders if `is_template`. That they are of different servers is an
/// error.
pub fn read(urls: &[String], file: Option<&Path>, is_template: bool) -> Result<Requests, Usage> {
    let mut entries = Vec::new();
    for text in urls {
        entries.push(Entry::parse(text, text, is_template)?);
    }
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Usage(format!("--urls {}: cannot read it: {error}", path.display())))?;
        entries.extend(targets(path, &text, is_template)?);
    }
    let Some(first) = entries.first() else {
        return Err(Usage("no URL: give one, or --urls FILE with one per line".to_owned()));
    };
    let (url, text) = (first.url.clone(), first.text.clone());
    let is_elsewhere =
        |entry: &&Entry| entry.url.is_tls() != url.is_tls() || entry.url.authority() != url.authority();
    if let Some(other) = entries.iter().find(is_elsewhere) {
        let why = format!("is on another server than {text}; run a load for each");
        return Err(Usage(format!("{}: {} {why}", other.place, other.text)));
    }
    Ok(Requests { url, text, kinds: entries.into_iter().map(|entry| entry.kind).collect() })
}

impl Entry {
    /// `[METHOD] URL [[weight=]N]`.
    fn parse(place: &str, line: &str, is_template: bool) -> Result<Self, Usage> {
        let wrong = |why: String| Usage(if place == line { why.clone() } else { format!("{place}: {why}") });
        let mut words = words(line).into_iter().peekable();
        let is_method =
            |word: &&str| !word.contains("://") && word.bytes().all(|byte| byte.is_ascii_uppercase());
        let method = words.next_if(is_method).map(str::to_owned);
        let text = words.next().ok_or_else(|| wrong(format!("`{line}` has no URL")))?;
        if Path::new(text).extension().is_some_and(|ending| ending == "lua") {
            let how = "--template, --urls FILE and `URL weight=N` vary requests";
            return Err(wrong(format!("{text}: scripts are not supported; {how}")));
        }
        let text = &reach::as_url(text);
        let url = reach::template_url(text, is_template).map_err(|Usage(why)| wrong(why))?;
        let weight = match words.next() {
            None => 1,
            Some(word) => word
                .strip_prefix("weight=")
                .unwrap_or(word)
                .parse()
                .ok()
                .filter(|weight| (1..=1_000_000).contains(weight))
                .ok_or_else(|| {
                    wrong(format!(
                        "`{line}`: `{word}` is not a weight (weight=N, 1 to 1000000); a space in a URL is written %20"
                    ))
                })?,
        };
        if let Some(more) = words.next() {
            return Err(wrong(format!("unexpected `{more}`: a line is [METHOD] URL [weight=N]")));
        }
        let path = url.path_and_query().to_owned();
        let kind = MixEntry { weight, method, path, ..MixEntry::default() };
        Ok(Self { place: place.to_owned(), text: text.clone(), url, kind })
    }
}

/// The words of a line, which spaces separate, but not inside a placeholder: `{{random 1..9}}`.
fn words(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    let (mut begin, mut is_inside) = (0, false);
    let ends = line.char_indices().filter_map(|(at, c)| {
        let rest = &line[at..];
        is_inside = rest.starts_with("{{") || is_inside && !rest.starts_with("}}");
        (c.is_whitespace() && !is_inside).then_some((at, at + c.len_utf8()))
    });
    for (end, next) in ends.chain([(line.len(), line.len())]) {
        words.extend(Some(&line[begin..end]).filter(|word| !word.is_empty()));
        begin = next;
    }
    words
}

/// Reads a file of targets: one a line, each followed by its header fields (`Name: value`) and body (`@FILE`) as vegeta has
/// them. Empty lines and those that begin with `#` say nothing.
fn targets(path: &Path, text: &str, is_template: bool) -> Result<Vec<Entry>, Usage> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (line, place) = (line.trim(), format!("--urls {}:{}", path.display(), number + 1));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match entries.last_mut() {
            Some(entry) if line.starts_with('@') => entry.kind.body = Some(body(path, line, &place)?),
            Some(entry) if is_field(line) => {
                entry.kind.headers.push(header(line).map_err(|error| Usage(format!("{place}: {error}")))?);
            }
            _ => entries.push(Entry::parse(&place, line, is_template)?),
        }
    }
    Ok(entries)
}

/// Whether a line is a header field: its name ends with a colon before any space or slash.
fn is_field(line: &str) -> bool {
    let end = line.find([':', ' ', '/']);
    end.is_some_and(|end| line[end..].starts_with(':') && !line[end..].starts_with("://"))
}

/// The body in the file that `line` (`@FILE`) names, beside the file of targets unless its path is absolute.
fn body(targets: &Path, line: &str, place: &str) -> Result<Body, Usage> {
    let path = targets.parent().unwrap_or(Path::new("")).join(&line[1..]);
    let read = std::fs::read(&path).map(Body::from);
    read.map_err(|error| Usage(format!("{place}: cannot read {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(urls: &[&str], file: Option<&str>) -> Result<Requests, Usage> {
        let folder = tempfile::tempdir().unwrap();
        let urls: Vec<String> = urls.iter().map(|&url| url.to_owned()).collect();
        let path = folder.path().join("targets.txt");
        std::fs::write(folder.path().join("body.json"), "{}").unwrap();
        std::fs::write(&path, file.unwrap_or_default()).unwrap();
        read(&urls, file.map(|_| path.as_path()), true)
    }

    #[test]
    fn several_urls_are_kinds_with_weights() {
        let requests = kinds(&["http://a/x", "http://a/y weight=3"], None).unwrap();
        let reported: Vec<_> = requests.kinds.iter().map(|kind| (kind.path.as_str(), kind.weight)).collect();
        assert_eq!(reported, [("/x", 1), ("/y", 3)]);
        assert_eq!(requests.text, "http://a/x");
        assert_eq!(kinds(&["a:8080/x weight=2"], None).unwrap().text, "http://a:8080/x");
    }

    #[test]
    fn a_file_has_lines_of_ours_or_of_vegeta() {
        let text = "# comment\nhttp://a/1\nGET http://a/2 5\n\nPOST http://a/3\nX-Id: 7\n@body.json\n";
        let requests = kinds(&[], Some(text)).unwrap();
        let posted = &requests.kinds[2];
        assert_eq!(requests.kinds[1].weight, 5);
        assert_eq!((posted.method.as_deref(), posted.body.clone()), (Some("POST"), Some("{}".into())));
        assert_eq!(posted.headers, [("x-id".to_owned(), "7".to_owned())]);
    }

    #[test]
    fn a_placeholder_of_a_path_may_have_spaces() {
        let line = "http://a/{{random 1..9}}/{{ pick a|b c }}?{{counter}}";
        let path = line.strip_prefix("http://a").unwrap();
        for (urls, file) in
            [(vec![line.to_owned() + " weight=3"], None), (vec![], Some(format!("GET {line} 3\n")))]
        {
            let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
            let requests = kinds(&urls, file.as_deref()).unwrap();
            assert_eq!((requests.kinds[0].path.as_str(), requests.kinds[0].weight), (path, 3));
        }
        assert!(kinds(&["http://a/{{random 1..9"], None).is_err(), "it has no end");
        assert!(kinds(&["http://a/x y"], None).is_err());
        assert!(read(&[line.to_owned()], None, false).is_err(), "without --template they are text");
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_place() {
        for (urls, file, words) in [
            (vec!["http://a/", "http://b/"], None, ["http://b/", "run a load for each"]),
            (vec!["multi.lua", "http://a/"], None, ["multi.lua", "--template"]),
            (vec!["http://a/", "https://a/"], None, ["https://a/", "run a load for each"]),
            (vec!["http://a/ weight=0"], None, ["weight=0", "1 to 1000000"]),
            (vec!["http://a/"], Some("http://a/\nftp://a/"), ["targets.txt:2", "ftp://a/"]),
            (vec![], Some("POST http://a/\n@none.json"), ["targets.txt:2", "none.json"]),
            (vec![], Some("http://a/ 1 2"), ["targets.txt:1", "unexpected"]),
            (vec![], Some("\n"), ["no URL", "--urls"]),
        ] {
            let error = kinds(&urls, file).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
