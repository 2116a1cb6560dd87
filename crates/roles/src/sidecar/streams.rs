//! Which exchange each stream of a connection carries.

use std::collections::VecDeque;

use h2lab_wire::StreamId;

/// In the order of the streams, which rise with their requests, so that a new one comes last and the one that is looked for is found by
/// halving: no hashing, which costs more than that, and nothing that a client can make slow by the numbers that it chooses.
#[derive(Debug, Default)]
pub struct Streams(VecDeque<(StreamId, u32)>);

impl Streams {
    /// The exchange on a stream that has begun.
    pub fn insert(&mut self, stream: StreamId, exchange: u32) {
        if self.0.back().is_none_or(|(last, _)| *last < stream) {
            return self.0.push_back((stream, exchange));
        }
        match self.place(stream) {
            Ok(place) => self.0[place].1 = exchange,
            Err(place) => self.0.insert(place, (stream, exchange)),
        }
    }

    /// The exchange on a stream.
    pub fn get(&self, stream: StreamId) -> Option<u32> {
        self.place(stream).ok().map(|place| self.0[place].1)
    }

    /// The stream carries it no more.
    pub fn remove(&mut self, stream: StreamId) -> Option<u32> {
        let place = self.place(stream).ok()?;
        self.0.remove(place).map(|(_, exchange)| exchange)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, u32)> {
        self.0.iter().copied()
    }

    /// Takes all of them.
    pub fn take(&mut self) -> impl Iterator<Item = (StreamId, u32)> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }

    fn place(&self, stream: StreamId) -> Result<usize, usize> {
        // Over HTTP/1.1 there is only one, and over HTTP/2 the oldest is often the next to end.
        match self.0.front() {
            Some((first, _)) if *first == stream => Ok(0),
            _ => self.0.binary_search_by_key(&stream, |(id, _)| *id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let mut streams = Streams::default();
        for id in [1, 3, 9, 7] {
            streams.insert(StreamId(id), id * 10);
        }
        assert_eq!(streams.iter().map(|(id, _)| id.0).collect::<Vec<u32>>(), [1, 3, 7, 9]);
        assert_eq!([1, 7, 5].map(|id| streams.get(StreamId(id))), [Some(10), Some(70), None]);
        assert_eq!([3, 3, 11].map(|id| streams.remove(StreamId(id))), [Some(30), None, None]);
        assert_eq!((streams.len(), streams.get(StreamId(9))), (3, Some(90)));
        streams.insert(StreamId(9), 1);
        assert_eq!(streams.get(StreamId(9)), Some(1));
        assert_eq!((streams.take().count(), streams.len()), (3, 0));
    }
}
