//! The connections of a run, on one reactor: dials them, gives them requests, replaces those that break, and gives up a server
//! that has gone.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::bulk::{ByteMeter, TransferDirection};
use h2lab_model::record::{ConnectionRecord, Outcome};

use super::attempts::Attempts;
use super::byte_count::ByteCount;
use super::fetch::FetchError;
use super::transfers::{Doomed, Outbox, Transfers};
use crate::client::{Change, ConnectError, DialTarget, Slots};
use crate::heartbeat::Pulse;
use h2lab_net::clock::Clock;

/// How often `stop` is checked and progress is reported.
const TICK: Duration = Duration::from_millis(100);

/// How often the kernel is asked what of an upload the server's kernel has acknowledged.
const ACKNOWLEDGED_EVERY: Duration = Duration::from_millis(20);

/// With many connections it is asked after so long for each of them, since an answer takes about a microsecond; but at
/// least every [`TICK`], the interval of a meter.
const FOR_EACH_CONNECTION: Duration = Duration::from_micros(100);

/// The shortest pause of this process that is counted: shorter ones say little about a transfer.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// How often received bytes are saved so that they survive the end of this process, if there is time for it.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// How the connections of a run are made and used.
#[derive(Debug, Clone, Copy)]
pub struct Traffic<'a> {
    /// How many there are.
    pub connections: u32,
    /// Requests at a time on each; 1 in HTTP/1.1.
    pub streams: u32,
    /// Bytes that a receive window may have.
    pub window_limit: u32,
    /// After so long without a byte a server has gone.
    pub timeout: Duration,
    /// When to begin nothing new and cut what is in flight.
    pub until: Option<Duration>,
    /// Set to end early.
    pub stop: Option<&'a AtomicBool>,
}

/// How far a run is.
#[derive(Debug)]
pub struct BulkProgress<'a> {
    /// Now.
    pub now: Time,
    /// How many bytes arrived when; of uploads, when the server's kernel had acknowledged them.
    pub meter: &'a ByteMeter,
    /// The files.
    pub transfers: &'a Transfers,
}

/// All connections of a run.
pub struct Driver<'a> {
    traffic: Traffic<'a>,
    clock: Clock,
    /// Each with the time before which it must not be dialled.
    slots: Slots<Time>,
    transfers: Transfers,
    outbox: Outbox<'a>,
    byte_count: ByteCount,
    /// When an upload is counted next.
    count_at: Time,
    has_begun: bool,
    attempts: Attempts,
    /// Whether a connection has worked.
    proven: bool,
    interrupted: bool,
    /// Since when requests wait although every connection is open: no connection accepts one.
    blocked_since: Option<Time>,
    pulse: Pulse,
    /// For how long the process was paused before the first request, when nothing waited for it.
    paused_before: Duration,
}

impl<'a> Driver<'a> {
    /// Nothing is dialled yet.
    pub fn new(
        target: DialTarget,
        traffic: Traffic<'a>,
        transfers: Transfers,
        outbox: Outbox<'a>,
        clock: Clock,
    ) -> io::Result<Self> {
        let now = clock.now();
        Ok(Self {
            traffic,
            clock,
            slots: Slots::new(target, traffic.connections, clock)?,
            transfers,
            outbox,
            byte_count: ByteCount::new(now),
            count_at: now,
            has_begun: false,
            attempts: Attempts::new(traffic.connections as usize),
            proven: false,
            interrupted: false,
            blocked_since: None,
            pulse: Pulse::start(SHORTEST_PAUSE, clock)?,
            paused_before: Duration::ZERO,
        })
    }

    /// Does all of the work. Fails if no connection to the server worked from the beginning: then nothing was requested.
    pub fn run(mut self, progress: &mut dyn FnMut(&BulkProgress<'_>)) -> Result<BulkResult, RunError> {
        let done = self.work_off(progress);
        if let Err(error) = &done {
            self.transfers.give_up(|| FetchError::Vanished(error.to_string()));
        }
        let now = self.clock.now();
        // What has not left us was taken back, so that all that is left has moved.
        self.note_moved();
        self.byte_count.settle(now, 0);
        progress(&BulkProgress { now, meter: self.byte_count.meter(), transfers: &self.transfers });
        self.transfers.keep();
        let (records, open) = self.slots.close(now);
        for mut session in open {
            session.close_gracefully(now);
        }
        let calls = self.slots.calls();
        let Self { transfers, byte_count, interrupted, pulse, paused_before, .. } = self;
        let (meter, paused) = (byte_count.into_meter(), pulse.stop().saturating_sub(paused_before));
        done.map(|()| BulkResult { transfers, meter, records, calls, interrupted, paused })
    }

    fn work_off(&mut self, progress: &mut dyn FnMut(&BulkProgress<'_>)) -> Result<(), RunError> {
        let (mut tick_at, mut save_at) = (Time::ZERO, self.clock.now() + SAVE_EVERY);
        loop {
            let now = self.clock.now();
            self.dial(now);
            self.assign(now);
            self.count(now);
            if self.transfers.is_over() {
                break;
            }
            self.look_after_the_server(now)?;
            if now >= tick_at {
                self.look(now);
                self.end_early(now);
                self.judge_silence(now);
                progress(&BulkProgress { now, meter: self.byte_count.meter(), transfers: &self.transfers });
                tick_at = now + TICK;
            }
            if now >= save_at {
                self.transfers.save();
                save_at = now + SAVE_EVERY;
            }
            self.wait(if self.is_upload() { tick_at.min(self.count_at) } else { tick_at })?;
        }
        Ok(())
    }

    /// Sleeps until something happens, or `until`, and acts on it.
    fn wait(&mut self, until: Time) -> io::Result<()> {
        self.slots.wait(until, None)?;
        // Everything readable by now is processed before a server counts as silent, however long a disk delayed us.
        self.transfers.set_now(self.clock.now());
        while let Some(completion) = self.slots.next_completion() {
            let (slot, change) = self.slots.act_on(completion, &self.outbox, &mut self.transfers);
            self.follow(slot, change);
        }
        Ok(())
    }

    /// Handles a change in a slot.
    fn follow(&mut self, slot: u32, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Established(established) => {
                let Traffic { streams, window_limit, .. } = self.traffic;
                let (outbox, transfers) = (&self.outbox, &mut self.transfers);
                self.slots.open(slot, *established, streams, window_limit, outbox, transfers);
                self.follow(slot, Change::Progress);
            }
            Change::Progress | Change::Ended => {
                let Some((session, _)) = self.slots.session(slot) else { return };
                self.proven |= session.is_established() && session.bytes_received() > 0;
                self.settle(slot);
            }
            Change::Failed => self.emptied(slot, false),
        }
    }

    /// Lets no session wait for more bytes than will come.
    fn look(&mut self, now: Time) {
        for (_, session, _) in self.slots.sessions() {
            if !session.has_unread() {
                session.look(now);
            }
        }
    }

    /// Counts the bytes moved since the last call. Of uploads over TCP those that the server's kernel has acknowledged.
    /// QUIC takes no more than it may send, so that what the engine has passed on counts. With TLS what is on its way may
    /// count, too: kernels count encrypted bytes.
    fn count(&mut self, now: Time) {
        self.note_moved();
        if !self.is_upload() {
            self.byte_count.settle(now, 0);
        } else if now >= self.count_at {
            let each = FOR_EACH_CONNECTION * self.traffic.connections;
            self.count_at = now + each.clamp(ACKNOWLEDGED_EVERY, TICK);
            let behind: u64 = self.slots.sessions().map(|(_, session, _)| session.left_behind()).sum();
            self.byte_count.settle(now, behind);
        }
    }

    /// Takes over what was handed to the engines, or arrived, since the last call.
    fn note_moved(&mut self) {
        let (fresh, back) = self.transfers.take_fresh();
        self.byte_count.note(fresh, back);
    }

    const fn is_upload(&self) -> bool {
        matches!(self.transfers.direction(), TransferDirection::Put)
    }

    /// Gives up a server whose connections do not work or that has gone.
    fn look_after_the_server(&mut self, now: Time) -> Result<(), RunError> {
        let is_alone = (0..self.slots.count()).all(|slot| self.slots.is_vacant(slot));
        let is_unreachable = is_alone && (!self.proven || self.attempts.are_hopeless());
        if let Some(why) = self.slots.last_error.take_if(|_| is_unreachable) {
            if !self.proven {
                return Err(RunError::Unreachable(why));
            }
            self.transfers.give_up(|| FetchError::Vanished(format!("the server is gone: {why}")));
        }
        self.cancel_doomed(now);
        Ok(())
    }

    /// Repeats, on another connection, the requests of one that stays silent; gives up a server whose connections are all silent.
    fn judge_silence(&mut self, now: Time) {
        for (slot, session, _) in self.slots.sessions() {
            self.transfers.taken(slot as usize, session.index(), || session.bytes_taken());
        }
        if let Some(silence) = self.transfers.fail_silent(self.traffic.timeout) {
            let why =
                format!("{} for {}", self.transfers.silence(), h2lab_base::units::measured_time(silence));
            self.cut(|| FetchError::Vanished(why.clone()));
        }
        self.judge_block(now);
        self.cancel_doomed(now);
    }

    /// Gives up a server that has not allowed a request for too long, such as one with `SETTINGS_MAX_CONCURRENT_STREAMS` 0.
    fn judge_block(&mut self, now: Time) {
        let takes_none = |slots: &mut Slots<Time>| {
            let mut sessions = slots.sessions().peekable();
            sessions.peek().is_some() && sessions.all(|(_, session, _)| session.available() == 0)
        };
        let is_blocked = self.transfers.waits() && !self.transfers.is_busy() && takes_none(&mut self.slots);
        self.blocked_since = is_blocked.then(|| self.blocked_since.unwrap_or(now));
        let blocked = self.blocked_since.map_or(Duration::ZERO, |since| now.since(since));
        if blocked > self.traffic.timeout {
            let time = h2lab_base::units::measured_time(blocked);
            let why = format!("no connection allowed a request (SETTINGS_MAX_CONCURRENT_STREAMS) for {time}");
            self.cut(|| FetchError::Vanished(why.clone()));
        }
    }

    /// Checks whether the run is to end early.
    fn end_early(&mut self, now: Time) {
        if self.traffic.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) && !self.interrupted {
            self.interrupted = true;
            self.cut(|| FetchError::Interrupted);
        }
        let passed = now.since(self.byte_count.meter().began());
        if self.has_begun && self.traffic.until.is_some_and(|until| passed >= until) {
            self.traffic.until = None;
            self.cut(|| FetchError::Deadline);
        }
        self.cancel_doomed(now);
    }

    /// Ends everything in flight. Bytes still in our engines and sockets count as not sent.
    fn cut(&mut self, why: impl FnMut() -> FetchError) {
        for (_, session, _) in self.slots.sessions() {
            self.transfers.take_back(session.index(), session.left_behind());
        }
        self.transfers.give_up(why);
    }

    /// Ends the requests that are no longer needed.
    fn cancel_doomed(&mut self, now: Time) {
        while let Some(Doomed { slot, stream, is_silent }) = self.transfers.next_doomed() {
            let slot = slot as u32;
            if let Some((session, _)) = self.slots.session(slot) {
                if is_silent {
                    // It gets no more requests.
                    session.leave(now, "it stopped responding", &self.outbox, &mut self.transfers);
                }
                session.cancel(now, stream, Outcome::Cancelled, &self.outbox, &mut self.transfers);
                self.settle(slot);
            }
        }
    }

    /// Dials the missing connections, as long as there is something to request.
    fn dial(&mut self, now: Time) {
        for slot in 0..self.slots.count() {
            if self.slots.is_vacant(slot) && *self.slots.note(slot) <= now && self.transfers.waits() {
                let change = self.slots.dial(slot, self.traffic.window_limit);
                self.follow(slot, change);
            }
        }
    }

    /// Gives requests to the connections as long as there are both, and sends them.
    fn assign(&mut self, now: Time) {
        for slot in 0..self.slots.count() {
            self.cancel_doomed(now);
            self.flush(slot);
        }
        while let Some(slot) = self.least_busy() {
            if !self.begin(slot, now) {
                break;
            }
        }
        (0..self.slots.count()).for_each(|slot| self.flush(slot));
    }

    /// The connection with the fewest requests in flight, of those that take more.
    fn least_busy(&mut self) -> Option<u32> {
        let open = self.slots.sessions().filter(|(_, session, _)| session.available() > 0);
        open.map(|(slot, session, _)| (session.open_streams(), slot)).min().map(|(_, slot)| slot)
    }

    /// Begins a request on the connection in `slot`; `false` if there is no request, or the connection does not accept
    /// it.
    fn begin(&mut self, slot: u32, now: Time) -> bool {
        let Some((session, _)) = self.slots.session(slot) else { return false };
        let Some(number) = self.transfers.next(now) else { return false };
        if !self.has_begun {
            // Time counts from the first request.
            (self.has_begun, self.byte_count) = (true, ByteCount::new(now));
            self.paused_before = self.pulse.paused();
        }
        self.outbox.prepare(&self.transfers, number);
        match session.begin(now, number, number.into(), &self.outbox, &mut self.transfers) {
            Some(stream) => {
                self.transfers.begun(number, slot as usize, session.index(), stream);
                true
            }
            None => {
                self.transfers.not_begun(number, now);
                false
            }
        }
    }

    /// Writes what a session has to send.
    fn flush(&mut self, slot: u32) {
        if let Some((true, _)) = self.slots.flush(slot, &self.outbox, &mut self.transfers) {
            self.settle(slot);
        }
    }

    /// Removes a session that has ended, else sets its timer.
    fn settle(&mut self, slot: u32) {
        if let Some(record) = self.slots.settle(slot, &self.outbox, &mut self.transfers) {
            let was_of_use = self.transfers.last_received(slot as usize) >= record.ready_at;
            self.emptied(slot, was_of_use);
        }
    }

    /// The connection in a slot has ended: sets when the next may be dialled.
    fn emptied(&mut self, slot: u32, was_of_use: bool) {
        let not_before = self.clock.now() + self.attempts.ended(slot as usize, was_of_use);
        *self.slots.note(slot) = not_before;
        self.slots.set_timer(slot, not_before);
    }
}

/// What a run did.
#[derive(Debug)]
pub struct BulkResult {
    /// The files.
    pub transfers: Transfers,
    /// How many bytes arrived when; of uploads, when the server's kernel had acknowledged them.
    pub meter: ByteMeter,
    /// The connections, by index.
    pub records: Vec<ConnectionRecord>,
    /// System calls that read from sockets and wrote to them; those of QUIC are not counted.
    pub calls: (u64, u64),
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// For how long our thread did not run although it had to.
    pub paused: Duration,
}

/// Why nothing could be fetched.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No connection to the server worked.
    #[error("{0}")]
    Unreachable(ConnectError),
    /// A system call failed for a reason other than the server.
    #[error("cannot work: {0}")]
    Io(#[from] io::Error),
}
