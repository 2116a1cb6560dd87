//! The client under test: its command runs, test case by test case, against a server of ours that behaves as [`TestCase`] says.
//!
//! One thread serves and waits for the command to end. The server is our engine; its misbehaviour is in the test case.
//! [`h2lab_model::probe::client`] draws the conclusions from all that was seen.

mod session;
mod sockets;
mod test_server;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_model::probe::client::grade::CaseRuns;
use h2lab_model::probe::client::{CaseRun, TestCase};

use h2lab_net::clock::Clock;
use h2lab_net::scratch::ScratchFolder;
use h2lab_net::tls::ServerTls;
pub use test_server::ClientError;
use test_server::ClientTestServer;

/// What is run, and how.
#[derive(Debug, Clone)]
pub struct ClientTestSpec {
    /// The command, for `sh -c`; `{url}`, `{urls}` and `{ca}` are replaced.
    pub command: String,
    /// The number of URLs for `{urls}`.
    pub urls: usize,
    /// Whether the server speaks TLS.
    pub tls: bool,
    /// How long the command may run on in a test case once its server sends nothing more.
    pub idle_timeout: Duration,
    /// How long it may run in any.
    pub limit: Duration,
    /// Which test cases are run, [`TestCase::Plain`] before all others.
    pub test_cases: Vec<TestCase>,
}

/// Runs all test cases; `notify` is called as each begins.
pub fn run_cases(
    script: &ClientTestSpec,
    clock: Clock,
    stop: &Arc<AtomicBool>,
    notify: &mut dyn FnMut(TestCase),
) -> Result<Vec<CaseRun>, ClientError> {
    let tls = script.tls.then(|| ServerTls::self_signed(&["localhost", "127.0.0.1"], &["h2", "http/1.1"]));
    let tls = tls.transpose()?;
    let folder = ScratchFolder::create("h2lab-client")?;
    let ca = folder.path().join("ca.pem");
    if let Some(tls) = &tls {
        std::fs::write(&ca, tls.certificate_pem())?;
    }
    let mut case_runs: Vec<CaseRun> = Vec::new();
    for test_case in &script.test_cases {
        notify(*test_case);
        let expected = CaseRuns(&case_runs).expected();
        let mut test_server = ClientTestServer::open(*test_case, expected, tls.clone(), clock)?;
        let command = command(script, test_server.port()?, &ca);
        let case_run = test_server.run_case(command, (script.idle_timeout, script.limit), stop)?;
        // Several URLs are several requests, each with a path of its own.
        let by_line = script.command.contains("{urls}") && !script.command.contains("{url}");
        case_runs.push(CaseRun { by_line, ..case_run });
        if !CaseRuns(&case_runs).is_gradable() {
            break; // what fails by itself, or speaks another protocol, says nothing in the others
        }
    }
    Ok(case_runs)
}

/// The command with its places filled.
fn command(script: &ClientTestSpec, port: u16, ca: &Path) -> Command {
    let scheme = if script.tls { "https" } else { "http" };
    // By its address: `localhost` may be ::1 first, where nothing listens.
    let base = format!("{scheme}://127.0.0.1:{port}");
    let urls: Vec<String> = (1..=script.urls).map(|n| format!("{base}/{n}")).collect();
    let text = script
        .command
        .replace("{urls}", &urls.join(" "))
        .replace("{url}", &format!("{base}/"))
        .replace("{ca}", &ca.to_string_lossy());
    let mut command = Command::new("sh");
    command.args(["-c", &text]);
    // Requests sent to a proxy would not reach us.
    for name in ["no_proxy", "NO_PROXY"] {
        command.env(name, "localhost,127.0.0.1");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_command_are_filled() {
        let script = ClientTestSpec {
            command: "get {url} {urls} --cacert {ca}".to_owned(),
            urls: 2,
            tls: true,
            idle_timeout: Duration::ZERO,
            limit: Duration::ZERO,
            test_cases: Vec::new(),
        };
        let command = command(&script, 7, Path::new("/x/ca.pem"));
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let text = "get https://127.0.0.1:7/ https://127.0.0.1:7/1 https://127.0.0.1:7/2 --cacert /x/ca.pem";
        assert_eq!(words, ["-c", text]);
    }
}
