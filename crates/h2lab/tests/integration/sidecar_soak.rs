//! Mixed requests through a pair of sidecars, over a link that loses packets. Meanwhile the instances are killed,
//! stopped and ended in order, and the sidecars are reloaded and replaced. No request is lost, none is repeated unless
//! that is safe, and every body is right.
//!
//! For two minutes; `cargo xtask verify sidecar --only soak` makes a million requests.

use h2lab_base::units::parse_duration;

use crate::go::GoProgram;
use crate::support::{DEADLINE, binary, folder, free_ports, run_program_for};

static SOAK: GoProgram = GoProgram::new("soak_go");
/// How many requests there must be, and in which time; 0: as many as there are.
const REQUESTS: (&str, &str) = ("H2LAB_SOAK_REQUESTS", "0");
const TIME: (&str, &str) = ("H2LAB_SOAK_TIME", "2m");

fn asked((name, default): (&str, &str)) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[test]
fn nothing_is_lost_or_repeated_while_instances_are_killed_stopped_and_ended() {
    let Some(program) = SOAK.path() else { return };
    let (requests, time) = (asked(REQUESTS), asked(TIME));
    let (folder, h2lab) = (folder(), binary());
    let shared = folder.path().display();
    let port = free_ports(3);
    let (program, h2lab) = (program.display(), h2lab.display());
    let server = format!("{program} behind {h2lab} 0.0.0.0:{port} {shared} {}", port + 1);
    let client = format!("{program} callers {h2lab} server:{port} {shared} {requests} {time}");
    let link =
        ["link", "--delay=5ms", "--loss=1%", "--congestion=cubic", "--server", &server, "--client", &client];
    // It continues until each disturbance has happened, at most three times as long.
    let most = 3 * parse_duration(&time).expect("a time with its unit") + DEADLINE;
    let finished = run_program_for(most, &binary(), folder.path(), &link);
    let figures = finished.stdout.lines().find(|line| line.contains(" requests in ")).unwrap_or_default();
    println!("figure: {figures}");
    assert!(finished.code == Some(0) && finished.stdout.contains("\ndone"), "{}", finished.transcript());
}
