//! Bytes in flight of a QUIC connection, which `quinn-proto` reports only to its congestion control.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::time::Instant;

/// Wraps the congestion controls of another factory so that they count bytes in flight.
pub(super) struct CountingFactory(pub Arc<dyn ControllerFactory + Send + Sync>);

impl ControllerFactory for CountingFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Counting { inner: Arc::clone(&self.0).build(now, current_mtu), in_flight: 0 })
    }
}

impl fmt::Debug for CountingFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingFactory").finish_non_exhaustive()
    }
}

/// A congestion control that leaves its decisions to another one, and counts bytes in flight (RFC 9002 §2: sent, and
/// neither acknowledged nor declared lost). Datagrams with nothing but acknowledgements are counted until the next
/// acknowledgement arrives, although they are not in flight.
struct Counting {
    inner: Box<dyn Controller>,
    in_flight: u64,
}

/// Bytes in flight of the connection whose congestion control this is; `None` if a [`CountingFactory`] did not make it.
pub(super) fn bytes_in_flight(controller: &dyn Controller) -> Option<u64> {
    controller.clone_box().into_any().downcast::<Counting>().ok().map(|counting| counting.in_flight)
}

impl Controller for Counting {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.in_flight = self.in_flight.saturating_add(bytes);
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.in_flight = in_flight;
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        self.inner.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), in_flight: self.in_flight })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::congestion::CubicConfig;

    #[test]
    fn what_was_sent_is_in_flight_until_it_is_acknowledged_or_lost() {
        let cubic: Arc<dyn ControllerFactory + Send + Sync> = Arc::new(CubicConfig::default());
        let now = Instant::now();
        let mut counting = Arc::new(CountingFactory(Arc::clone(&cubic))).build(now, 1_200);
        let in_flight = |controller: &dyn Controller| bytes_in_flight(controller);
        assert_eq!(in_flight(&*counting), Some(0));
        counting.on_sent(now, 3_600, 2);
        assert_eq!(in_flight(&*counting), Some(3_600));
        let before = counting.window();
        counting.on_congestion_event(now, now, false, 1_200);
        assert_eq!(in_flight(&*counting), Some(2_400));
        assert!(counting.window() < before, "the control behind it hears of the loss");
        counting.on_end_acks(now, 1_200, false, Some(1));
        assert_eq!(in_flight(&*counting), Some(1_200));
        assert_eq!(in_flight(&*cubic.build(now, 1_200)), None);
    }
}
