//! Stub until the engine lands.
#![allow(clippy::todo, missing_docs, unused_variables, clippy::unused_self, clippy::needless_pass_by_value)]
use super::connection::{Config, Counters, Request, Response};
use super::{ErrorCode, Event, Field, StreamId};
use crate::units::Time;
#[derive(Debug)]
pub struct Connection;
impl Connection {
    pub fn new(config: Config, now: Time) -> Self {
        todo!()
    }
    pub fn recv_space(&mut self) -> &mut [u8] {
        todo!()
    }
    pub fn handle_received(&mut self, now: Time, n: usize) {
        todo!()
    }
    pub fn handle_eof(&mut self, now: Time) {
        todo!()
    }
    pub fn handle_timeout(&mut self, now: Time) {
        todo!()
    }
    pub fn handle_transmitted(&mut self, now: Time, n: usize) {
        todo!()
    }
    pub fn poll_event(&mut self, now: Time) -> Option<Event<'_>> {
        todo!()
    }
    pub fn poll_transmit(&mut self, now: Time) -> &[u8] {
        todo!()
    }
    pub fn poll_timeout(&self) -> Time {
        todo!()
    }
    pub fn available_streams(&self) -> u32 {
        todo!()
    }
    pub fn open_streams(&self) -> u32 {
        todo!()
    }
    pub fn is_draining(&self) -> bool {
        todo!()
    }
    pub fn is_established(&self) -> bool {
        todo!()
    }
    pub fn send_request(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        todo!()
    }
    pub fn send_interim(&mut self, now: Time, stream: StreamId, status: u16, fields: &[Field<'_>]) {
        todo!()
    }
    pub fn send_response(&mut self, now: Time, stream: StreamId, response: &Response<'_>) {
        todo!()
    }
    pub fn send_data(&mut self, now: Time, stream: StreamId, data: &[u8], end_stream: bool) -> usize {
        todo!()
    }
    pub fn send_trailers(&mut self, now: Time, stream: StreamId, fields: &[Field<'_>]) {
        todo!()
    }
    pub fn release(&mut self, now: Time, stream: StreamId, n: u32) {
        todo!()
    }
    pub fn reset(&mut self, now: Time, stream: StreamId, code: ErrorCode) {
        todo!()
    }
    pub fn goaway(&mut self, now: Time, code: ErrorCode, debug: &[u8]) {
        todo!()
    }
    pub fn ping(&mut self, now: Time) {
        todo!()
    }
    pub fn counters(&self) -> &Counters {
        todo!()
    }
}
