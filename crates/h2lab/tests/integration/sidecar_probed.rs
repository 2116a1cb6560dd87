//! Our own probes against the sidecar: offers of h2c, malformed HTTP/2, and attacks.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_guard::{response, server};
use crate::support::{DEADLINE, binary, folder, free_ports, h2lab};

/// A sidecar that forwards `/forbidden` to a server which refuses, and everything else to `instance`.
fn sidecar(folder: &Path, instance: &str) -> Sidecar {
    let no = server(|_| Some(response(403, "no")));
    let file = folder.join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nroute = [{{ path = '/forbidden', service = 'no' }}]\n\
         [service.a]\ninstances = ['{instance}']\n[service.no]\ninstances = ['{no}']\n"
    );
    fs::write(&file, text).expect("a file");
    Sidecar::with(&file)
}

/// The checks of a report, as `ID CASE VERDICT: SUMMARY`, whose verdict is not in `verdicts`.
fn others(report: &Value, verdicts: &[&str]) -> Vec<String> {
    let checks = report["checks"].as_array().expect("a list");
    let word = |check: &Value, key: &str| check[key].as_str().unwrap_or("-").to_owned();
    let of = checks.iter().filter(|check| !verdicts.contains(&word(check, "verdict").as_str()));
    of.map(|check| ["id", "case", "verdict", "summary"].map(|key| word(check, key)).join(" ")).collect()
}

#[test]
fn nothing_is_smuggled_past_one_or_past_two() {
    let backend = format!("127.0.0.1:{}", free_ports(1));
    let folders = [folder(), folder()];
    let one = sidecar(folders[0].path(), &format!("http://{backend}"));
    let two = sidecar(folders[1].path(), &format!("h2c://{}", one.clear));
    for (name, proxy) in [("one", &one), ("two", &two)] {
        let url = format!("http://{}/", proxy.clear);
        let proxy = ["probe", "smuggling", "--json", "--proxy", &url, "--backend-listen", &backend];
        // Only a busy machine delays its answers: the probe then waits for them.
        let finished = h2lab(&[&proxy[..], &["--i-own-this-host", "--timeout", "60s"]].concat());
        assert_eq!(finished.code, Some(0), "{name}: {}", finished.transcript());
        let report = finished.json();
        // Ignored: the proxy ignores the offer, and the request reaches the backend like any other.
        let found = others(&report, &["pass", "ignored"]);
        assert!(found.is_empty(), "{name}: {}", found.join("\n"));
        let ids: Vec<&str> = report["checks"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|check| check["id"].as_str().unwrap_or("-"))
            .collect();
        for id in ["SMUG101", "SMUG102", "SMUG103", "SMUG104", "DOWN101", "DOWN105", "DOWN106", "DOWN108"] {
            assert!(ids.contains(&id), "{name}: no {id}: {ids:?}");
        }
    }
}

#[test]
fn every_attack_of_the_probe_is_bounded_on_both_listeners_whatever_the_instance_speaks() {
    // The origin's own bound is not the one under test.
    let origin = Origin::start(&["--limit=stall=600s"]);
    let run = |scheme: &str, listener: &str| {
        let folder = folder();
        let file = folder.path().join("sidecar.toml");
        let listen = "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n";
        let text = format!(
            "{listen}{listen}tls = true\n[service.a]\ninstances = ['{scheme}://{}']\n[timeouts]\nclient-idle = '5s'\n",
            origin.clear
        );
        fs::write(&file, text).expect("a file");
        let sidecar = Sidecar::with(&file);
        let is_listener = |line: &str| {
            let url = line.strip_prefix("listening ")?;
            url.starts_with(listener).then(|| format!("{url}/"))
        };
        let url = sidecar.child.wait_for_line(DEADLINE, is_listener).expect("it listens");
        let pid = format!("--pid={}", sidecar.child.pid().as_raw_nonzero());
        let mut command = Command::new(binary());
        command.args(["probe", "-k", "--i-own-this-host", "--resistance", "--max-requests=20000"]);
        let output = command.args([&pid, "--json", &url]).output().expect("the binary runs");
        let scheme = format!("{listener} to {scheme}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let failed = others(&report, &["pass", "ignored", "undecided", "unsupported"]);
        assert!(failed.is_empty(), "{scheme}: {}", failed.join("\n"));
        let checks = report["checks"].as_array().expect("a list");
        let attacks =
            checks.iter().filter(|check| check["id"].as_str().is_some_and(|id| id.starts_with("RESI")));
        let attacks: Vec<&Value> = attacks.collect();
        assert!(attacks.len() >= 9, "{report:#}");
        for attack in attacks {
            assert_eq!(attack["verdict"], "pass", "{scheme}: {attack:#}");
        }
        assert_eq!(output.status.code(), Some(0), "{scheme}: {}", String::from_utf8_lossy(&output.stderr));
        sidecar.stop();
    };
    // The longest attack is one of half a minute.
    std::thread::scope(|scope| {
        for scheme in ["http", "h2c"] {
            for listener in ["http://", "https://"] {
                scope.spawn(move || run(scheme, listener));
            }
        }
    });
}
