//! Secrets that commands are given stay out of all that they write: output, reports, run folders, logs.

use std::fs;
use std::path::Path;

use h2lab::run::store;
use h2lab_base::units::base64;
use h2lab_model::workload::Protocol;
use rustix::process::Signal;
use serde_json::Value;

use crate::bulk::Server;
use crate::origin::Origin;
use crate::support::{DEADLINE, DRAIN, Finished, binary, folder, run_program};

/// Part of every secret.
const CANARY: &str = "c4n4ry";
/// What the commands are given, in every possible way.
static GIVEN: [&str; 8] = [
    "-H",
    "X-Custom: c4n4ry-field",
    "--header=Authorization: Bearer c4n4ry-bearer",
    "-b",
    "sid=c4n4ry-cookie",
    "-u",
    "me:c4n4ry-password",
    "--quiet",
];

/// Fails if `text` contains a secret; `what` says where the text is.
#[track_caller]
fn assert_clean(what: &str, text: &str) {
    let encoded = base64(b"me:c4n4ry-password");
    for secret in [CANARY, &encoded] {
        if let Some(line) = text.lines().find(|line| line.contains(secret)) {
            panic!("{what} has `{secret}`: {line}");
        }
    }
}

/// The same for every file below `folder`, except those that `given` names.
#[track_caller]
fn assert_clean_files(folder: &Path, given: &[&str]) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if path.join("run.json").exists() {
                // Tables are compressed: their contents are read as a report reads them.
                let run = store::read(&path).expect("a run folder");
                let tables = run.repetitions.iter().map(|one| format!("{:?}", one.connections));
                assert_clean(&name, &tables.collect::<String>());
            }
            assert_clean_files(&path, given);
        } else if !given.contains(&name.as_str()) {
            assert_clean(
                &path.display().to_string(),
                &String::from_utf8_lossy(&fs::read(&path).expect("a file")),
            );
        }
    }
}

/// Runs a command in `folder`, which must end with one of `codes`.
#[track_caller]
fn run(folder: &Path, codes: &[i32], words: &[&str]) -> Finished {
    let finished = run_program(&binary(), folder, words);
    assert!(finished.code.is_some_and(|code| codes.contains(&code)), "{words:?}: {}", finished.transcript());
    assert_clean(&words[..2].join(" "), &finished.stdout);
    assert_clean(&words[..2].join(" "), &finished.stderr);
    finished
}

/// The same where progress is shown, or cannot be turned off.
fn aloud() -> &'static [&'static str] {
    GIVEN.strip_suffix(&["--quiet"]).expect("it is the last")
}

#[test]
fn a_load_its_folder_its_exports_and_what_is_made_of_them_later_have_no_secret() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/?token=c4n4ry-query&c4n4ry-bare", origin.clear);
    let outputs = ["r.html", "r.json", "r.csv", "r.md", "r.vegeta.csv", "r.hgrm", "r.hlog"]
        .map(|name| format!("-o={name}"));
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let load = ["load", &url, "-n=20", "-c=1", "--dump=d.csv", "--out=h2lab-runs/a"];
    let load = [&load[..], &GIVEN, &outputs].concat();
    run(folder.path(), &[0, 5], &load);
    let kept = fs::read_to_string(folder.path().join("h2lab-runs/a/run.json")).expect("run.json");
    assert!(kept.contains("/?token=***&***"), "{kept}");
    let again =
        ["load", &url, "--http2-prior-knowledge", "-n=20", "-d=c4n4ry-body", "--out=h2lab-runs/b", "--json"];
    run(folder.path(), &[0, 5], &[&again[..], &GIVEN].concat());
    // Without --quiet the view and the progress are shown.
    run(folder.path(), &[0, 5], &[&["load", &url, "-n=20", "--no-store"][..], aloud()].concat());
    run(folder.path(), &[0, 5], &["report", "h2lab-runs/a", "h2lab-runs/b", "-o=both.html", "-o=both.json"]);
    run(folder.path(), &[0], &["runs", "--json"]);
    run(folder.path(), &[0], &["runs", "--dir=h2lab-runs"]);
    assert_clean_files(folder.path(), &[]);
}

#[test]
fn values_of_queries_are_kept_where_they_are_asked_for() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/?color=red", origin.clear);
    let words = ["load", &url, "-n=2", "-c=1", "--secrets", "--out=run", "--json", "-H", "X-Custom: c4n4ry"];
    run(folder.path(), &[0, 5], &words);
    let kept = fs::read_to_string(folder.path().join("run/run.json")).expect("run.json");
    assert!(kept.contains("?color=red") && !kept.contains(CANARY), "{kept}");
}

#[test]
fn a_comparison_of_live_servers_and_its_folder_have_no_secret() {
    let (origin, folder) = (Origin::start(&["--h2c-upgrade"]), folder());
    let [one, two] = ["one", "two"].map(|value| format!("http://{}/?token=c4n4ry-{value}", origin.clear));
    let words = [
        "compare",
        &one,
        &two,
        "--proto=h1,h2c",
        "-q=20",
        "-z=300ms",
        "--warmup=0ms",
        "--repetitions=1",
        DRAIN,
    ];
    let more = ["--out=run", "-o=r.html", "-o=r.json", "-o=r.md", "-o=r.csv", "-o=r.vegeta.csv"];
    let shown = run(folder.path(), &[0, 5], &[&words[..], &more, aloud()].concat());
    // Two URLs that differ only in what is not shown are two servers.
    assert!(shown.stdout.contains("token=***2"), "{}", shown.stdout);
    run(folder.path(), &[0, 5], &["report", "run", "-o=again.html", "--json"]);
    assert_clean_files(folder.path(), &[]);
}

#[test]
fn a_scenario_with_secrets_leaves_none_in_its_folder_and_is_resumed_with_its_file() {
    let folder = folder();
    let scenario = "claim = 'GET http://a/?token=c4n4ry'\nrepetitions = 1\n[work]\nmethod = 'GET'\npath = '/?token=c4n4ry'\nheaders = \
                    [['x-custom', 'c4n4ry']]\nbody-bytes = 0\nrate = 50\nmeasure = '300ms'\nwarmup = '0s'\n[matrix]\nprotocols = 'h1'\n\
                    [[vary]]\nwork = { path = '/bytes/1k?token=c4n4ry', headers = [['x-other', 'c4n4ry']] }\n";
    fs::write(folder.path().join("s.toml"), scenario).expect("a temporary file");
    run(folder.path(), &[0, 5], &["run", "s.toml", "--out=run", "-o=r.html", "-o=r.json", "-b=sid=c4n4ry"]);
    // As if the run had ended before its last repetition was over.
    let path = folder.path().join("run/run.json");
    let mut kept: Value = serde_json::from_slice(&fs::read(&path).expect("run.json")).expect("JSON");
    kept["interrupted"] = true.into();
    fs::write(&path, kept.to_string()).expect("it is ours");
    let refused = run(folder.path(), &[2], &["run", "--resume=run"]);
    assert!(refused.stderr.contains("give the scenario file"), "{}", refused.transcript());
    run(folder.path(), &[0, 5], &["run", "s.toml", "--resume=run", "-b=sid=c4n4ry"]);
    assert_clean_files(folder.path(), &["s.toml"]);
}

#[test]
fn traces_timelines_and_probes_show_no_secret_in_any_form() {
    let (origin, folder) = (Origin::start(&["--h3", "--h2c-upgrade"]), folder());
    let query = "/?token=c4n4ry-query";
    for (protocol, form) in
        [("h1", "-v"), ("h2c", "-v"), ("h1", "--json"), ("h2c", "--jsonl"), ("h1s", "-v"), ("h3", "--json")]
    {
        let at: Protocol = protocol.parse().expect("a protocol");
        let url = format!("{}://{}{query}", if at.is_tls() { "https" } else { "http" }, origin.address(at));
        let proto = format!("--proto={protocol}");
        let shown = run(folder.path(), &[0], &[&["trace", &url, "-k", &proto, form][..], aloud()].concat());
        assert!(shown.stdout.contains("token=***") && shown.stdout.contains("x-custom"), "{}", shown.stdout);
        let outputs = ["-o=t.html", "-o=t.svg", "-o=t.json"];
        let more: &[&str] = if form == "-v" { &[] } else { &["--json"] };
        run(folder.path(), &[0], &[&["timeline", &url, "-k", &proto][..], &outputs, more, aloud()].concat());
        let outputs =
            ["-v", "-o=p.sarif", "-o=p.xml", "-o=p.json", "-o=p.txt", "--max-requests=20", "--idle=500ms"];
        run(folder.path(), &[0, 1], &[&["probe", &url, "-k", &proto][..], &outputs, aloud()].concat());
    }
    // A flag may ask for a secret to be shown.
    let url = format!("http://{}/?token=shown", origin.clear);
    let shown = run(
        folder.path(),
        &[0],
        &["trace", &url, "--http1.1", "-v", "--secrets", "-H", "X-Custom: shown-too"],
    );
    assert!(shown.stdout.contains("token=shown") && shown.stdout.contains("shown-too"), "{}", shown.stdout);
    assert_clean_files(folder.path(), &[]);
}

#[test]
fn transfers_and_the_log_of_their_server_have_no_secret() {
    let (shared, folder) = (folder(), folder());
    fs::write(shared.path().join("file"), "content").expect("a temporary file");
    fs::write(folder.path().join("more"), "content").expect("a temporary file");
    let mut server = Server::writable(shared.path());
    let url = |path: &str| server.url(Protocol::H1, &format!("{path}?token=c4n4ry"));
    let (there, absent, new, drive) = (url("/file"), url("/absent"), url("/new"), url("/file"));
    for (form, name) in [("--json", "-o=one"), ("--quiet", "-o=two")] {
        run(folder.path(), &[0], &[&["bulk", "get", &there, name, form][..], aloud()].concat());
        run(folder.path(), &[1], &[&["bulk", "get", &absent, "-o=absent", form][..], aloud()].concat());
        run(folder.path(), &[0, 3], &[&["bulk", "put", "more", &new, form][..], aloud()].concat());
    }
    let driven = [
        "bulk",
        "drive",
        "--clients=local",
        "--servers",
        &drive,
        "--plain-http",
        "--http1.1",
        "-z=300ms",
        "--json",
    ];
    run(folder.path(), &[0, 2, 3, 5], &[&driven[..], aloud()].concat());
    server.child.stop(Signal::TERM, DEADLINE).expect("it ends");
    assert_clean("the log", &server.child.log());
    assert!(server.child.log().contains("/file?token=***"), "{}", server.child.log());
    assert_clean_files(folder.path(), &[]);
}

#[test]
fn errors_repeat_no_secret() {
    let folder = folder();
    let closed = "http://127.0.0.1:9/?token=c4n4ry";
    for command in [&["load"][..], &["compare"], &["trace"], &["timeline"], &["probe"], &["bulk", "get"]] {
        let quiet = if command == ["bulk", "get"] { &["-o=x"][..] } else { &[] };
        run(folder.path(), &[3], &[command, &[closed][..], quiet, aloud()].concat());
        let user = "http://me:c4n4ry@127.0.0.1/";
        let refused = run(folder.path(), &[2], &[command, &[user][..], quiet].concat());
        assert!(refused.stderr.contains("***@127.0.0.1"), "{}", refused.transcript());
        for wrong in [
            &["http://a b/?token=c4n4ry"][..],
            &["ftp://a/?token=c4n4ry"],
            &["http://a/", "-H", "Bearer c4n4ry"],
            &["http://a/", "-H", "X: c4n4ry\u{1}"],
            &["http://a/", "--no-such-flag=http://me:c4n4ry@a/"],
            &["http://a/", "-u", "c4n4ry"],
        ] {
            run(folder.path(), &[2], &[command, wrong, quiet].concat());
        }
    }
    assert_clean_files(folder.path(), &[]);
}

/// The origin's stderr is a log, too.
#[test]
fn an_origin_logs_no_secret_of_its_clients() {
    let (mut origin, folder) = (Origin::start(&["--max-requests-per-connection=1"]), folder());
    let url = format!("http://{}/anything?token=c4n4ry", origin.clear);
    run(folder.path(), &[0, 5], &[&["load", &url, "-n=3", "--no-store"], &GIVEN[..]].concat());
    origin.child.stop(Signal::TERM, DEADLINE).expect("it ends");
    assert_clean("the log", &origin.child.log());
}
