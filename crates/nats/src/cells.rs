//! The queue of units: each is given to one agent, and to another if that one is not heard of any more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::client::DEADLINE;
use crate::jetstream::PAUSE;
use crate::link::{Attempt, Link};
use crate::streams::{CELLS, nanoseconds};
use crate::{Nats, NatsError, tokens};

/// How long the server keeps one request for a unit. A shorter time finds sooner that the connection is gone; a
/// longer one asks less.
const PULL: Duration = Duration::from_secs(5);
/// How much longer its answer is waited for, so that no unit is given to a request that nobody waits for.
const SLACK: Duration = Duration::from_secs(2);
/// The shortest such request: JetStream takes 0 for no end.
const SHORTEST: Duration = Duration::from_millis(100);
/// Agents that wait, and units that are taken, of one class at once.
const MOST: u32 = 4096;
/// A class that no agent asks for so long is deleted.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What tells the units that this process adds from those of others; no other process can guess it.
static PROCESS_NONCE: OnceLock<String> = OnceLock::new();

/// Purges by this process. The server still knows the identities of messages that it has purged.
static PURGES: AtomicU64 = AtomicU64::new(0);

/// The queue. Made by [`Nats::cells`].
pub struct Cells {
    nats: Nats,
}

/// A unit that was given to us. Unless it is kept, done or given back within the class's time, another agent gets it.
pub struct Taken {
    nats: Nats,
    /// Where it is acknowledged.
    reply: String,
    payload: Bytes,
    delivered: u64,
}

/// The answer to a request for the names of consumers.
#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    total: u64,
    #[serde(default)]
    consumers: Option<Vec<String>>,
}

impl Cells {
    pub(crate) fn new(nats: Nats) -> Self {
        Self { nats }
    }

    /// Adds a unit. The same `run` and `unit` again within 10 minutes adds nothing, unless another process adds it, or the run was
    /// purged meanwhile.
    ///
    /// Publishes to `h2lab.cells.<run>.<class>.<unit>`.
    pub fn add(&self, run: &str, class: u32, unit: u32, payload: Vec<u8>) -> Result<(), NatsError> {
        let subject = format!("h2lab.cells.{}.{class}.{unit}", tokens::token(run)?);
        // Two drivers of copies of one run folder give the same numbers to what they add: each must get its own units.
        let nonce = PROCESS_NONCE.get_or_init(|| self.nats.unpredictable());
        let id = format!("{run}.{unit}.{nonce}.{}", PURGES.load(Ordering::Relaxed));
        self.nats.wait("to a unit for the queue", DEADLINE, |link| async move {
            link.store(&subject, Some(id), payload.into()).await
        })
    }

    /// The units of a run that are not done, whether an agent has taken them or not: (class, unit), sorted by unit.
    ///
    /// Publishes to `$JS.API.STREAM.INFO.H2LAB_CELLS`.
    pub fn waiting(&self, run: &str) -> Result<Vec<(u32, u32)>, NatsError> {
        let filter = format!("h2lab.cells.{}.>", tokens::token(run)?);
        let subjects = self.nats.wait("to a request for the queue's units", DEADLINE, |link| async move {
            link.subjects(CELLS, &filter).await
        })?;
        let units = subjects.iter().filter_map(|subject| class_and_unit(subject));
        let mut units: Vec<(u32, u32)> = units.collect();
        units.sort_unstable_by_key(|&(class, unit)| (unit, class));
        Ok(units)
    }

    /// Deletes a run's units and its classes.
    ///
    /// Publishes to `$JS.API.STREAM.PURGE.H2LAB_CELLS` (before nats-server 2.10 to `$JS.API.STREAM.MSG.GET.H2LAB_CELLS` and
    /// `$JS.API.STREAM.MSG.DELETE.H2LAB_CELLS`), `$JS.API.CONSUMER.NAMES.H2LAB_CELLS`, and
    /// `$JS.API.CONSUMER.DELETE.H2LAB_CELLS.<run>-<class>`.
    pub fn purge(&self, run: &str) -> Result<(), NatsError> {
        let (filter, begin) = (format!("h2lab.cells.{}.>", tokens::token(run)?), format!("{run}-"));
        PURGES.fetch_add(1, Ordering::Relaxed);
        self.nats.purge(CELLS, &filter)?;
        self.nats.wait("to a purge", DEADLINE, |link| async move {
            for name in consumers(&link, &begin).await? {
                link.done(&format!("$JS.API.CONSUMER.DELETE.{CELLS}.{name}"), &json!({})).await?;
            }
            Ok(())
        })
    }

    /// Lets agents take the units of a class. A unit that its agent does not keep for `ack_wait` is given to another.
    /// The same class again takes the new time.
    ///
    /// Publishes to `$JS.API.CONSUMER.DURABLE.CREATE.H2LAB_CELLS.<run>-<class>`.
    pub fn open_class(&self, run: &str, class: u32, ack_wait: Duration) -> Result<(), NatsError> {
        let name = consumer(tokens::token(run)?, class);
        let body = json!({
            "stream_name": CELLS,
            "config": {
                "durable_name": name,
                "filter_subject": format!("h2lab.cells.{run}.{class}.>"),
                "deliver_policy": "all",
                "replay_policy": "instant",
                "ack_policy": "explicit",
                "ack_wait": nanoseconds(ack_wait),
                "max_deliver": -1,
                "max_ack_pending": MOST,
                "max_waiting": MOST,
                "inactive_threshold": nanoseconds(UNUSED),
            },
        });
        let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{CELLS}.{name}");
        self.nats.wait("to a request to open a class", DEADLINE, |link| async move {
            let _created: Value = link.api(&subject, &body).await?;
            Ok(())
        })
    }

    /// Takes a unit of a class; waits for one for `timeout`, and 10 s more if the server does not answer.
    /// [`NatsError::Absent`] says that the class was deleted; servers before 2.10 do not say so, and then this is `None`.
    ///
    /// Publishes to `$JS.API.CONSUMER.MSG.NEXT.H2LAB_CELLS.<run>-<class>`; what is taken, to `$JS.ACK.H2LAB_CELLS.>`.
    pub fn take(&self, run: &str, class: u32, timeout: Duration) -> Result<Option<Taken>, NatsError> {
        let name = consumer(tokens::token(run)?, class);
        let message = self.nats.wait("to a request for a unit", timeout + DEADLINE, |link| async move {
            next_unit(&link, &name, timeout).await
        })?;
        message.map(|message| Taken::new(self.nats.clone(), message)).transpose()
    }
}

impl Taken {
    /// What was delivered, if it is from the queue.
    fn new(nats: Nats, message: async_nats::Message) -> Result<Self, NatsError> {
        let reply = message.reply.as_ref().map(ToString::to_string).unwrap_or_default();
        let delivered = delivered(&reply).ok_or_else(|| NatsError::Other {
            what: "a request for a unit".into(),
            reason: "the answer cannot be acknowledged".into(),
        })?;
        Ok(Self { nats, reply, payload: message.payload, delivered })
    }

    /// The unit, as it was added.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// How often it was given to an agent, this time included: 1 or more.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Says that it is worked on: the time begins anew.
    pub fn keep(&self) -> Result<(), NatsError> {
        self.acknowledge("+WPI".to_owned())
    }

    /// Says that it is done, and waits until the queue has forgotten it.
    pub fn done(self) -> Result<(), NatsError> {
        self.acknowledge("+ACK".to_owned())
    }

    /// Gives it back: another agent, or this one, gets it after `delay`.
    pub fn give_back(self, delay: Duration) -> Result<(), NatsError> {
        self.acknowledge(match nanoseconds(delay) {
            0 => "-NAK".to_owned(),
            delay => format!("-NAK {}", json!({ "delay": delay })),
        })
    }

    /// [`NatsError::Absent`] says that the class was deleted. A server that starts again does not know it for a moment
    /// either: that is no answer yet, since it would give the unit to another agent.
    fn acknowledge(&self, words: String) -> Result<(), NatsError> {
        let (reply, words) = (self.reply.clone(), Bytes::from(words));
        self.nats.wait("to an acknowledgement", DEADLINE, |link| async move {
            let mut absences = 0;
            while link.request(&reply, None, words.clone()).await?.is_none() {
                absences += 1;
                link.believe(absences, &reply)?;
                sleep(PAUSE).await;
            }
            Ok(())
        })
    }
}

/// The name of a class's consumer.
fn consumer(run: &str, class: u32) -> String {
    format!("{run}-{class}")
}

/// The names of the consumers that begin with `begin`.
async fn consumers(link: &Link, begin: &str) -> Result<Vec<String>, NatsError> {
    let subject = format!("$JS.API.CONSUMER.NAMES.{CELLS}");
    let (mut names, mut offset) = (Vec::new(), 0);
    loop {
        let more = match link.api::<Names>(&subject, &json!({ "offset": offset })).await {
            Err(NatsError::Absent { .. }) => return Ok(names),
            more => more?,
        };
        let consumers = more.consumers.unwrap_or_default();
        offset += consumers.len() as u64;
        let is_last = consumers.is_empty() || offset >= more.total;
        names.extend(
            consumers.into_iter().filter(|name| name.starts_with(begin) && tokens::token(name).is_ok()),
        );
        if is_last {
            return Ok(names);
        }
    }
}

/// Asks for a unit until there is one, or the time is over.
///
/// Each request has an end. One with `no_wait` has none: after a purge, nats-server 2.9.10 neither answers it nor forgets
/// it, and gives a later unit to it, which nobody waits for any more.
async fn next_unit(
    link: &Link,
    name: &str,
    timeout: Duration,
) -> Result<Option<async_nats::Message>, NatsError> {
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{CELLS}.{name}");
    let began = Instant::now();
    let mut absences = 0;
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let expires = left.clamp(SHORTEST, PULL);
        let body = json!({ "batch": 1, "expires": nanoseconds(expires) }).to_string();
        match link.pull(&subject, body.into(), expires + SLACK).await? {
            Attempt::Answer(message) => match message.status.map(|status| status.as_u16()) {
                None => return Ok(Some(message)),
                // No unit in time.
                Some(404 | 408) => {}
                Some(_) => {
                    let words = message.description.unwrap_or_default();
                    if words.to_lowercase().contains("consumer deleted") {
                        return Err(NatsError::Absent {
                            what: format!("class `{name}` any more").as_str().into(),
                        });
                    }
                    // Too many wait, or a cluster elects a leader.
                    sleep(PAUSE).await;
                }
            },
            Attempt::Nobody => {
                absences += 1;
                link.believe(absences, &subject)?;
                sleep(PAUSE).await;
            }
            Attempt::Silence | Attempt::Lost => {}
        }
        if began.elapsed() >= timeout {
            return Ok(None);
        }
    }
}

/// The class and the number of a unit, of the subject that it was added on: `h2lab.cells.<run>.<class>.<unit>`.
fn class_and_unit(subject: &str) -> Option<(u32, u32)> {
    let mut tokens = subject.rsplit('.');
    let unit = tokens.next()?.parse().ok()?;
    Some((tokens.next()?.parse().ok()?, unit))
}

/// How often a message was delivered, of the subject on which it is acknowledged:
/// `$JS.ACK.<stream>.<consumer>.<delivered>.…`, since 2.12 also
/// `$JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.…`.
fn delivered(reply: &str) -> Option<u64> {
    let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    let place = if tokens.len() >= 9 { 4 } else { 2 };
    tokens.get(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_number_of_a_unit_are_read_from_its_subject() {
        assert_eq!(class_and_unit("h2lab.cells.r.3.17"), Some((3, 17)));
        for bad in ["", "17", "h2lab.cells.r.17", "h2lab.cells.r.3.x", "h2lab.cells.r.-3.17"] {
            assert_eq!(class_and_unit(bad), None, "{bad}");
        }
    }

    #[test]
    fn deliveries_are_read_from_both_forms_of_the_subject() {
        assert_eq!(delivered("$JS.ACK.H2LAB_CELLS.r-0.2.1.2.1795981302179172575.0"), Some(2));
        assert_eq!(delivered("$JS.ACK._.szMpdrwD.H2LAB_CELLS.r-0.3.1.1.1790230470084404000.1"), Some(3));
        for bad in ["", "_INBOX.a", "$JS.ACK.a.b", "$JS.ACK.a.b.x.1.1.1.1"] {
            assert_eq!(delivered(bad), None, "{bad}");
        }
    }
}
