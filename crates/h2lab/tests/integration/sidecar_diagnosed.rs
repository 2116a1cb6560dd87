//! What limits a sidecar's connections to its instances is named by `h2lab diagnose --sidecar` while it runs.

use std::fs;
use std::time::Instant;

use crate::origin::Origin;
use crate::sidecar_admin::{Watched, diagnosed, found};
use crate::support::{DEADLINE, binary, folder, h2lab};

#[test]
fn a_stream_limit_of_the_instance_is_named() {
    let origin = Origin::start(&["--max-concurrent-streams", "2"]);
    let watched = Watched::to(&format!("h2c://{}", origin.clear), &["--policy", "fixed:1"]);
    let url = format!("http://{}/delay/20", watched.clear);
    let began = Instant::now();
    loop {
        h2lab(&["load", "--proto=h1", "-c", "16", "-n", "100", &url]).assert_measured();
        let document = diagnosed(&watched);
        if found(&document).contains(&"MUX101".to_owned()) {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{document}");
    }
    watched.stop();
}

/// A sidecar with a client beside it: uploads until the diagnosis names the rule `$3`. `$1`: our binary, `$2`: the body.
const CLIENT: &str = r#"
"$1" sidecar --listen 127.0.0.1:15001 --to h2c://server:8080 --admin 127.0.0.1:9901 --policy fixed:1 &
sidecar=$!
until "$1" load -n 1 http://127.0.0.1:15001/ > /dev/null 2>&1; do sleep 0.1; done
for round in 1 2 3 4 5 6; do
    "$1" load --proto=h1 -X POST -d @"$2" -c 2 -n 20 http://127.0.0.1:15001/anything > /dev/null
    told=$("$1" diagnose --sidecar http://127.0.0.1:9901)
    case $told in *"$3"*) kill $sidecar; wait $sidecar; exit ;; esac
done
echo "$told"
kill $sidecar
exit 1
"#;

#[test]
fn a_stream_window_of_the_instance_that_is_too_small_for_its_path_is_named() {
    let folder = folder();
    let path = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("a name").to_owned()
    };
    let (script, body) = (path("client.sh", CLIENT.as_bytes()), path("body", &vec![b'x'; 400_000]));
    let ours = binary();
    let server = format!("{} origin --listen 0.0.0.0:8080 -w 65535", ours.display());
    let client = format!("sh {script} {} {body} FLOW102", ours.display());
    let done = h2lab(&["link", "--delay", "10ms", "--server", &server, "--client", &client]);
    assert_eq!(done.code, Some(0), "{}", done.transcript());
}
