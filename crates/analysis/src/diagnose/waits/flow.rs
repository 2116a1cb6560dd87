//! One direction of a TCP connection as the link saw it: when each byte was sent, and when it could be read.

use std::collections::BTreeMap;
use std::ops::Range;

use super::latency_breakdown::Drop;
use h2lab_base::units::Time;
use h2lab_model::record::PacketRecord;
use h2lab_wire::trace::Direction;

/// A packet with bytes of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transmission {
    /// When it entered the link.
    pub at: Time,
    /// When it left the link and reached its receiver; [`Time::NEVER`] if it was dropped, damaged, or is still inside.
    pub out_at: Time,
    /// Its index among all packets of its direction: its id in the packet log.
    pub index: u64,
    /// The link dropped or damaged it.
    pub is_lost: bool,
}

impl Transmission {
    /// The transmission in a packet log's record.
    pub fn of(record: &PacketRecord) -> Self {
        let is_intact = record.arrived_intact();
        Self {
            at: record.at,
            out_at: if is_intact { record.out_at } else { Time::NEVER },
            index: record.index,
            is_lost: record.fate.is_drop() || record.marks.corrupt.is_some(),
        }
    }

    /// As a drop.
    pub const fn drop(&self, direction: Direction) -> Drop {
        Drop { direction, index: self.index, at: self.at }
    }
}

/// Transmissions of the same bytes, in the order in which they entered. A copy that the link made is counted with its
/// original.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Transmissions(Vec<Transmission>);

impl Transmissions {
    /// Adds a transmission.
    pub fn push(&mut self, sent: Transmission) {
        match self.0.last_mut() {
            Some(last) if last.index == sent.index => {
                last.out_at = last.out_at.min(sent.out_at);
                last.is_lost &= sent.is_lost;
            }
            _ => self.0.push(sent),
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Transmission] {
        &self.0
    }

    /// When the bytes entered the link for the first time.
    pub fn first_sent(&self) -> Time {
        self.0.first().map_or(Time::NEVER, |first| first.at)
    }

    /// The transmission that delivered them, the first that left the link; `None` if none has.
    pub fn brought(&self) -> Option<&Transmission> {
        self.0.iter().filter(|sent| sent.out_at.happened()).min_by_key(|sent| sent.out_at)
    }

    /// When they left the link for the first time.
    pub fn arrived(&self) -> Time {
        self.brought().map_or(Time::NEVER, |sent| sent.out_at)
    }

    /// The drops that delayed them, each with the transmission that followed it: the drops that entered the link before
    /// the transmission that delivered the bytes.
    pub fn drops(&self) -> impl Iterator<Item = (&Transmission, Option<&Transmission>)> {
        let until = self.brought().map_or(Time::NEVER, |brought| brought.at);
        let followed = self.0.iter().enumerate().map(|(n, sent)| (sent, self.0.get(n + 1)));
        followed.filter(move |(sent, _)| sent.is_lost && sent.at <= until)
    }
}

/// Bytes of the stream that have the same history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByteRange {
    /// Which bytes, numbered from 0: the first one after the SYN.
    pub bytes: Range<u64>,
    /// Every packet that carried them.
    pub sent: Transmissions,
    /// When these bytes and all before them had arrived, so that a reader could get them: TCP delivers bytes in
    /// order (RFC 9293 §3.4).
    pub readable: Time,
}

/// The history of a direction while its packets are processed.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// By first byte; the value has the end. Byte ranges do not overlap; bytes between two of them were never sent.
    byte_ranges: BTreeMap<u64, (u64, Transmissions)>,
}

impl Flow {
    /// Adds a packet with these bytes; packets come in the order in which they entered.
    pub fn add(&mut self, bytes: Range<u64>, sent: Transmission) {
        self.split_at(bytes.start);
        self.split_at(bytes.end);
        let mut at = bytes.start;
        while at < bytes.end {
            let next = self.byte_ranges.range_mut(at..bytes.end).next();
            match next {
                Some((start, (end, transmissions))) if *start == at => {
                    transmissions.push(sent);
                    at = *end;
                }
                other => {
                    let end = other.map_or(bytes.end, |(start, _)| *start);
                    self.byte_ranges.insert(at, (end, Transmissions(vec![sent])));
                    at = end;
                }
            }
        }
    }

    /// The packet in which the first of these bytes was last sent, if it has been.
    pub fn last_sent(&self, bytes: Range<u64>) -> Option<&Transmission> {
        let before = self.byte_ranges.range(..=bytes.start).next_back();
        let (_, (_, sent)) = before.filter(|(_, (end, _))| *end > bytes.start)?;
        sent.all().last()
    }

    /// Makes `at` a boundary between byte ranges, if it lies inside of one.
    fn split_at(&mut self, at: u64) {
        let Some((_, (end, sent))) = self.byte_ranges.range_mut(..at).next_back() else { return };
        if *end > at {
            let rest = (*end, sent.clone());
            *end = at;
            self.byte_ranges.insert(at, rest);
        }
    }

    /// The history of all bytes.
    pub fn finish(self) -> History {
        let mut readable = Time::ZERO;
        let byte_range = |(start, (end, sent)): (u64, (u64, Transmissions))| {
            readable = readable.max(sent.arrived());
            ByteRange { bytes: start..end, sent, readable }
        };
        History { byte_ranges: self.byte_ranges.into_iter().map(byte_range).collect() }
    }
}

/// The history of all bytes of a direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct History {
    /// In the order of the stream.
    byte_ranges: Vec<ByteRange>,
}

impl History {
    /// All byte ranges, in the order of the stream.
    pub fn all(&self) -> &[ByteRange] {
        &self.byte_ranges
    }

    /// The byte ranges that have bytes of `bytes`.
    pub fn of(&self, bytes: Range<u64>) -> &[ByteRange] {
        let from = self.byte_ranges.partition_point(|byte_range| byte_range.bytes.end <= bytes.start);
        let until = self.byte_ranges.partition_point(|byte_range| byte_range.bytes.start < bytes.end);
        self.byte_ranges.get(from..until).unwrap_or_default()
    }

    /// When all bytes before `end` could be read; the origin if there are none.
    pub fn readable(&self, end: u64) -> Time {
        let count = self.byte_ranges.partition_point(|byte_range| byte_range.bytes.start < end);
        count.checked_sub(1).map_or(Time::ZERO, |last| self.byte_ranges[last].readable)
    }

    /// The byte ranges before `end` that include all bytes still missing at `since`.
    pub fn missing(&self, since: Time, end: u64) -> &[ByteRange] {
        let from = self.byte_ranges.partition_point(|byte_range| byte_range.readable <= since);
        let until = self.byte_ranges.partition_point(|byte_range| byte_range.bytes.start < end);
        self.byte_ranges.get(from..until).unwrap_or_default()
    }
}

/// Converts sequence numbers, which wrap after 4 GiB, to places in the stream.
#[derive(Debug, Clone, Copy)]
pub(in crate::diagnose) struct Numbers {
    /// The sequence number of byte 0.
    first: u32,
    /// The highest place so far.
    highest: u64,
}

impl Numbers {
    /// For a stream whose byte 0 has this number.
    pub const fn from_first(first: u32) -> Self {
        Self { first, highest: 0 }
    }

    /// For a stream whose SYN has this number: the SYN counts as one byte (RFC 9293 §3.4).
    pub const fn behind(syn: u32) -> Self {
        Self::from_first(syn.wrapping_add(1))
    }

    /// Whether the SYN of this stream has this number.
    pub const fn has_syn(&self, number: u32) -> bool {
        number.wrapping_add(1) == self.first
    }

    /// The place nearest to the highest so far that has this number; `None` before the beginning of the stream.
    pub fn place(&self, number: u32) -> Option<u64> {
        let step = number.wrapping_sub(self.first.wrapping_add(self.highest as u32)).cast_signed();
        self.highest.checked_add_signed(step.into())
    }

    /// The stream has been sent up to `end`.
    pub fn advance(&mut self, end: u64) {
        self.highest = self.highest.max(end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn sent(at: u64, out_at: Option<u64>, index: u64) -> Transmission {
        Transmission { at: ms(at), out_at: out_at.map_or(Time::NEVER, ms), index, is_lost: out_at.is_none() }
    }

    fn history(packets: &[(Range<u64>, Transmission)]) -> History {
        let mut flow = Flow::default();
        for (bytes, sent) in packets {
            flow.add(bytes.clone(), *sent);
        }
        flow.finish()
    }

    #[test]
    fn bytes_behind_a_lost_packet_are_readable_when_its_successor_has_come() {
        let mut packets = vec![
            (0..100, sent(0, Some(10), 1)),
            (100..200, sent(0, None, 2)),
            (200..300, sent(1, Some(11), 3)),
        ];
        let before = history(&packets);
        assert_eq!((before.readable(100), before.readable(300)), (ms(10), Time::NEVER));
        packets.push((100..200, sent(30, Some(40), 4)));
        let after = history(&packets);
        assert_eq!(after.readable(300), ms(40));
        let [lost, behind] = after.missing(ms(10), 300) else { panic!("two byte ranges were missing") };
        assert_eq!((lost.bytes.clone(), behind.bytes.clone()), (100..200, 200..300));
        let drops: Vec<_> = lost.sent.drops().map(|(drop, next)| (drop.index, next.unwrap().index)).collect();
        assert_eq!(drops, [(2, 4)]);
        assert_eq!(after.readable(0), Time::ZERO);
    }

    #[test]
    fn a_retransmission_with_other_boundaries_splits_the_byte_ranges() {
        let history = history(&[
            (0..300, sent(0, None, 1)),
            (100..400, sent(5, Some(15), 2)),
            (0..150, sent(6, Some(16), 3)),
        ]);
        let starts: Vec<u64> = history.all().iter().map(|byte_range| byte_range.bytes.start).collect();
        assert_eq!(starts, [0, 100, 150, 300]);
        assert_eq!(history.readable(400), ms(16));
        assert_eq!(history.of(120..130).len(), 1);
        assert_eq!(history.of(400..500).len(), 0);
    }

    #[test]
    fn a_copy_is_no_second_transmission_and_counts_from_when_it_came() {
        let history = history(&[(0..10, sent(0, None, 7)), (0..10, sent(0, Some(12), 7))]);
        let [byte_range] = history.all() else { panic!("one byte range") };
        assert_eq!((byte_range.sent.all().len(), byte_range.sent.arrived()), (1, ms(12)));
        assert_eq!(byte_range.sent.drops().count(), 0);
    }

    #[test]
    fn a_drop_of_what_had_come_already_delayed_nothing() {
        let history = history(&[(0..10, sent(0, Some(12), 1)), (0..10, sent(20, None, 2))]);
        assert_eq!(history.all()[0].sent.drops().count(), 0);
    }

    #[test]
    fn sequence_numbers_may_wrap_and_come_out_of_order() {
        let mut numbers = Numbers::behind(u32::MAX - 5);
        assert!(numbers.has_syn(u32::MAX - 5));
        let mut place = |number| {
            let place = numbers.place(number);
            numbers.advance(place.unwrap_or(0));
            place
        };
        assert_eq!(place(u32::MAX - 5), None, "the SYN itself");
        assert_eq!(place(u32::MAX - 4), Some(0));
        assert_eq!(place(5), Some(10));
        assert_eq!(place(u32::MAX - 4), Some(0), "a retransmission");
        assert_eq!(place(1_000_000_000), Some(1_000_000_005));
        assert_eq!(place(3_000_000_000), Some(3_000_000_005));
        assert_eq!(place(100), Some(4_294_967_401), "the second round");
    }

    /// The same, computed byte by byte.
    fn reference(packets: &[(Range<u64>, Transmission)], end: u64) -> Time {
        let arrived = |byte: u64| {
            let with = packets.iter().filter(|(bytes, _)| bytes.contains(&byte));
            with.map(|(_, sent)| sent.out_at).min()
        };
        (0..end).filter_map(arrived).max().unwrap_or(Time::ZERO)
    }

    proptest! {
        #[test]
        fn it_is_what_single_bytes_would_show(
            packets in prop::collection::vec((0_u64..60, 1_u64..20, 0_u64..50, prop::option::of(1_u64..80)), 0..25),
        ) {
            let mut all = Vec::new();
            let mut at = 0;
            for (index, (start, length, pause, transit)) in (0..).zip(packets) {
                at += pause;
                all.push((start..start + length, sent(at, transit.map(|transit| at + transit), index)));
            }
            let history = history(&all);
            for end in 0..90 {
                prop_assert_eq!(history.readable(end), reference(&all, end));
            }
            for byte_range in history.all() {
                prop_assert!(byte_range.sent.all().is_sorted_by_key(|sent| sent.index));
            }
        }
    }
}
