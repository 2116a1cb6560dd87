//! Which exchange each stream of a connection carries.

use std::collections::VecDeque;

use h2lab_wire::StreamId;

/// The exchanges in the order of their streams, which rise with their requests. So a new one comes last, and a lookup
/// is a binary search. That is cheaper than hashing, and clients cannot make it slow by the numbers that they choose.
/// Over HTTP/1.1 there is only one, which takes no memory of its own.
#[derive(Debug, Default)]
pub struct Streams {
    /// The oldest.
    first: Option<(StreamId, u32)>,
    /// The others; none without the oldest.
    rest: VecDeque<(StreamId, u32)>,
}

impl Streams {
    /// The exchange on a stream that has begun.
    pub fn insert(&mut self, stream: StreamId, exchange: u32) {
        match &mut self.first {
            None => self.first = Some((stream, exchange)),
            Some(first) if first.0 == stream => first.1 = exchange,
            Some(first) if stream < first.0 => {
                let second = std::mem::replace(first, (stream, exchange));
                self.rest.push_front(second);
            }
            Some(_) if self.rest.back().is_none_or(|(last, _)| *last < stream) => {
                self.rest.push_back((stream, exchange));
            }
            Some(_) => match self.rest.binary_search_by_key(&stream, |(id, _)| *id) {
                Ok(place) => self.rest[place].1 = exchange,
                Err(place) => self.rest.insert(place, (stream, exchange)),
            },
        }
    }

    /// The exchange on a stream.
    pub fn get(&self, stream: StreamId) -> Option<u32> {
        let first = self.first?;
        if first.0 == stream {
            return Some(first.1);
        }
        let place = self.rest.binary_search_by_key(&stream, |(id, _)| *id).ok()?;
        Some(self.rest[place].1)
    }

    /// The stream carries it no more.
    pub fn remove(&mut self, stream: StreamId) -> Option<u32> {
        let first = self.first?;
        // Over HTTP/2, too, the oldest stream is often the next to end.
        if first.0 == stream {
            self.first = self.rest.pop_front();
            return Some(first.1);
        }
        let place = self.rest.binary_search_by_key(&stream, |(id, _)| *id).ok()?;
        self.rest.remove(place).map(|(_, exchange)| exchange)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, u32)> {
        self.first.into_iter().chain(self.rest.iter().copied())
    }

    /// Takes all of them.
    pub fn take(&mut self) -> impl Iterator<Item = (StreamId, u32)> + use<> {
        let Self { first, rest } = std::mem::take(self);
        first.into_iter().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let mut streams = Streams::default();
        for id in [3, 1, 9, 7] {
            streams.insert(StreamId(id), id * 10);
        }
        assert_eq!(streams.iter().map(|(id, _)| id.0).collect::<Vec<u32>>(), [1, 3, 7, 9]);
        assert_eq!([1, 7, 5].map(|id| streams.get(StreamId(id))), [Some(10), Some(70), None]);
        assert_eq!([3, 3, 11].map(|id| streams.remove(StreamId(id))), [Some(30), None, None]);
        assert_eq!((streams.len(), streams.get(StreamId(9))), (3, Some(90)));
        streams.insert(StreamId(9), 1);
        assert_eq!(streams.get(StreamId(9)), Some(1));
        assert_eq!((streams.take().count(), streams.len()), (3, 0));
        assert_eq!((streams.get(StreamId(9)), streams.remove(StreamId(1))), (None, None));
    }
}
