//! Control frames: SETTINGS, WINDOW_UPDATE, RST_STREAM, PING, GOAWAY.

use std::ops::Range;

use super::fault::Fault;
use super::frame::{flag, kind};
use super::settings::DEFAULT_WINDOW;
use super::streams::Ending;
use super::{Connection, Occurrence, Received, Role};
use crate::{ErrorCode, Initiator};
use h2lab_base::units::Time;

impl Connection {
    pub(super) fn receive_settings(&mut self, payload: Range<usize>) -> Received {
        let before = self.peer_settings.initial_window_size;
        self.peer_settings.apply_all(
            self.input.slice(payload.start, payload.end),
            self.config.role,
            &mut self.encoder,
        )?;
        self.adjust_send_windows(before)?;
        self.put_frame(kind::SETTINGS, flag::ACK, 0, &[]);
        self.pings.answered();
        self.handshake.settings_seen();
        Ok(Some(Occurrence::Settings))
    }

    /// `SETTINGS_INITIAL_WINDOW_SIZE`, which was `before`, changes every stream's window, also to below zero (RFC 9113
    /// §6.9.2).
    pub(super) fn adjust_send_windows(&mut self, before: u32) -> Result<(), Fault> {
        let delta = i64::from(self.peer_settings.initial_window_size) - i64::from(before);
        if delta == 0 {
            return Ok(());
        }
        if !self.streams.iter_mut().all(|stream| stream.send.adjust(delta)) {
            return Err(Fault::flow_control(
                "SETTINGS push a stream window above 2^31 - 1 (RFC 9113 §6.9.2)",
            ));
        }
        for key in self.streams.keys() {
            self.stream_window_changed(key);
        }
        Ok(())
    }

    /// From now on the peer keeps to what we announced.
    pub(super) fn settings_acknowledged(&mut self, now: Time) -> Result<(), Fault> {
        if !self.handshake.settings_acknowledged() {
            return self.noise();
        }
        self.tuner.settings_acknowledged(now);
        self.decoder.acknowledge_limit(self.config.header_table_size);
        let announced = self.config.flow.stream_window;
        if announced < DEFAULT_WINDOW {
            let delta = i64::from(announced) - i64::from(DEFAULT_WINDOW);
            self.stream_window = announced;
            self.streams.iter_mut().for_each(|stream| stream.receive.adjust(delta));
            self.fit_streams();
        }
        Ok(())
    }

    pub(super) fn receive_window_update(&mut self, id: u32, increment: u32) -> Received {
        if id == 0 {
            if !self.send_window.adjust(i64::from(increment)) {
                return Err(Fault::flow_control("the connection window exceeds 2^31 - 1 (RFC 9113 §6.9.1)"));
            }
            return self.count_live_credit(true, increment);
        }
        let Some(key) = self.streams.find(id) else { return self.ignore_late(id, increment) };
        if !self.streams[key].send.adjust(i64::from(increment)) {
            let code = ErrorCode::FLOW_CONTROL_ERROR;
            return Err(Fault::Stream { stream: id, code, reason: "a stream window exceeds 2^31 - 1" });
        }
        self.stream_window_changed(key);
        self.count_live_credit(false, increment)
    }

    /// A client has chosen its server, and such credit costs it nothing.
    fn count_live_credit(&mut self, to_connection: bool, credit: u32) -> Received {
        if self.config.role == Role::Client {
            return Ok(None);
        }
        self.count_credit(to_connection, credit)
    }

    /// Credit that is not for a body that we sent is noise.
    fn count_credit(&mut self, to_connection: bool, credit: u32) -> Received {
        if !self.accounts.is_of_body_sent(to_connection, credit) {
            self.noise()?;
        }
        Ok(None)
    }

    pub(super) fn receive_reset(&mut self, now: Time, id: u32, code: ErrorCode) -> Received {
        let Some(key) = self.streams.find(id) else { return self.ignore_late(id, 0) };
        if self.is_of_peer(id) {
            self.accounts.reset(now)?;
        }
        self.remove(key, Ending::ResetByPeer);
        Ok(Some(Occurrence::Reset { stream: id, code, initiator: Initiator::Remote }))
    }

    /// WINDOW_UPDATE, by `credit`, and RST_STREAM may cross the end of their stream; on an idle stream they are errors.
    fn ignore_late(&mut self, id: u32, credit: u32) -> Received {
        if self.is_beyond_goaway(id) {
            return Ok(None);
        }
        if self.is_idle(id) {
            return Err(Fault::protocol("WINDOW_UPDATE or RST_STREAM on an idle stream (RFC 9113 §5.1)"));
        }
        self.count_credit(false, credit)
    }

    pub(super) fn acknowledge_ping(&mut self, payload: [u8; 8]) {
        self.put_frame(kind::PING, flag::ACK, 0, &payload);
        self.pings.answered();
    }

    /// See [`super::super::Connection::ping`].
    pub fn ping(&mut self, now: Time) {
        if self.end.is_open() {
            let payload = self.pings.begin(now, self.config.peer_timeout);
            self.put_ping(payload);
        }
    }

    pub(super) fn put_ping(&mut self, payload: [u8; 8]) {
        self.put_frame(kind::PING, 0, 0, &payload);
        self.pings.sent();
    }

    /// See [`super::super::Connection::pings_since_message`].
    pub const fn pings_since_message(&self) -> u32 {
        self.pings.since_message()
    }

    /// Acknowledgements of PINGs that we did not send are ignored.
    pub(super) fn ping_acknowledged(&mut self, now: Time, payload: [u8; 8]) -> Received {
        if self.tuner.ping_acknowledged(now, payload) || self.keep_alive.acknowledged(payload) {
            return Ok(None);
        }
        let Some(sent) = self.pings.acknowledge(payload, self.config.peer_timeout) else {
            return self.noise().map(|()| None);
        };
        if self.drain.is_answered_by(payload) {
            self.finish_drain();
            return Ok(None);
        }
        Ok(Some(Occurrence::Pong { rtt: now.since(sent) }))
    }

    pub(super) fn receive_goaway(
        &mut self,
        last_stream: u32,
        code: ErrorCode,
        debug_start: usize,
    ) -> Received {
        if self.drain.peer_is_leaving() {
            self.noise()?;
        }
        if !self.drain.peer_goaway(last_stream, code) {
            return Err(Fault::protocol("a second GOAWAY raises the last stream id (RFC 9113 §6.8)"));
        }
        Ok(Some(Occurrence::GoAway { last_stream, code, debug_start }))
    }

    /// The next of our streams that a GOAWAY declared unprocessed. It ends without a RST_STREAM, which the peer would
    /// ignore.
    pub(super) fn next_unprocessed(&mut self) -> Option<Occurrence> {
        let (from, last) = self.drain.unprocessed?;
        let Some((key, place)) =
            self.streams.next_above(from, last).filter(|_| self.config.role == Role::Client)
        else {
            self.drain.unprocessed = None;
            return None;
        };
        self.drain.unprocessed = Some((place + 1, last));
        let stream = self.streams[key].id;
        self.remove(key, Ending::ResetByUs);
        Some(Occurrence::Reset { stream, code: ErrorCode::REFUSED_STREAM, initiator: Initiator::Remote })
    }
}
