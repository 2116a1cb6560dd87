//! What limits a sidecar's connections to its instances is named by `h2lab diagnose --sidecar` while it runs.

use std::fs;
use std::time::Instant;

use crate::origin::Origin;
use crate::sidecar_admin::{Watched, diagnosed, found};
use crate::support::{DEADLINE, binary, folder, h2lab, need};

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

/// A sidecar with a client beside it: makes loads with the flags from `$4` on until the diagnosis names the rule `$2`,
/// and the page contains the words `$3`. `$1`: our binary.
const CLIENT: &str = r#"
h2lab=$1 rule=$2 words=$3
shift 3
"$h2lab" sidecar --listen 127.0.0.1:15001 --to h2c://server:8080 --admin 127.0.0.1:9901 --policy fixed:1 &
sidecar=$!
until "$h2lab" load -n 1 http://127.0.0.1:15001/ > /dev/null 2>&1; do sleep 0.1; done
for round in 1 2 3 4 5 6; do
    "$h2lab" load --proto=h1 -X POST "$@" http://127.0.0.1:15001/anything > /dev/null
    told=$("$h2lab" diagnose --sidecar http://127.0.0.1:9901)
    page=$(curl -q -sS --noproxy '*' http://127.0.0.1:9901/)
    case $told in *"$rule"*) case $page in *"$words"*) kill $sidecar; wait $sidecar; exit ;; esac ;; esac
done
echo "$told $page"
kill $sidecar
exit 1
"#;

/// Fails unless bodies of this length over this link, to an origin with these flags, make the diagnosis name a rule and
/// the page contain these words.
#[track_caller]
fn assert_told(link: &[&str], origin: &str, (length, load): (usize, &str), rule: &str, words: &str) {
    let Some(_) = need("curl") else { return };
    let folder = folder();
    let path = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("a name").to_owned()
    };
    let (script, body) = (path("client.sh", CLIENT.as_bytes()), path("body", &vec![b'x'; length]));
    let ours = binary();
    let server = format!("{} origin --listen 0.0.0.0:8080 {origin}", ours.display());
    let client = format!("sh {script} {} {rule} '{words}' -d @{body} {load}", ours.display());
    let ends = ["--delay", "10ms", "--server", &server, "--client", &client];
    let done = h2lab(&[&["link"], link, &ends].concat());
    assert_eq!(done.code, Some(0), "{}", done.transcript());
}

#[test]
fn a_stream_window_of_the_instance_that_is_too_small_for_its_path_is_named() {
    assert_told(&[], "-w 65535", (400_000, "-c 2 -n 20"), "FLOW102", ", RTT ");
}

#[test]
fn loss_on_the_path_to_the_instance_is_named_and_stands_on_the_page() {
    let link = ["--loss", "3%", "--congestion", "cubic"];
    assert_told(&link, "", (1_000, "-c 64 -q 400 -z 4s"), "LOSS101", " of packets lost");
}
