//! The HTML report as a browser sees it, opened from disk: no message on the console, no request to the network.
//!
//! Without a driver or the DevTools protocol: Chromium writes the page's console to stderr and every request, with the
//! page that asked for it, to its network log.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::origin::Origin;
use crate::support::{Finished, SHORT_COMPARE, folder, h2lab, need, run_program};

/// What a browser saw of a page.
struct Seen {
    /// Lines that the page put on its console: errors, warnings and logs alike, since a report has nothing to log.
    console: Vec<String>,
    /// URLs that the page asked for, other than itself and what it carries (`data:`).
    requests: Vec<String>,
    /// The document after its scripts ran.
    document: String,
}

/// Opens `page` in a browser that cannot resolve names and has a profile of its own.
fn open(chromium: &Path, page: &Path) -> Seen {
    let profile = folder();
    let log = profile.path().join("net-log.json");
    let arguments = [
        "--headless=new",
        // Chromium's sandbox refuses root; the page is ours.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        // Scripts and timers of the page run to their end before the document is dumped, without real waiting.
        "--virtual-time-budget=5000",
        "--enable-logging=stderr",
        // As narrow as a window may be: pages show their layout for phones.
        "--window-size=500,900",
        "--dump-dom",
    ]
    .map(str::to_owned);
    let mut arguments = arguments.to_vec();
    arguments.push(format!("--user-data-dir={}", profile.path().join("profile").display()));
    arguments.push(format!("--log-net-log={}", log.display()));
    arguments.push(format!("file://{}", page.display()));
    let finished = run_program(chromium, profile.path(), &arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    Seen { console: console(&finished), requests: requests(&log), document: finished.stdout }
}

/// The lines that Chromium marks as the page's own: `[pid:tid:time:INFO:CONSOLE:12] "text", source: … (12)`.
fn console(finished: &Finished) -> Vec<String> {
    finished.stderr.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect()
}

/// The requests in a network log that a page began. Those of the browser itself say `not an origin`.
fn requests(log: &Path) -> Vec<String> {
    let log: Value =
        serde_json::from_str(&fs::read_to_string(log).unwrap()).expect("Chromium's network log is JSON");
    let start = &log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"];
    assert!(start.is_u64(), "the network log names its event types");
    let events = log["events"].as_array().expect("events is a list").iter();
    let begun =
        events.filter(|event| event["type"] == *start && event["params"]["initiator"] != "not an origin");
    begun
        .filter_map(|event| event["params"]["url"].as_str())
        .filter(|url| !url.starts_with("data:") && !url.starts_with("file:"))
        .map(str::to_owned)
        .collect()
}

fn page(folder: &Path, body: &str) -> std::path::PathBuf {
    let file = folder.join("page.html");
    fs::write(&file, format!("<!doctype html><html><body>{body}</body></html>")).unwrap();
    file
}

#[test]
fn a_page_that_errs_or_calls_out_is_caught() {
    let Some(chromium) = need("chromium") else { return };
    let folder = folder();
    let body = "<script>noSuchFunction();</script><img src='http://pictures.invalid/x.png'>";
    let seen = open(&chromium, &page(folder.path(), body));
    assert!(seen.console.iter().any(|line| line.contains("noSuchFunction")), "{:?}", seen.console);
    assert_eq!(seen.requests, ["http://pictures.invalid/x.png"]);
}

#[test]
fn a_quiet_page_passes() {
    let Some(chromium) = need("chromium") else { return };
    let folder = folder();
    let seen =
        open(&chromium, &page(folder.path(), "<script>document.body.append('drawn ' + 2 * 21);</script>"));
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    assert!(seen.requests.is_empty(), "{:?}", seen.requests);
    assert!(seen.document.contains("drawn 42"), "scripts ran\n{}", seen.document);
}

#[test]
fn the_report_opens_from_disk_with_no_network_and_a_silent_console() {
    let Some(chromium) = need("chromium") else { return };
    let folder = folder();
    let report = folder.path().join("report.html");
    let mut arguments = SHORT_COMPARE.map(str::to_owned).to_vec();
    arguments.push(format!("-o={}", report.display()));
    arguments.push(format!("--out={}", folder.path().join("run").display()));
    let finished = h2lab(&arguments);
    finished.assert_measured();

    let seen = open(&chromium, &report);
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    assert!(seen.requests.is_empty(), "{:?}", seen.requests);
    assert!(seen.document.contains("<svg"), "the plots are in the page");
    for label in ["h1", "h2c × 1"] {
        assert!(seen.document.contains(label), "the cell `{label}` is in the page");
    }
    // The height of the page, and how much wider than the screen it is.
    let measure = "const root = document.documentElement; document.title = `${root.scrollHeight} ${root.scrollWidth - innerWidth}`;";
    let seen = open(&chromium, &with_test(&report, "measure.html", measure));
    let title =
        seen.document.split("<title>").nth(1).and_then(|rest| rest.split('<').next()).expect("a title");
    let (height, beyond) = title.split_once(' ').expect("two numbers");
    assert!((1_000..8_000).contains(&height.parse::<i32>().unwrap()), "{height} px high");
    assert!(beyond.parse::<i32>().unwrap() <= 0, "the page scrolls sideways by {beyond} px");
}

/// A page with another script before its end, as far as its content security policy allows.
fn with_script(report: &Path, name: &str, script: &str) -> std::path::PathBuf {
    let text = fs::read_to_string(report).expect("the report is written");
    let changed = report.with_file_name(name);
    fs::write(&changed, text.replace("</body>", &format!("<script>{script}</script></body>"))).unwrap();
    changed
}

/// The same in a page that allows scripts of a test, too: then everything that its own scripts do can be tried.
fn with_test(report: &Path, name: &str, script: &str) -> std::path::PathBuf {
    let text = fs::read_to_string(report).expect("the report is written");
    let open = report.with_file_name("open.html");
    let (before, rest) = text.split_once("script-src 'sha256-").expect("the page has a policy");
    let after = rest.split_once('\'').expect("the hash ends").1;
    fs::write(&open, format!("{before}script-src 'unsafe-inline'{after}")).unwrap();
    with_script(&open, name, script)
}

#[test]
fn a_page_lets_in_no_script_but_its_own_and_its_legend_hides_what_it_names() {
    let Some(chromium) = need("chromium") else { return };
    let (origin, folder) = (Origin::start(&[]), folder());
    let report = folder.path().join("load.html");
    let url = format!("http://{}/", origin.clear);
    let page = report.display().to_string();
    h2lab(&["load", "-n=2000", "--no-store", "--html", &page, &url]).assert_measured();
    let strange = open(&chromium, &with_script(&report, "strange.html", "document.body.append('it ran')"));
    assert!(!strange.document.contains("</script>it ran"), "it is in the page, and did not run");
    assert!(
        strange.console.iter().any(|line| line.contains("Content Security Policy")),
        "{:?}",
        strange.console
    );
    let press = "document.querySelector('button[data-entry]').click();";
    let pressed = open(&chromium, &with_test(&report, "pressed.html", press));
    assert!(pressed.console.is_empty(), "{:?}", pressed.console);
    assert!(pressed.document.contains("aria-pressed=\"false\""), "the entry is not pressed any more");
    assert_eq!(pressed.document.matches("class=\"off\"").count(), 2, "in both forms of the picture");
}

#[test]
fn probes_and_transfers_have_pages_that_load_nothing_and_say_nothing() {
    let Some(chromium) = need("chromium") else { return };
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/bytes/10M", origin.clear);
    let place = |name: &str| folder.path().join(name).display().to_string();
    let pages = ["probe", "get", "put", "drive"].map(|name| place(&format!("{name}.html")));
    let put = format!("http://{}/anything", origin.clear);
    let probed = h2lab(&["probe", "--html", &pages[0], &url]);
    let got = h2lab(&["bulk", "get", "--discard", "--html", &pages[1], &url]);
    let sent = h2lab(&["bulk", "put", "--memory=1M", "--html", &pages[2], &put]);
    let driven = h2lab(&[
        "bulk",
        "drive",
        "--clients=local",
        "--servers=local",
        "--plain-http",
        "-z=1s",
        "--html",
        &pages[3],
    ]);
    for (finished, (page, words)) in
        [probed, got, sent, driven].iter().zip(pages.iter().zip(["checks", "over h", "over h", "over h"]))
    {
        let seen = open(&chromium, Path::new(page));
        assert_eq!((seen.console, seen.requests), (Vec::<String>::new(), Vec::<String>::new()), "{page}");
        assert!(seen.document.contains(words), "{page}: {}", finished.transcript());
        assert!(seen.document.contains("Repeat and cite"), "{page}");
    }
}

#[test]
fn a_slow_request_shows_its_latency_breakdown_by_click_by_keyboard_and_by_address() {
    let Some(chromium) = need("chromium") else { return };
    let folder = folder();
    let arguments = [
        "compare",
        "--out=run",
        "--causes",
        "--proto=h2c",
        "-c=1",
        "--loss=3%",
        "-q=50",
        "-z=2s",
        "--repetitions=1",
    ];
    let finished = run_program(&crate::support::binary(), folder.path(), &arguments);
    finished.assert_measured();
    let report = folder.path().join("run/report.html");
    // What the panel of an open latency breakdown begins with.
    let reported = |seen: &Seen| -> Option<String> {
        assert!(seen.console.is_empty() && seen.requests.is_empty(), "{:?}", seen.console);
        let heading = seen.document.split("<h4>").nth(1)?.split("</h4>").next()?;
        Some(heading.to_owned())
    };
    assert_eq!(reported(&open(&chromium, &report)), None, "nothing is open until it is asked for");
    let click =
        "document.querySelectorAll('.mark')[1].dispatchEvent(new MouseEvent('click', {bubbles: true}));";
    let clicked = reported(&open(&chromium, &with_test(&report, "click.html", click))).expect("it is open");
    assert!(clicked.starts_with("slow request: "), "{clicked}");
    let arrow = "const first = document.querySelector('.mark[tabindex=\"0\"]'); first.focus();
                 first.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));";
    let by_key = open(&chromium, &with_test(&report, "arrow.html", arrow));
    assert_eq!(reported(&by_key).as_ref(), Some(&clicked), "the second mark by another way");
    let address = report.with_file_name("report.html#breakdown-1");
    assert_eq!(reported(&open(&chromium, &address)), Some(clicked));
    let escape = format!(
        "{click} document.querySelectorAll('.mark')[1].dispatchEvent(new KeyboardEvent('keydown', {{key: 'Escape', bubbles: true}}));"
    );
    let closed = open(&chromium, &with_test(&report, "escape.html", &escape));
    let panel = closed.document.split("class=\"breakdown\"").nth(1).and_then(|rest| rest.split('>').next());
    assert!(panel.is_some_and(|tag| tag.contains("hidden")), "{panel:?}");
}

#[test]
fn a_page_of_a_timeline_has_nothing_to_say_and_nothing_to_ask_for() {
    let Some(chromium) = need("chromium") else { return };
    let (origin, place) = (Origin::start(&[]), folder());
    let page = place.path().join("timeline.html");
    let url = format!("http://{}/push?count=2", origin.clear);
    let finished = h2lab(&["timeline", "-n", "3", "-o", page.to_str().unwrap(), &url]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let seen = open(&chromium, &page);
    assert_eq!((seen.console, seen.requests), (Vec::<String>::new(), Vec::<String>::new()));
    assert!(seen.document.contains("PUSH_PROMISE") && seen.document.contains("<svg"));
}
