//! `h2lab diagnose --config FILE --fix`: the user's configuration in the lab, what is refused, and that the file stays as it is.

use std::fs;
use std::path::Path;

use crate::support::{Finished, binary, folder, need, run_program};

fn nginx(http: &str) -> String {
    format!("user nobody;\npid /run/nowhere/nginx.pid;\nevents {{}}\nhttp {{\n{http}\n}}\n")
}

/// A server in clear with a quota of requests, in front of a host that does not exist.
const SERVER: &str = "    server {\n        listen 80;\n        listen 10.1.2.3:81 http2;\n        keepalive_requests 5;\n        location / { proxy_pass http://app.invalid:3000; }\n    }";

fn diagnosed(folder: &Path, text: &str, more: &[&str]) -> Finished {
    fs::write(folder.join("nginx.conf"), text).unwrap();
    let arguments = [
        "diagnose",
        "--origin=nginx",
        "--config=nginx.conf",
        "--loss=0%",
        "--delay=20ms",
        "-q100",
        "-z1s",
        "--budget=1ms",
    ];
    run_program(&binary(), folder, &[&arguments[..], more].concat())
}

#[test]
fn a_configuration_is_measured_and_a_fix_is_written_beside_it() {
    let Some(_) = need("nginx") else { return };
    let folder = folder();
    let text = nginx(SERVER);
    let finished = diagnosed(folder.path(), &text, &["--fix", "--json", "--out=run"]);
    finished.assert_measured();
    assert_eq!(fs::read_to_string(folder.path().join("nginx.conf")).unwrap(), text, "the user's file");
    assert!(finished.stderr.contains("listen 10.1.2.3:81"), "{}", finished.transcript());
    let document = finished.json();
    let fix = &document["fix"];
    // Whether HTTP/2 was known to be as good after two rounds depends on time.
    if fix["setting"].is_null() {
        return assert!(
            fix["says"][0].as_str().is_some_and(|says| says.contains("No fix was made")),
            "{fix:#}"
        );
    }
    let setting = fix["setting"].as_str().unwrap();
    assert!(setting.starts_with("nginx: "), "{fix:#}");
    let changed = fs::read_to_string(folder.path().join("run/fix/nginx.conf")).unwrap();
    assert!(changed.contains(setting.strip_prefix("nginx: ").unwrap()), "{changed}");
    let diff = fs::read_to_string(folder.path().join("run/fix/fix.diff")).unwrap();
    assert!(diff.starts_with("--- nginx.conf\n+++ nginx.conf\n@@ "), "{diff}");
}

#[test]
fn what_cannot_be_started_is_refused_with_exit_code_2_and_the_programs_own_words() {
    let Some(_) = need("nginx") else { return };
    let folder = folder();
    let refused = |text: &str, more: &[&str], words: &str| {
        let finished = diagnosed(folder.path(), text, more);
        assert_eq!(finished.code, Some(2), "{}", finished.transcript());
        assert!(finished.stderr.contains(words), "{words}: {}", finished.transcript());
        assert!(!folder.path().join("run").exists(), "no litter");
    };
    let wrong = nginx(&SERVER.replace("keepalive_requests", "keepalive_request"));
    refused(&wrong, &["--out=run"], "unknown directive \"keepalive_request\" in nginx.conf:8");
    let alone = nginx("    server { listen 80; }");
    refused(&alone, &["--out=run"], "it speaks HTTP/1.1 alone");
    refused(&nginx("    include gone.conf;"), &["--out=run"], "gone.conf, which does not exist");
    refused(
        &nginx(SERVER),
        &["--out=run", "--max-requests-per-connection=5"],
        "leave --max-requests-per-connection out",
    );
    let without = run_program(&binary(), folder.path(), &["diagnose", "--config=nginx.conf"]);
    assert_eq!(without.code, Some(2), "{}", without.transcript());
    assert!(without.stderr.contains("needs one --origin"), "{}", without.transcript());
    let other = run_program(&binary(), folder.path(), &["diagnose", "--origin=caddy", "--config=nginx.conf"]);
    assert!(
        other.code != Some(0) && other.stderr.contains("configurations cannot be read"),
        "{}",
        other.transcript()
    );
    let missing =
        run_program(&binary(), folder.path(), &["diagnose", "--origin=nginx", "--config=none.conf"]);
    assert_eq!(missing.code, Some(2), "{}", missing.transcript());
    assert!(missing.stderr.contains("none.conf"), "{}", missing.transcript());
}

#[test]
fn a_path_of_the_configured_server_is_asked_for() {
    let Some(_) = need("nginx") else { return };
    let folder = folder();
    let server = "    server {\n        listen 80;\n        listen 81 http2;\n        location = /api { return 200 x; }\n        \
                  location / { return 404; }\n    }";
    let asked = |more: &[&str]| diagnosed(folder.path(), &nginx(server), more);
    let index = asked(&["--json", "--out=index"]);
    index.assert_code_unless_busy(1);
    let api = asked(&["--json", "--out=api", "--path=/api?x=1"]);
    api.assert_measured();
    let wrong = asked(&["--path=api"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.transcript());
    let without = run_program(&binary(), folder.path(), &["diagnose", "--path=/api"]);
    assert_eq!(without.code, Some(2), "{}", without.transcript());
}

#[test]
fn a_server_of_http2_alone_is_measured_by_itself_and_is_no_error() {
    let Some(_) = need("nginx") else { return };
    let folder = folder();
    let server = "    server {\n        listen 81 http2;\n        location / { return 200 x; }\n    }";
    let alone = diagnosed(folder.path(), &nginx(server), &["--out=run"]);
    alone.assert_measured();
    let words = alone.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Only h2c was measured"), "{words}");
}
