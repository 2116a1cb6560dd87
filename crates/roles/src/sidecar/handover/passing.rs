//! Connections of clients on their way: between the loops and the threads that talk to the process before and to the one after.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use h2lab_net::handover::{Successor, Takeover};
use h2lab_net::tcp::StreamSocket;
use h2lab_proxy::handover::{self, Client, Listener};

use crate::sidecar::threads::{Assignment, Shared};

/// How long the end of this process waits for the successor's last answer, for which [`Successor::give`] has a shorter time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection that leaves this process, or has come back.
#[derive(Debug)]
pub struct Leaving {
    pub stream: StreamSocket,
    pub assignment: Assignment,
    pub client: Client,
}

/// What is on its way. Clones are of the same.
#[derive(Debug, Clone, Default)]
pub struct Passing(Arc<Common>);

#[derive(Debug, Default)]
struct Common {
    state: Mutex<State>,
    changed: Condvar,
    /// Something has arrived: the first loop looks at this at each turn.
    has_arrived: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The listeners whose connections this process continues.
    takes: Vec<Listener>,
    /// What wakes its loops.
    loops: Option<Arc<Shared>>,
    incoming: Incoming,
    outgoing: Option<Outgoing>,
}

/// From the process before.
#[derive(Debug, Default)]
struct Incoming {
    /// It may give more.
    is_open: bool,
    /// Nothing more is taken.
    is_refused: bool,
    /// Messages that are answered at the moment.
    answering: u32,
    arrived: Vec<(OwnedFd, Client)>,
}

/// To the process after.
#[derive(Debug, Default)]
struct Outgoing {
    /// The listeners whose connections it continues.
    takes: Vec<Listener>,
    /// It has not taken something, or has ended.
    is_gone: bool,
    /// The loops have ended.
    is_over: bool,
    /// Nothing is given any more.
    has_ended: bool,
    waiting: VecDeque<Leaving>,
    /// Loops of those that are being given.
    given: Vec<u32>,
    returned: Vec<Leaving>,
    handed_over: u64,
}

impl Passing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process continues connections of these listeners, in these loops.
    pub fn takes_for(&self, listeners: Vec<Listener>, loops: &Arc<Shared>) {
        let mut state = self.state();
        state.takes = listeners;
        state.loops = Some(Arc::clone(loops));
    }

    /// The line that reports this to the process before.
    pub fn line(&self) -> String {
        handover::takes(self.state().takes.iter().copied())
    }

    /// The process before hands over from now on.
    pub fn expect(&self) {
        self.state().incoming.is_open = true;
    }

    /// Takes what it hands over, until it ends; for a thread of its own.
    pub fn take_over(&self, mut from: Takeover) {
        while let Ok(Some((sockets, words))) = from.receive() {
            if !self.take_message(&mut from, sockets, &words) {
                break;
            }
        }
        drop(from); // what was not taken stays with the other process
        let mut state = self.state();
        state.incoming.is_open = false;
        if let Some(loops) = &state.loops {
            loops.wake();
        }
    }

    /// Takes the connections of one message, as many as have arrived; `false` if there is no use in a further one.
    fn take_message(&self, from: &mut Takeover, sockets: Vec<OwnedFd>, words: &[u8]) -> bool {
        let clients = handover::decode(words).unwrap_or_default();
        let is_refused = {
            let mut state = self.state();
            state.incoming.answering += u32::from(!state.incoming.is_refused);
            state.incoming.is_refused
        };
        let count = if is_refused { 0 } else { clients.len().min(sockets.len()) };
        // From this answer on, the connections are ours. If it cannot be given, they are not, and are only closed here.
        let is_answered = from.take(count).is_ok();
        if !is_refused {
            let mut state = self.state();
            state.incoming.answering -= 1;
            if is_answered {
                state.incoming.arrived.extend(sockets.into_iter().zip(clients));
            }
            self.0.has_arrived.store(true, Ordering::Release);
            if let Some(loops) = &state.loops {
                loops.wake();
            }
        }
        is_answered && !is_refused
    }

    /// What has arrived since the last time.
    pub fn arrived(&self) -> Vec<(OwnedFd, Client)> {
        if !self.0.has_arrived.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // This comes first: whatever arrives after it wakes the loop again.
        self.0.has_arrived.store(false, Ordering::SeqCst);
        std::mem::take(&mut self.state().incoming.arrived)
    }

    /// Whether nothing arrives any more, so that the first loop may end: the process before has ended, or what it hands over is refused
    /// from now on, since nobody would continue it.
    pub fn ends_arrivals(&self) -> bool {
        let mut state = self.state();
        let has_successor = state.outgoing.as_ref().is_some_and(|outgoing| !outgoing.is_gone);
        let incoming = &mut state.incoming;
        if incoming.answering > 0 || !incoming.arrived.is_empty() || (incoming.is_open && has_successor) {
            return false;
        }
        incoming.is_refused = true;
        true
    }

    /// The process after this one is ready, and has sent this line.
    pub fn begin(&self, line: &str) {
        let takes = handover::taken(line);
        self.state().outgoing = takes.map(|takes| Outgoing { takes, ..Outgoing::default() });
    }

    /// The listeners whose connections the successor continues; `None` if it continues none, or there is no successor.
    pub fn successor_takes(&self) -> Option<Vec<Listener>> {
        let state = self.state();
        state.outgoing.as_ref().filter(|outgoing| !outgoing.is_gone).map(|outgoing| outgoing.takes.clone())
    }

    /// Whether the successor still takes connections.
    pub fn takes_more(&self) -> bool {
        self.state().outgoing.as_ref().is_some_and(|outgoing| !outgoing.is_gone)
    }

    /// Gives it a connection, or gives it back: it takes nothing more.
    #[allow(clippy::result_large_err, reason = "it is what was given")]
    pub fn give(&self, leaving: Leaving) -> Result<(), Leaving> {
        match &mut self.state().outgoing {
            Some(outgoing) if !outgoing.is_gone => outgoing.waiting.push_back(leaving),
            _ => return Err(leaving),
        }
        self.0.changed.notify_all();
        Ok(())
    }

    /// Whether connections of this loop may still come back.
    pub fn has_under_way(&self, number: u32) -> bool {
        let is_its = |leaving: &Leaving| leaving.assignment.thread() == number;
        self.state().outgoing.as_ref().is_some_and(|outgoing| {
            let has_left = outgoing.waiting.iter().chain(&outgoing.returned).any(is_its);
            has_left || outgoing.given.contains(&number)
        })
    }

    /// Those of this loop that have come back.
    pub fn returned(&self, number: u32) -> Vec<Leaving> {
        let mut state = self.state();
        let Some(outgoing) = &mut state.outgoing else { return Vec::new() };
        let is_its = |leaving: &mut Leaving| leaving.assignment.thread() == number;
        outgoing.returned.extract_if(.., is_its).collect()
    }

    /// Gives the process after this one what loops give, until they have ended, or it takes nothing more; for a thread of its own.
    pub fn serve(&self, mut to: Successor) {
        while let Some(batch) = self.next_batch() {
            let sockets: Vec<BorrowedFd<'_>> = batch.iter().map(|leaving| leaving.stream.as_fd()).collect();
            let words = handover::encode(batch.iter().map(|leaving| &leaving.client));
            let taken = to.give(&sockets, &words);
            self.was_given(batch, taken);
        }
        if let Some(outgoing) = &mut self.state().outgoing {
            outgoing.has_ended = true;
        }
        self.0.changed.notify_all();
    }

    /// Waits for connections to give; `None` at the end.
    fn next_batch(&self) -> Option<Vec<Leaving>> {
        let mut state = self.state();
        loop {
            let outgoing = state.outgoing.as_mut()?;
            if outgoing.is_gone || (outgoing.is_over && outgoing.waiting.is_empty()) {
                return None;
            }
            if !outgoing.waiting.is_empty() {
                let count = outgoing.waiting.len().min(handover::MOST);
                let batch: Vec<Leaving> = outgoing.waiting.drain(..count).collect();
                outgoing.given = batch.iter().map(|leaving| leaving.assignment.thread()).collect();
                return Some(batch);
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The first `taken` of these are the successor's: they are closed here, which its clients do not see.
    fn was_given(&self, mut batch: Vec<Leaving>, taken: usize) {
        let rest = batch.split_off(taken.min(batch.len()));
        let count = batch.len() as u64;
        drop(batch);
        let mut state = self.state();
        if let Some(outgoing) = &mut state.outgoing {
            outgoing.handed_over += count;
            outgoing.given.clear();
            if !rest.is_empty() {
                outgoing.is_gone = true;
                outgoing.returned.extend(rest);
                outgoing.returned.extend(outgoing.waiting.drain(..));
            }
        }
        if let Some(loops) = &state.loops {
            loops.wake();
        }
    }

    /// The loops have ended. Waits until what they have given has arrived, or never will. Returns how many connections
    /// the successor has.
    pub fn finish(&self) -> u64 {
        let mut state = self.state();
        state.incoming.is_refused = true;
        let Some(outgoing) = &mut state.outgoing else { return 0 };
        outgoing.is_over = true;
        self.0.changed.notify_all();
        let goes_on = |state: &mut State| state.outgoing.as_ref().is_some_and(|outgoing| !outgoing.has_ended);
        let waited = self.0.changed.wait_timeout_while(state, ANSWER_TIMEOUT, goes_on);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.outgoing.as_ref().map_or(0, |outgoing| outgoing.handed_over)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use h2lab_net::handover::{Offer, ask};
    use h2lab_proxy::handover::Stage;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The process before and the one after, both in this process, with the two ends that connect them.
    fn processes() -> ([(Passing, Arc<Shared>); 2], Successor, Takeover) {
        let [old, new] = [(); 2].map(|()| (Passing::default(), Arc::new(Shared::new(2).unwrap())));
        let listener =
            Listener { address: at("127.0.0.1:80"), tls: false, proxy_protocol: false, transparent: None };
        new.0.takes_for(vec![listener], &new.1);
        old.0.takes_for(Vec::new(), &old.1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let offer = Offer::at(&path).unwrap();
        let waiting = std::thread::spawn(move || offer.wait(|| Ok(Vec::new()), || ()).unwrap());
        let (predecessor, _) = ask(&path).unwrap().unwrap();
        let takeover = predecessor.is_replaced(&new.0.line()).unwrap();
        let (successor, line) = waiting.join().unwrap();
        old.0.begin(&line);
        assert_eq!(old.0.successor_takes(), Some(vec![listener]));
        new.0.expect();
        ([old, new], successor, takeover)
    }

    /// So many connections, each with its number as what was read of it. Their clients' ends are kept open.
    fn leaving(loops: &Shared, count: usize) -> (Vec<Leaving>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = |number: usize| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = StreamSocket::given(OwnedFd::from(listener.accept().unwrap().0), 7).unwrap();
            let said = Client {
                listener: at("127.0.0.1:80"),
                client: client.local_addr().unwrap(),
                stage: Stage::Http1,
                original: None,
                written: stream.written(),
                bytes: number.to_string().into_bytes(),
            };
            (Leaving { stream, assignment: loops.assign(0), client: said }, client)
        };
        (0..count).map(one).unzip()
    }

    /// Which of them these are, in order.
    fn numbers<'a>(clients: impl IntoIterator<Item = &'a Client>) -> Vec<usize> {
        let number = |client: &Client| String::from_utf8_lossy(&client.bytes).parse().unwrap();
        let mut numbers: Vec<usize> = clients.into_iter().map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn all_that_is_given_arrives_or_comes_back() {
        let count = 3 * handover::MOST + 1;
        for refused in [false, true] {
            let ([(old, loops), (new, _)], successor, takeover) = processes();
            let (all, _clients) = leaving(&loops, count);
            let (taking, serving) = (new.clone(), old.clone());
            if refused {
                new.finish();
            }
            let taking = std::thread::spawn(move || taking.take_over(takeover));
            let serving = std::thread::spawn(move || serving.serve(successor));
            let mut back = Vec::new();
            for leaving in all {
                back.extend(old.give(leaving).err());
            }
            let handed_over = old.finish();
            serving.join().unwrap();
            taking.join().unwrap();
            let arrived = new.arrived();
            for number in 0..2 {
                back.extend(old.returned(number));
                assert!(!old.has_under_way(number));
            }
            let kept: Vec<usize> = numbers(back.iter().map(|leaving| &leaving.client));
            let gone: Vec<usize> = numbers(arrived.iter().map(|(_, client)| client));
            let whole: Vec<usize> = (0..count).collect();
            let expected = if refused { (0, whole, Vec::new()) } else { (count as u64, Vec::new(), whole) };
            assert_eq!((handed_over, kept, gone), expected);
            assert_eq!(old.takes_more(), !refused);
            for (fd, client) in arrived {
                assert_eq!(
                    StreamSocket::given(fd, client.written).unwrap().peer_address().unwrap(),
                    client.client
                );
            }
        }
    }

    #[test]
    fn what_a_successor_has_not_taken_when_it_dies_comes_back() {
        let ([(old, loops), _], successor, mut takeover) = processes();
        let (all, _clients) = leaving(&loops, 3);
        for leaving in all {
            old.give(leaving).unwrap();
        }
        let dying = std::thread::spawn(move || {
            let (sockets, _) = takeover.receive().unwrap().unwrap();
            assert_eq!(sockets.len(), 3);
            // It has more of them than it could take, says so, and is gone.
            takeover.take(1).unwrap();
        });
        old.serve(successor);
        dying.join().unwrap();
        let back: Vec<Leaving> = (0..2).flat_map(|number| old.returned(number)).collect();
        assert_eq!(numbers(back.iter().map(|leaving| &leaving.client)), [1, 2]);
        assert_eq!(old.finish(), 1);
        let (one, _client) = leaving(&loops, 1);
        assert!(old.give(one.into_iter().next().unwrap()).is_err(), "nothing more is taken");
    }

    #[test]
    fn an_end_without_successor_refuses_what_comes_and_one_with_a_successor_waits_for_it() {
        let ([_, (new, _)], successor, takeover) = processes();
        new.begin("clients 1");
        assert!(!new.ends_arrivals(), "the process before has not ended");
        drop(successor);
        new.take_over(takeover);
        assert!(new.ends_arrivals());
        let ([(old, _), (new, _)], ..) = processes();
        assert!(new.ends_arrivals(), "nobody would go on with them");
        old.begin("clients 2 127.0.0.1:80");
        assert_eq!(old.successor_takes(), None, "of a version that is not known");
        old.begin("");
        assert_eq!((old.successor_takes(), old.finish()), (None, 0));
    }
}
