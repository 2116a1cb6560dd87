//! Which host an instance is asked for: the client's, or its own.

use std::fs;

use h2lab_model::workload::Protocol;

use crate::curl::Curl;
use crate::origin::Origin;
use crate::sidecar::{Sidecar, scripted};
use crate::support::{DEADLINE, folder};

/// A sidecar in front of this instance; `host` says which host it is asked for.
fn sidecar(host: &str, instance: &str) -> Sidecar {
    let folder = folder();
    let file = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{instance}']\n{host}\n"
    );
    fs::write(&file, text).expect("a file");
    Sidecar::with(&file)
}

const OWN: &str = "[fields]\nhost = 'instance'";

#[test]
fn an_instance_is_asked_for_the_clients_host_or_for_its_own() {
    let (url, heads) = scripted(|mut stream| {
        use std::io::Write as _;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    });
    let own = url.strip_prefix("http://").expect("a URL").to_owned();
    for (keys, host) in [("", "users.test"), ("[fields]\nhost = 'keep'", "users.test"), (OWN, &own)] {
        let sidecar = sidecar(keys, &url);
        sidecar.ask("GET / HTTP/1.1\r\nhost: users.test\r\nconnection: close\r\n\r\n");
        let head = heads.recv_timeout(DEADLINE).expect("it was asked").to_lowercase();
        assert!(head.contains(&format!("\r\nhost: {host}\r\n")), "{keys}: {head}");
        assert!(head.contains("\r\nx-forwarded-host: users.test\r\n"), "{keys}: {head}");
        assert_eq!(head.matches("\r\nhost: ").count(), 1, "{keys}: {head}");
        sidecar.stop();
    }

    // The same from HTTP/2 to HTTP/2; the origin's answer contains the authority of the request.
    let (origin, folder) = (Origin::start(&[]), folder());
    for (keys, is_own) in [("", false), (OWN, true)] {
        let sidecar = sidecar(keys, &format!("h2c://{}", origin.clear));
        let Some(curl) = Curl::new(folder.path(), Protocol::H2c, sidecar.clear) else { return };
        let told = curl.get("/headers", &["-H", "host: users.test"]);
        let text = String::from_utf8_lossy(&told.body).into_owned();
        let asked = if is_own { origin.clear.to_string() } else { "users.test".to_owned() };
        let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["authority"], asked, "{text}");
    }
}
