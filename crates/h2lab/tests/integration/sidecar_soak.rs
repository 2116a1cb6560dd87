//! Mixed requests through a pair of sidecars whose instances are killed, stopped and ended in order meanwhile: none is lost, none is
//! repeated that was not safe, every body is right.
//!
//! `cargo xtask verify sidecar --only soak` makes a million of them, over a link that loses packets.

use std::process::Command;

use h2lab_net::process::Child;
use rustix::process::Signal;

use crate::go::GoProgram;
use crate::support::{DEADLINE, binary, folder, free_ports, run_program_for};

static SOAK: GoProgram = GoProgram::new("soak_go");
/// How many requests `verify` asks for; fewer without it.
const REQUESTS: &str = "H2LAB_SOAK_REQUESTS";
/// What a test run makes do with: a minute.
const FEW: u64 = 3_000;

#[test]
fn nothing_is_lost_or_repeated_while_instances_are_killed_stopped_and_ended() {
    let Some(program) = SOAK.path() else { return };
    let asked: Option<u64> = std::env::var(REQUESTS).ok().and_then(|text| text.parse().ok());
    let n = asked.unwrap_or(FEW).to_string();
    let (folder, h2lab) = (folder(), binary());
    let shared = folder.path().display().to_string();
    let port = free_ports(3);
    let instances = (port + 1).to_string();
    let is_over_link = asked.is_some();
    let finished = if is_over_link {
        let (program, h2lab) = (program.display(), h2lab.display());
        let server = format!("{program} behind {h2lab} 0.0.0.0:{port} {shared} {instances}");
        let client = format!("{program} callers {h2lab} server:{port} {shared} {n}");
        let link = ["link", "--delay=5ms", "--loss=1%", "--server", &server, "--client", &client];
        run_program_for(DEADLINE * 24, &binary(), folder.path(), &link)
    } else {
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(&program);
        command.arg("behind").arg(&h2lab).args([&address, &shared, &instances]);
        let mut behind = Child::spawn(command, None).expect("it starts");
        let h2lab = h2lab.display().to_string();
        let finished =
            run_program_for(DEADLINE, &program, folder.path(), &["callers", &h2lab, &address, &shared, &n]);
        behind.stop(Signal::TERM, DEADLINE).expect("it ends");
        finished
    };
    let figures = finished.stdout.lines().find(|line| line.contains(" requests in ")).unwrap_or_default();
    println!("figure: {figures}");
    assert!(finished.code == Some(0) && finished.stdout.contains("\ndone"), "{}", finished.transcript());
}
