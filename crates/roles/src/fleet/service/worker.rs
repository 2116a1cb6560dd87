//! The thread that works for a driver: the orders that wait for it, and its end, which a panic must not hide.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{io, mem, thread};

use h2lab_model::fleet::ToAgent;
use h2lab_model::fleet::subjects::RandomId;

use super::super::agent::{self, AgentSetup};
use super::super::event::AgentEvent;
use super::super::occupancy::Reservation;
use super::Order;
use super::waiting::{MOST_ORDERS, Place, Room};

/// A driver gives more orders than wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its driver gives orders faster than it follows them: at most {MOST_ORDERS} wait")]
pub(super) struct Overrun;

/// The thread that works for a driver. What the thread tells itself, such as that a transfer is over, is never refused
/// and never waits; orders are bounded.
#[derive(Debug)]
pub(super) struct Worker {
    events: Sender<AgentEvent>,
    /// Those of the orders among `events`, in the same sequence.
    places: Sender<Place>,
    room: Room,
    /// It was told to end: nothing that comes later counts.
    is_ended: bool,
}

impl Worker {
    /// Starts the thread for a session. What it says is put into `service`, and its end, too, whatever the reason. By
    /// then the reservation is dropped.
    pub fn start(
        session: RandomId,
        setup: Arc<AgentSetup>,
        reservation: Reservation,
        service: Sender<Order>,
    ) -> io::Result<Self> {
        let (worker, events) = Self::queue()?;
        let own = worker.events.clone();
        let work = move || {
            let at_work = AtWork { session, reservation: Some(reservation), service };
            agent::work(&events, own, &setup, &mut |message| {
                at_work.service.send(Order::Say { session, message: Box::new(message) }).is_ok()
            });
        };
        thread::Builder::new().name("agent".to_owned()).spawn(work)?;
        Ok(worker)
    }

    /// One without the thread that works: that takes events from the receiver.
    fn queue() -> io::Result<(Self, Receiver<AgentEvent>)> {
        let ((events, sent), (places, waiting)) = (channel(), channel());
        // Holds nothing itself: an order waits until the thread that works has taken it.
        let (to, taken) = sync_channel(0);
        let relay = move || relay(&sent, &waiting, &to);
        thread::Builder::new().name("agent-orders".to_owned()).spawn(relay)?;
        Ok((Self { events, places, room: Room::of_orders(), is_ended: false }, taken))
    }

    /// Gives it an order, whose line has so many bytes.
    pub fn order(&self, message: ToAgent, bytes: usize) -> Result<(), Overrun> {
        if self.is_ended {
            return Ok(());
        }
        let place = self.room.take(bytes).ok_or(Overrun)?;
        // Both fail only if the thread has just ended, which the service will learn.
        let _ = self.places.send(place);
        let _ = self.events.send(AgentEvent::Message(message));
        Ok(())
    }

    /// Has it end after what waits already; with the reason if that is not its driver's wish.
    pub fn end(&mut self, why: Option<&str>) {
        if !mem::replace(&mut self.is_ended, true) {
            // As in `order`.
            let _ = self.events.send(AgentEvent::End(why.map(str::to_owned)));
        }
    }
}

/// Hands events on, each when it is taken, until nobody sends or takes any more. The place of an order is free then.
fn relay(told: &Receiver<AgentEvent>, placed: &Receiver<Place>, to: &SyncSender<AgentEvent>) {
    for event in told {
        let place = match &event {
            AgentEvent::Message(_) => placed.try_recv().ok(),
            _ => None,
        };
        if to.send(event).is_err() {
            return;
        }
        drop(place);
    }
}

/// The work for a session. Dropping it, which a panic does, too, frees the agent and tells the service.
struct AtWork {
    session: RandomId,
    reservation: Option<Reservation>,
    service: Sender<Order>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Before the driver can know that it is over: it may open the next session at once.
        drop(self.reservation.take());
        let has_panicked = thread::panicking();
        // Fails only if the service has ended.
        let _ = self.service.send(Order::Over { session: self.session, has_panicked });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    fn order(worker: &Worker) -> Result<(), Overrun> {
        worker.order(ToAgent::Ping { number: 0 }, 30)
    }

    #[test]
    fn orders_wait_up_to_a_number_and_what_the_agent_tells_itself_without_one() {
        let (mut worker, taken) = Worker::queue().unwrap();
        let take = || taken.recv_timeout(DEADLINE).expect("it was told something");
        for _ in 0..MOST_ORDERS {
            order(&worker).unwrap();
        }
        assert_eq!(order(&worker), Err(Overrun));
        for _ in 0..2 * MOST_ORDERS {
            worker.events.send(AgentEvent::Serving(Err(String::new()))).unwrap();
        }
        // The first order has left its place once the second one can be taken.
        for _ in 0..2 {
            assert!(matches!(take(), AgentEvent::Message(_)));
        }
        order(&worker).unwrap();
        worker.end(None);
        let (mut orders, mut own) = (2, 0);
        loop {
            match take() {
                AgentEvent::Message(_) => orders += 1,
                AgentEvent::End(None) => break,
                _ => own += 1,
            }
        }
        assert_eq!((orders, own), (MOST_ORDERS + 1, 2 * MOST_ORDERS), "none is lost, and none was refused");
    }

    #[test]
    fn it_is_told_once_to_end_and_follows_no_order_after_that() {
        let (mut worker, taken) = Worker::queue().unwrap();
        worker.end(Some("first"));
        for _ in 0..=MOST_ORDERS {
            assert_eq!(order(&worker), Ok(()));
        }
        worker.end(None);
        drop(worker);
        let told: Vec<AgentEvent> = taken.iter().collect();
        assert!(matches!(&told[..], [AgentEvent::End(Some(why))] if why == "first"), "{told:?}");
    }
}
