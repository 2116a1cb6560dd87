//! What an agent serves: the origin with bytes of memory, in a thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::Duration;

use h2lab_core::bulk::fleet::ServeTask;

use super::agent::Event;
use crate::bulk;
use crate::io::quic::Congestion;
use crate::io::storage::Chunk;
use crate::origin::{self, Bulk, Listening, OriginConfig, Site};

/// Serves until `stop` is set; tells `events` where it listens, or why it does not, or no longer.
pub(super) fn start(task: &ServeTask, events: Sender<Event>, stop: Arc<AtomicBool>) -> Result<(), String> {
    let config = config(task)?;
    let serve = move || {
        let ready = &mut |sockets: &[Listening]| tell(&events, sockets.first().map(|socket| socket.address));
        if let Err(error) = origin::run(&config, &stop, ready) {
            let _ = events.send(Event::Serving(Err(error.to_string())));
        }
    };
    let started = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
    started.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Fails only if the agent has ended.
fn tell(events: &Sender<Event>, address: Option<SocketAddr>) {
    let _ = events.send(Event::Serving(address.ok_or_else(|| "it listens nowhere".to_owned())));
}

fn config(task: &ServeTask) -> Result<OriginConfig, String> {
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
    config.site = Site::Bulk(Arc::new(Bulk::memory().in_chunks(chunk)));
    config.window_budget = task.settings.window_budget.unwrap_or(config.window_budget);
    // Whoever ends an agent wants nothing more of it.
    config.drain_timeout = Duration::ZERO;
    Ok(config)
}
