//! What an agent serves: the origin with bytes of memory, in a thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use h2lab_model::fleet::{ServeTask, ServerFigures};

use super::event::AgentEvent;
use crate::bulk;
use crate::origin::{self, Bulk, Listening, OriginConfig, OriginContent, Served};
use h2lab_net::quic::Congestion;
use h2lab_net::storage::Chunk;

/// Serves until `stop` is set; reports to `events` where it listens, and in the end what that took; or why it does not, or no
/// longer. `cpu` returns how much CPU the calling thread has had, in nanoseconds. Returns the thread that serves.
pub(super) fn start(
    task: &ServeTask,
    events: Sender<AgentEvent>,
    stop: Arc<AtomicBool>,
    cpu: impl Fn() -> u64 + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let (config, content) = config(task)?;
    let serve = move || {
        // What is prepared before it listens, such as a certificate, is no part of serving.
        let mut before = 0;
        let ready = &mut |sockets: &[Listening]| {
            before = cpu();
            send(&events, sockets.first().map(|socket| socket.address));
        };
        let event = match origin::run(&config, &stop, ready) {
            Ok(served) => {
                let cpu = Duration::from_nanos(cpu().saturating_sub(before));
                AgentEvent::Served(figures(&config, served, content.taken(), cpu))
            }
            Err(error) => AgentEvent::Serving(Err(error.to_string())),
        };
        // Fails only if the agent has ended.
        let _ = events.send(event);
    };
    let started = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
    started.map_err(|error| format!("cannot start a thread: {error}"))
}

/// Fails only if the agent has ended.
fn send(events: &Sender<AgentEvent>, address: Option<SocketAddr>) {
    let _ = events.send(AgentEvent::Serving(address.ok_or_else(|| "it does not listen".to_owned())));
}

/// What serving took, as reported to a driver; `taken` bytes were uploaded. Of QUIC the origin counts no lost packets.
fn figures(config: &OriginConfig, served: Served, taken: u64, cpu: Duration) -> ServerFigures {
    let quic = || config.h3.filter(|_| served.connections > 0).map(|congestion| congestion.name().to_owned());
    ServerFigures {
        cpu,
        sent: served.sent,
        received: taken,
        connections: served.connections,
        retransmits: served.retransmits,
        congestion: served.congestion.or_else(quic),
        paused: served.paused,
        busiest: served.busiest,
    }
}

/// What is served and how: any number of bytes, and uploads are counted and discarded.
fn config(task: &ServeTask) -> Result<(OriginConfig, Arc<Bulk>), String> {
    let (clear, tls) =
        if task.protocol.is_tls() { (vec![], vec![task.listen]) } else { (vec![task.listen], vec![]) };
    let mut config = OriginConfig::new(clear, tls);
    config.h3 = match (task.protocol.is_quic(), task.congestion.as_deref()) {
        (false, _) => None,
        (true, None) => Some(Congestion::default()),
        (true, Some(name)) => {
            let none = || format!("--congestion {name}: HTTP/3 has reno, cubic and bbr");
            Some(Congestion::named(name).ok_or_else(none)?)
        }
    };
    config.congestion.clone_from(&task.congestion);
    let ours = bulk::engine(false);
    (config.engine.flow, config.engine.max_frame_size) = (ours.flow, ours.max_frame_size);
    task.settings.apply(&mut config.engine);
    let chunk = Chunk::of_frame(None, task.settings.max_frame_size);
    chunk.make_room(&mut config.engine);
    let content = Arc::new(Bulk::memory().in_chunks(chunk));
    config.site = OriginContent::Bulk(Arc::clone(&content));
    config.window_budget = task.settings.window_budget.unwrap_or(config.window_budget);
    // When an agent is ended its remaining requests are not needed.
    config.drain_timeout = Duration::ZERO;
    Ok((config, content))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::channel;

    use h2lab_model::workload::{EngineSettings, Protocol};

    use super::*;

    #[test]
    fn what_was_prepared_before_it_listened_is_not_counted() {
        let (sender, events) = channel();
        let stop = Arc::<AtomicBool>::default();
        let task = ServeTask {
            listen: "127.0.0.1:0".parse().unwrap(),
            protocol: Protocol::H2,
            settings: EngineSettings::default(),
            congestion: None,
        };
        // A second before it listens, and 7 ns from then to the end.
        let spent = AtomicU64::new(1_000_000_000);
        let cpu = move || spent.fetch_add(7, Ordering::Relaxed);
        let server = start(&task, sender, Arc::clone(&stop), cpu).unwrap();
        let AgentEvent::Serving(Ok(_)) = events.recv().unwrap() else { panic!("it serves") };
        stop.store(true, Ordering::Relaxed);
        let AgentEvent::Served(figures) = events.recv().unwrap() else { panic!("it reports what it spent") };
        assert_eq!((figures.cpu, figures.received), (Duration::from_nanos(7), 0));
        server.join().unwrap();
    }
}
