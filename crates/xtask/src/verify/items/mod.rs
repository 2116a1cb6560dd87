//! The "Must show" list of each step, as data.
//!
//! To add a promise: write a function from the binary to an [`ItemOutcome`] in the file that it is about, and a row here.

mod agents;
mod bulk;
mod calibration;
mod causes;
mod chaos;
mod diagnose;
mod engines;
mod faults;
mod keepalive;
mod link;
mod load;
mod package;
mod peers;
mod probe;
mod scenarios;
mod settings;
mod sidecar;
mod study;
mod suites;
mod tables;
mod timeline;
mod urls;

use std::borrow::Cow;

use anyhow::Result;

pub use diagnose::record::run as confirmed;
pub use diagnose::staged::run as staged;
pub use faults::any_seed;

use super::binary::H2lab;
use super::outcome::ItemOutcome;

/// Shows a promise with the published binary.
type Show = dyn Fn(&H2lab) -> Result<ItemOutcome>;

/// One promise.
pub struct Item {
    /// What `--only` takes.
    pub id: String,
    /// The promise, as the plan states it.
    pub claim: Cow<'static, str>,
    /// Shows it.
    pub run: Box<Show>,
}

fn item(
    id: impl Into<String>,
    claim: impl Into<Cow<'static, str>>,
    run: impl Fn(&H2lab) -> Result<ItemOutcome> + 'static,
) -> Item {
    Item { id: id.into(), claim: claim.into(), run: Box::new(run) }
}

/// Step `diagnose`: which causes are found where they are planted, and none elsewhere. `is_whole`: whether all items are run.
pub fn diagnose(seed: u64, is_ci: bool, is_whole: bool) -> Result<Vec<Item>> {
    let mut items = diagnose::items(seed, is_ci, is_whole)?;
    if is_ci {
        return Ok(items);
    }
    items.push(item(
        "aa-drawn",
        "50 runs of a protocol against itself, drawn at random: at most 5 % claim a difference, none names a cause",
        move |h2lab| calibration::drawn(h2lab, seed),
    ));
    items.push(item(
        "aa-simulated",
        "1,000 simulated experiments of each shape of load, in which ten changes without an effect are tried in seven rounds: at most \
         5 % claim an effect",
        suites::simulated,
    ));
    Ok(items)
}

/// Step `fix`: planted causes that a setting of the server takes away, before and after.
pub fn fix(seed: u64) -> Result<Vec<Item>> {
    diagnose::fix::items(seed)
}

/// Step `compare`: `h2lab compare` says whether HTTP/2 beats HTTP/1.1 here, and why not.
pub fn compare() -> Vec<Item> {
    let mut items = vec![item(
        "privileges",
        "compare runs as root and as an unprivileged user; where neither is possible: exit 4, the reason, the next step",
        suites::privileges,
    )];
    for server in tables::SERVERS {
        for shape in tables::SHAPES {
            items.push(item(
                format!("loss-table-{server}-{shape}"),
                "cubic, RTT 25 ms, 3 % both ways: h1 serves >= 98 % of 1,000/s; h2c x 1 < 65 % and unstable; h2c x 16 \
                 >= 98 %, its p99 (median of three seeds, 15 s cells) <= 1.5 x h1's",
                move |h2lab| tables::loss(h2lab, server, shape),
            ));
            items.push(item(
                format!("no-loss-{server}-{shape}"),
                "at 0 % loss the p99 of all protocols agree within max(3 ms, 15 %)",
                move |h2lab| tables::no_loss(h2lab, server, shape),
            ));
            items.push(item(
                format!("bbr-{server}-{shape}"),
                "with --congestion bbr one h2c connection is stable at 3 % loss (the middle of three seeds)",
                move |h2lab| tables::bbr(h2lab, server, shape),
            ));
        }
    }
    items.extend([
        item("loss-million", "loss asked 3 %: within 3 standard deviations over a million packets", link::million),
        item("delay", "delay asked 12.5 ms each way: ping p50 25.0-25.2 ms, p99 <= 25.4 ms as root", link::delay),
        item("same-seed", "the same seed drops the same packets, by index; another seed others", link::same_seed),
        item("aa-virtual", "h1 against h1 in virtual time, 40 runs: at most 5 % claim a difference", suites::calibration),
        item("aa-live", "h1 against h1 live, 10 runs: at most 5 % of the verdicts claim a difference", calibration::live),
        item(
            "https-quota",
            "compare https://… against nginx: h1s and h2 are found; with keepalive_requests 1000 it counts the \
             connections and names the rule, the number and nginx's setting; without a quota it is silent",
            urls::quota,
        ),
        item("two-urls", "compare http://A/ http://B/ with an h1 and an h2c port", urls::two),
        item("bad-input", "bad input: one clear error each, the right exit code, no panic", suites::bad_input),
        item(
            "leftovers",
            "nothing is left behind after success, failure, panic, Ctrl-C, SIGHUP and SIGKILL at random moments",
            suites::leftovers,
        ),
        item(
            "html",
            "the HTML report opens from disk in headless Chromium with no network and no console error",
            suites::html,
        ),
    ]);
    items
}

/// Step `engines`: the HTTP engines are conformant, fast and unbreakable.
pub fn engines() -> Vec<Item> {
    vec![
        item(
            "conformance",
            "h2spec 145/145, 146/146 with -S, in clear and over TLS; h2specd 57/57 on the client; ten runs, no flake",
            engines::conformance,
        ),
        item(
            "hpack",
            "RFC 7541 Appendix C, properties, and agreement with another library and nghttp2's tools",
            engines::hpack,
        ),
        item("http1", "HTTP/1.1: every framing, strict, each refusal a named error", engines::http1),
        item(
            "beginnings",
            "h2c by prior knowledge and by upgrade; TLS with ALPN, resumption, client certificates",
            engines::beginnings,
        ),
        item(
            "tshark",
            "tshark agrees with the Tap frame by frame on a TLS 1.3 and an h2c capture",
            engines::tshark,
        ),
        item(
            "windows",
            "RTT 25 and 250 ms: no stall after 10 round trips, window <= 4 x bandwidth-delay product, shrinks under \
             memory pressure, a slow reader gets no growth",
            engines::windows,
        ),
        item(
            "hostile",
            "every attack class has a bound, a word and a counter, and others are served",
            engines::hostile,
        ),
        item("fuzz", "each fuzz target finds the bug that was planted for it", engines::fuzz),
        item("hpack-speed", "decoding takes at most 60 ns a field", |_| engines::bench("hpack")),
        item("counts", "instructions and system calls per request at most the peer's", |_| {
            engines::bench("counts")
        }),
        item(
            "cpu",
            "CPU per request against h2load, wrk, nghttpd and nginx: medians of 9 paired rounds",
            |_| engines::bench("engine"),
        ),
    ]
}

/// Step `load`: the load generator that its users would switch to.
pub fn load() -> Vec<Item> {
    let mut items = Vec::new();
    for (proxy, setting) in keepalive::PROXIES {
        items.push(item(
            format!("keepalive-{proxy}"),
            "a proxy that ends connections after 1000 requests: h2 opens many, h1s keeps its own; the rule names number \
             and setting, and is silent without a limit; with replay no request is lost; the origin beside it is fine",
            move |h2lab| keepalive::scenario(h2lab, proxy, setting),
        ));
    }
    items.extend([
        item(
            "keepalive-no-replay",
            "the same limit of nginx without replay: requests are lost, and counted",
            keepalive::no_replay,
        ),
        item("load", "the suites of `h2lab load`: its own, misbehaving servers, the defects of other tools", load::suites),
        item("trace", "last stream 1999, GOAWAY, a second connection at HEADERS[1]", load::trace),
        item(
            "agreement",
            "p50 and p99 of an open loop agree with vegeta's and oha --latency-correction's on /delay/5 and /stall: the 95 % \
             interval of the median of 9 interleaved rounds reaches within max(5 %, 150 us), h1 and h2c",
            load::agreement,
        ),
        item(
            "omission",
            "a pause of 500 ms at 1,000/s for 3 s shows: p90 200 ms, p95 350 ms, p99 470 ms; what a closed loop would have \
             reported of the same run hides it",
            load::omission,
        ),
        item(
            "pacing",
            "lateness at the server, as root and as nobody, h1 and h2c, p99 of the worst round: at most 100 us at 20,000/s and 500 us \
             at 50,000/s",
            |_| engines::xtask(&["bench", "load", "--only", "pacing"]),
        ),
    ]);
    items
}

/// Step `sidecar`: the proxy.
pub fn sidecar() -> Vec<Item> {
    vec![
        item(
            "behaviour",
            "all other tests of the sidecar: translation, pool, limits, registries, reload, hand-over, HTTP/3, transparent mode …",
            sidecar::behaviour,
        ),
        item(
            "attacks",
            "h2spec, all cases, 10 times on each listener, before HTTP/1.1 and HTTP/2; each attack while another client is served",
            sidecar::attacks,
        ),
        item(
            "callers",
            "one sidecar and two: curl, Go's net/http, Node, Python's requests and httpx, grpc-go's suite, a WebSocket, Chromium",
            sidecar::callers,
        ),
        item(
            "soak",
            "1,000,000 mixed requests through a pair at 1 % loss while instances are killed, stopped and restarted: none lost, none \
             repeated that was not safe, every body right; H2LAB_SOAK_REQUESTS and H2LAB_SOAK_TIME (1h) for another number",
            sidecar::soak,
        ),
        item(
            "pool",
            "in virtual time, 1,000/s: p99 at 3 % loss <= 1.05 x the best of 4, 8, 16, 32 connections and <= 0.4 x HTTP/1.1; after a \
             step to 3 % within 1.2 x the settled one; at most 2 connections a minute after the last loss",
            sidecar::pool,
        ),
        item(
            "goaway",
            "against an instance with 1,000 and one with 137 requests per connection: 0 failed of 1,000,000 each, p99 <= 1.2 x \
             without a limit; beside HAProxy, Envoy and Caddy",
            sidecar::goaway,
        ),
        item(
            "lossy",
            "two of ours, 1,000/s, 1 KiB, RTT 25 ms, 3 % loss, cubic, nine rounds of a minute (one hour): p99 <= 0.4 x h1 and <= \
             1.05 x the best of 4, 8, 16, 32 connections",
            sidecar::lossy,
        ),
        item(
            "pairs",
            "pairs of h2lab, HAProxy, Envoy and nginx in one run, 1,000/s, RTT 25 ms, 3 % loss: ours fails no request, its p99 over \
             h2c <= 0.4 x h1",
            sidecar::pairs,
        ),
        item("lossy-near", "the same at RTT 10 ms, three rounds of 30 s", sidecar::lossy_near),
        item(
            "clean",
            "without loss, RTT 25 ms, nine rounds: at most 2 connections, p99 <= 1.02 x h1",
            sidecar::clean,
        ),
        item(
            "step",
            "from no loss to 3 %: p99 of requests due 2 to 10 s later <= 1.2 x the settled one; at most 2 connections a minute after \
             the last lost packet (DuckDB reads both from the run folder)",
            sidecar::step,
        ),
    ]
}

/// Step `chaos`: the lab in which causes are tried.
pub fn chaos() -> Vec<Item> {
    let mut items = vec![
        item(
            "link-throughput",
            "one TCP connection: >= 4 Gbit/s without impairment, IPv4 and IPv6; 1 Gbit/s within 3 %, 10 Gbit/s to 85 %; \
             the link's lateness is published",
            chaos::throughput,
        ),
        item(
            "link-loss",
            "loss asked 3 %: within 3 standard deviations over a million packets",
            link::million,
        ),
        item(
            "link-delay",
            "delay asked 12.5 ms each way: ping p50 25.0-25.2 ms, p99 <= 25.4 ms as root",
            link::delay,
        ),
        item(
            "link-programs",
            "ping, curl and servers of others at both ends, as a plain user, over IPv4 and IPv6",
            chaos::programs,
        ),
        item(
            "ladder",
            "root, an unprivileged user, CAP_NET_ADMIN and nothing else: a link each; below: exit 4, the reason, the next step",
            chaos::ladder,
        ),
        item(
            "killed",
            "killed at any point: no namespace, process or device is left, and --resume finishes the run",
            chaos::killed,
        ),
        item(
            "causes",
            "what slow requests waited for, against 228 drop scripts over the kernel's TCP, 1 to 8 streams, cubic and bbr: \
             precision and recall of each kind of cause >= 99 %",
            causes::scripts,
        ),
    ];
    items.extend(study::items());
    items
}

/// Step `bulk`: the long fat link filled, and every lost Gbit/s explained.
pub fn bulk() -> Vec<Item> {
    let mut items = bulk::items();
    items.extend(scenarios::items());
    items
}

/// Step `probe`: what a server, a proxy or a client does, as verdicts with evidence; the waterfall of early hints.
pub fn probe() -> Vec<Item> {
    probe::items().into_iter().chain(peers::all()).chain(timeline::items()).collect()
}

/// Step `settings`: what the table of settings says of products is what they accept.
pub fn settings() -> Vec<Item> {
    settings::items()
}

/// Step `agents`: many machines over NATS.
pub fn agents() -> Vec<Item> {
    agents::items()
}

/// Step `package`: what is published installs and runs where nothing of ours is.
pub fn package() -> Vec<Item> {
    package::items()
}

/// Step `faults`: nothing hangs, lies or ends with the wrong exit code, whatever servers and the machine do.
pub fn faults(seed: u64) -> Result<Vec<Item>> {
    faults::items(seed)
}
