//! DATA that arrived on a connection: how much of it arrived between two times, which stream had most of it, and the
//! gaps in it. Each query avoids a pass over all frames: there may be millions of frames, and as many queries.

use std::cell::OnceCell;
use std::ops::Range;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::StreamId;

/// The DATA frames of a connection, by time.
#[derive(Debug, Default)]
pub(in crate::diagnose::causes) struct Bodies {
    frames: Vec<Data>,
    index: OnceCell<Index>,
}

/// A DATA frame.
#[derive(Debug, Clone, Copy)]
struct Data {
    at: Time,
    stream: StreamId,
    /// Bytes of this frame and of all before it.
    total: u64,
}

impl Bodies {
    /// Adds the next frame, no earlier than those before it.
    pub fn push(&mut self, at: Time, stream: StreamId, bytes: u64) {
        let total = self.total(self.frames.len()) + bytes;
        self.frames.push(Data { at, stream, total });
        self.index = OnceCell::new();
    }

    /// What arrived after the first of these times and before the second.
    pub fn between(&self, from: Time, until: Time) -> Part<'_> {
        let first = self.frames.partition_point(|frame| frame.at <= from);
        let end = self.frames.partition_point(|frame| frame.at < until);
        Part { bodies: self, from, until, range: first..end.max(first) }
    }

    /// Bytes of the first `n` frames.
    fn total(&self, n: usize) -> u64 {
        n.checked_sub(1).map_or(0, |last| self.frames[last].total)
    }

    fn bytes(&self, n: usize) -> u64 {
        self.total(n + 1) - self.total(n)
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(self))
    }
}

/// What arrived in a period.
#[derive(Debug)]
pub(in crate::diagnose::causes) struct Part<'a> {
    bodies: &'a Bodies,
    from: Time,
    until: Time,
    range: Range<usize>,
}

impl Part<'_> {
    /// When it began.
    pub const fn begin(&self) -> Time {
        self.from
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bodies.total(self.range.end) - self.bodies.total(self.range.start)
    }

    /// The stream with more than half of them, if there is one.
    pub fn most(&self) -> Option<StreamId> {
        let index = self.bodies.index();
        let stream = index.over(self.range.clone())?.stream;
        (index.bytes_of(stream, &self.range) * 2 > self.bytes()).then_some(stream)
    }

    /// The longest time without a frame.
    pub fn gap(&self) -> Duration {
        let frames = &self.bodies.frames[self.range.clone()];
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else {
            return self.until.since(self.from);
        };
        let inner = self.bodies.index().over(self.range.start + 1..self.range.end);
        let inner = Duration::from_nanos(inner.map_or(0, |node| node.gap));
        inner.max(first.at.since(self.from)).max(self.until.since(last.at))
    }

    /// Whether more DATA of a stream arrives later.
    pub fn goes_on(&self, stream: StreamId) -> bool {
        let last = self.bodies.index().last_of(stream);
        last.is_some_and(|last| self.bodies.frames[last].at >= self.until)
    }
}

/// Summaries of ranges of frames.
#[derive(Debug)]
struct Index {
    /// A binary tree: the leaves in its second half are the frames, and node `n` summarises nodes 2n and 2n + 1.
    tree: Vec<Node>,
    /// The frames sorted by stream and then by time, each with the cumulative bytes up to it.
    by_stream: Vec<(StreamId, usize, u64)>,
}

/// A summary of some frames.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// If a stream has more than half of the bytes, it is this one (Boyer and Moore, MJRTY, 1981).
    stream: StreamId,
    /// By how many bytes the stream leads.
    lead: u64,
    /// The longest time between one of the frames and the frame before it, in nanoseconds.
    gap: u64,
}

impl Node {
    fn and(self, other: Self) -> Self {
        let gap = self.gap.max(other.gap);
        let (more, less) = if self.lead >= other.lead { (self, other) } else { (other, self) };
        let lead = if more.stream == less.stream { more.lead + less.lead } else { more.lead - less.lead };
        Self { stream: more.stream, lead, gap }
    }
}

impl Index {
    fn of(bodies: &Bodies) -> Self {
        let frames = &bodies.frames;
        let leaf = |n: usize| Node {
            stream: frames[n].stream,
            lead: bodies.bytes(n),
            gap: frames[n].at.nanos_since(frames[n.saturating_sub(1)].at),
        };
        let none = Node { stream: StreamId(0), lead: 0, gap: 0 };
        let mut tree = vec![none; frames.len()];
        tree.extend((0..frames.len()).map(leaf));
        for n in (1..frames.len()).rev() {
            tree[n] = tree[2 * n].and(tree[2 * n + 1]);
        }
        let mut by_stream: Vec<(StreamId, usize, u64)> =
            frames.iter().enumerate().map(|(n, frame)| (frame.stream, n, 0)).collect();
        by_stream.sort_unstable();
        let mut total = 0;
        for (_, n, upto) in &mut by_stream {
            total += bodies.bytes(*n);
            *upto = total;
        }
        Self { tree, by_stream }
    }

    /// The summary of these frames; `None` if there are none.
    fn over(&self, range: Range<usize>) -> Option<Node> {
        let half = self.tree.len() / 2;
        let (mut first, mut end) = (range.start + half, range.end + half);
        let mut all: Option<Node> = None;
        let mut add = |node: Node| all = Some(all.map_or(node, |all| all.and(node)));
        while first < end {
            if first % 2 == 1 {
                add(self.tree[first]);
                first += 1;
            }
            if end % 2 == 1 {
                end -= 1;
                add(self.tree[end]);
            }
            (first, end) = (first / 2, end / 2);
        }
        all
    }

    /// Bytes of a stream among these frames.
    fn bytes_of(&self, stream: StreamId, range: &Range<usize>) -> u64 {
        let upto = |place: usize| {
            let before = self.by_stream.partition_point(|(id, n, _)| (*id, *n) < (stream, place));
            before.checked_sub(1).map_or(0, |last| self.by_stream[last].2)
        };
        upto(range.end) - upto(range.start)
    }

    /// The last frame of a stream.
    fn last_of(&self, stream: StreamId) -> Option<usize> {
        let end = self.by_stream.partition_point(|(id, ..)| *id <= stream);
        let (id, last, _) = *self.by_stream.get(end.checked_sub(1)?)?;
        (id == stream).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn bodies(frames: &[(u64, u32, u64)]) -> Bodies {
        let mut bodies = Bodies::default();
        for (at, stream, bytes) in frames {
            bodies.push(Time::from_millis(*at), StreamId(*stream), *bytes);
        }
        bodies
    }

    fn between(bodies: &Bodies, from: u64, until: u64) -> Part<'_> {
        bodies.between(Time::from_millis(from), Time::from_millis(until))
    }

    #[test]
    fn what_came_between_two_times_excludes_both() {
        let bodies = bodies(&[(10, 1, 5), (20, 3, 7), (25, 1, 2), (40, 1, 9)]);
        let part = between(&bodies, 10, 40);
        assert_eq!((part.bytes(), part.most(), part.gap().as_millis()), (9, Some(StreamId(3)), 15));
        assert!(part.goes_on(StreamId(1)) && !part.goes_on(StreamId(3)) && !part.goes_on(StreamId(5)));
        let none = between(&bodies, 26, 39);
        assert_eq!((none.bytes(), none.most(), none.gap().as_millis()), (0, None, 13));
        assert_eq!(between(&bodies, 30, 15).bytes(), 0, "the wrong way round");
    }

    #[test]
    fn half_of_the_bytes_are_not_most_of_them() {
        let most = |bytes| between(&bodies(&[(10, 1, 8), (20, 3, bytes)]), 0, 99).most();
        assert_eq!([most(7), most(8), most(9)], [Some(StreamId(1)), None, Some(StreamId(3))]);
    }

    #[test]
    fn many_questions_about_many_frames_are_answered_in_time() {
        // Each range has about half of all frames: a pass over each would take 2 × 10^10 steps.
        const COUNT: u64 = 200_000;
        let mut bodies = Bodies::default();
        (0..COUNT).for_each(|n| bodies.push(Time::from_micros(10 * n), StreamId(3), 100));
        let asked =
            (0..COUNT).map(|n| bodies.between(Time::from_micros(5 * n), Time::from_micros(5 * (n + COUNT))));
        let answered = asked.filter(|part| part.most() == Some(StreamId(3)) && part.gap().as_micros() == 10);
        assert_eq!(answered.count() as u64, COUNT);
    }

    proptest! {
        #[test]
        fn any_part_is_as_a_look_at_each_frame_finds_it(
            frames in prop::collection::vec((0_u64..4, 1_u32..5, 0_u64..50), 0..40),
            (from, until) in (0_u64..90, 0_u64..90),
        ) {
            let mut now = 0;
            let frames: Vec<(u64, u32, u64)> = frames
                .into_iter()
                .map(|(step, stream, bytes)| { now += step; (now, stream, bytes) })
                .collect();
            let bodies = bodies(&frames);
            let part = between(&bodies, from, until);
            let seen: Vec<_> = frames.iter().filter(|frame| frame.0 > from && frame.0 < until).collect();
            let bytes: u64 = seen.iter().map(|frame| frame.2).sum();
            prop_assert_eq!(part.bytes(), bytes);
            let mut streams: BTreeMap<u32, u64> = BTreeMap::new();
            for frame in &seen {
                *streams.entry(frame.1).or_default() += frame.2;
            }
            let most = streams.into_iter().find(|(_, of)| of * 2 > bytes);
            prop_assert_eq!(part.most(), most.map(|(stream, _)| StreamId(stream)));
            let times: Vec<u64> = [from].into_iter().chain(seen.iter().map(|f| f.0)).chain([until]).collect();
            let gap = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
            prop_assert_eq!(part.gap().as_millis() as u64, gap.unwrap_or(0));
            for stream in 1..5 {
                let later = frames.iter().any(|frame| frame.1 == stream && frame.0 >= until);
                prop_assert_eq!(part.goes_on(StreamId(stream)), later);
            }
        }
    }
}
