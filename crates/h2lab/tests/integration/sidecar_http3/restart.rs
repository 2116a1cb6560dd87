//! Instances of HTTP/3 that are killed and restarted while connections to them carry nothing: over UDP, nothing reports
//! that.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::Both;
use super::threads::KeptAlive;
use crate::origin::Origin;
use crate::sidecar_reload::until;
use crate::support::DEADLINE;

/// The UDP port of an instance that is restarted: its datagrams go to one process, and later to another one, which does
/// not have the connections of the first. The port is never closed.
struct Port {
    address: SocketAddr,
    to: Arc<Mutex<SocketAddr>>,
    /// Datagrams that have come.
    come: Arc<AtomicU64>,
}

impl Port {
    fn of(origin: &Origin) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("it is bound");
        let (to, come) = (Arc::new(Mutex::new(origin.tls)), Arc::new(AtomicU64::new(0)));
        let (now, count) = (Arc::clone(&to), Arc::clone(&come));
        thread::spawn(move || {
            let (mut space, mut ways) = (vec![0; 65_535], BTreeMap::new());
            while let Ok((n, client)) = socket.recv_from(&mut space) {
                count.fetch_add(1, Ordering::Relaxed);
                let to = *now.lock().expect("no panic");
                let way = ways.entry((client, to)).or_insert_with(|| {
                    let way = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
                    way.connect(to).expect("an address");
                    let (answers, back) =
                        (way.try_clone().expect("a file"), socket.try_clone().expect("a file"));
                    let now = Arc::clone(&now);
                    thread::spawn(move || {
                        let mut space = vec![0; 65_535];
                        while let Ok(n) = answers.recv(&mut space) {
                            // From a process that counts as killed nothing may arrive any more, such as packets that it
                            // still wants acknowledged.
                            if *now.lock().expect("no panic") == to {
                                let _ = back.send_to(&space[..n], client);
                            }
                        }
                    });
                    way
                });
                let _ = way.send(&space[..n]);
            }
        });
        Self { address, to, come }
    }

    /// Restarts the instance: datagrams go to `origin` from now on.
    fn passes_to(&self, origin: &Origin) {
        *self.to.lock().expect("no panic") = origin.tls;
    }
}

/// No PINGs on connections that carry nothing: only a request finds out that the connection is lost.
const WITHOUT_PINGS: &str = "[timeouts]\nping = '0'\nresponse = '20s'";

#[test]
fn requests_that_meet_lost_connections_are_answered_in_every_thread() {
    let [first, second] = [(); 2].map(|()| Origin::start(&["--h3"]));
    let port = Port::of(&first);
    let service = format!("instances = ['h3://{}']\n{WITHOUT_PINGS}", port.address);
    let both = Both::start_with("threads = 2", &service, "");
    let mut clients = [(); 2].map(|()| KeptAlive::connect(both.sidecar.clear));
    for client in &mut clients {
        assert_eq!(client.ask("GET"), 200);
    }
    port.passes_to(&second);
    for client in &mut clients {
        assert_eq!(client.ask("GET"), 200, "{}", both.sidecar.child.log());
    }
    drop(clients);
    let last = both.sidecar.stop();
    assert!(last.contains("; none failed"), "{last}");
    assert!(last.contains(" retried"), "the first one was on a connection that was lost: {last}");
}

#[test]
fn what_may_have_been_done_before_the_instance_was_killed_is_not_sent_again() {
    let [first, second] = [(); 2].map(|()| Origin::start(&["--h3"]));
    let port = Port::of(&first);
    let service = format!("instances = ['h3://{}']\n{WITHOUT_PINGS}", port.address);
    let both = Both::start(&service.replace("20s", "6s"), "");
    let [mut posting, mut getting] = [(); 2].map(|()| KeptAlive::connect(both.sidecar.clear));
    assert_eq!([posting.ask("POST"), getting.ask("GET")], [200, 200]);
    port.passes_to(&second);
    posting.send("POST");
    assert_eq!(getting.ask("GET"), 200);
    assert_eq!(posting.status(), 504);
    drop((posting, getting));
    let last = both.sidecar.stop();
    assert!(last.contains("; 1 answered with an error by the sidecar, "), "{last}");
}

#[test]
fn a_request_that_meets_a_closed_port_was_not_there_whatever_its_method() {
    let spare = Origin::start(&["--h3"]);
    let began = Instant::now();
    loop {
        let mut first = Origin::start(&["--h3"]);
        let instances =
            format!("instances = ['h3://{}', {{ url = 'h3://{}', priority = 1 }}]", first.tls, spare.tls);
        let both = Both::start(&format!("{instances}\n{WITHOUT_PINGS}"), "");
        let mut client = KeptAlive::connect(both.sidecar.clear);
        assert_eq!(client.ask("POST"), 200);
        // Which datagram meets the closed port is known only if the connection has sent no other one for a second: an
        // acknowledgement that it still sends would meet the port first, and end the connection before the request. If
        // this machine has delayed the acknowledgement, nothing is shown, and the next round tries again.
        thread::sleep(Duration::from_millis(1_500));
        first.child.kill().expect("it runs");
        let status = client.ask("POST");
        drop(client);
        let log = both.sidecar.child.log();
        let last = both.sidecar.stop();
        if status == 200 && last.ends_with("; none failed, 1 retried") {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{status}: {last}: {log}");
    }
}

#[test]
fn an_instance_is_asked_whether_it_is_there_while_its_connection_carries_nothing() {
    let origin = Origin::start(&["--h3"]);
    let Port { address, come, .. } = Port::of(&origin);
    let both = Both::start(&format!("instances = ['h3://{address}']\n[timeouts]\nping = '250ms'"), "");
    let mut client = KeptAlive::connect(both.sidecar.clear);
    assert_eq!(client.ask("GET"), 200);
    let before = come.load(Ordering::Relaxed);
    // More datagrams than a response still makes it send.
    until(|| come.load(Ordering::Relaxed) >= before + 12, || format!("{before}: {come:?}"));
    assert_eq!(client.ask("GET"), 200);
    drop(client);
    let last = both.sidecar.stop();
    assert!(last.contains("over 1 connection to instances; none failed"), "{last}");
}
