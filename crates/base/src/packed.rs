//! Lists of records in little memory.
//!
//! Neighbouring records are alike: of a million requests most differ in a few bytes from the one before. A [`Packed`]
//! list stores only the differences, and gives whole records when it is iterated.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::nanos;

#[cfg(any(test, feature = "testing"))]
mod testing;

/// A record that is `N` whole numbers, at most 64.
///
/// They are stored as differences from the numbers of the record before; a smaller difference takes fewer bytes. A
/// number that did not change takes no byte, and the seven that change most often should come first.
pub trait Pack<const N: usize> {
    /// The record as numbers.
    fn to_numbers(&self) -> [u64; N];
    /// The record that has these numbers.
    fn from_numbers(numbers: [u64; N]) -> Self;
}

impl Pack<1> for u64 {
    fn to_numbers(&self) -> [u64; 1] {
        [*self]
    }

    fn from_numbers([number]: [u64; 1]) -> Self {
        number
    }
}

/// Two times, to the nanosecond.
impl Pack<2> for (Duration, Duration) {
    fn to_numbers(&self) -> [u64; 2] {
        [nanos(self.0), nanos(self.1)]
    }

    fn from_numbers(numbers: [u64; 2]) -> Self {
        numbers.map(Duration::from_nanos).into()
    }
}

/// A list of records that keeps what is different in each.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed<T, const N: usize> {
    /// Chunks of [`Self::CHUNK`] records. The first record of a chunk is a difference from zeros, so that a record can
    /// be read without decoding all records before it.
    chunks: Vec<Box<[u8]>>,
    /// The chunk that is being filled.
    open: Vec<u8>,
    /// The numbers of the last record in the open chunk.
    last: [u64; N],
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pack<N>, const N: usize> Packed<T, N> {
    /// Records of a chunk.
    const CHUNK: usize = 1024;

    /// Without records.
    pub const fn new() -> Self {
        const { assert!(N <= 64, "a bit of a word says which number changed") };
        Self { chunks: Vec::new(), open: Vec::new(), last: [0; N], len: 0, of: PhantomData }
    }

    /// How many records it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes the records take.
    pub fn bytes(&self) -> usize {
        let filled: usize = self.chunks.iter().map(|chunk| chunk.len() + size_of::<Box<[u8]>>()).sum();
        filled + self.open.len()
    }

    /// Adds a record.
    pub fn push(&mut self, record: &T) {
        let numbers = record.to_numbers();
        let changed = (0..N).filter(|&n| numbers[n] != self.last[n]);
        put(&mut self.open, changed.clone().map(|n| 1 << n).sum());
        for n in changed {
            put(&mut self.open, zigzag(numbers[n].wrapping_sub(self.last[n])));
        }
        self.last = numbers;
        self.len += 1;
        if self.len.is_multiple_of(Self::CHUNK) {
            self.chunks.push(self.open.as_slice().into());
            self.open.clear();
            self.last = [0; N];
        }
    }

    /// Takes all records out.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The records in order.
    pub fn iter(&self) -> Iter<'_, T, N> {
        self.iter_from(0)
    }

    /// The records from the beginning of a chunk on.
    fn iter_from(&self, chunk: usize) -> Iter<'_, T, N> {
        let left = self.len - chunk * Self::CHUNK;
        let chunks = self.chunks.get(chunk..).unwrap_or_default().iter();
        Iter { chunks, open: &self.open, bytes: &[], numbers: [0; N], left, of: PhantomData }
    }

    /// One record. This decodes the records before it in its chunk: use it for a few records, and [`Packed::iter`] for
    /// many.
    pub fn get(&self, index: usize) -> Option<T> {
        (index < self.len).then(|| self.iter_from(index / Self::CHUNK).nth(index % Self::CHUNK))?
    }

    /// The last record.
    pub fn last(&self) -> Option<T> {
        self.get(self.len.checked_sub(1)?)
    }
}

/// Writes seven bits to each byte, the lowest first; the eighth bit says that more bytes follow (LEB128).
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number that [`put`] wrote.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte <= 0x7f {
            return Some(number);
        }
    }
}

/// Maps a signed difference to an unsigned number that is small if the difference is small: 0, -1, 1, -2 … become 0, 1,
/// 2, 3.
const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

/// The difference that [`zigzag`] maps to this number.
const fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// The records of a [`Packed`] list in order.
#[derive(Debug, Clone)]
pub struct Iter<'a, T, const N: usize> {
    /// The chunks that are not begun.
    chunks: std::slice::Iter<'a, Box<[u8]>>,
    /// The open chunk, which follows them.
    open: &'a [u8],
    /// What is left of the present chunk.
    bytes: &'a [u8],
    numbers: [u64; N],
    left: usize,
    of: PhantomData<T>,
}

impl<T: Pack<N>, const N: usize> Iterator for Iter<'_, T, N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.bytes.is_empty() {
            self.bytes =
                self.chunks.next().map_or_else(|| std::mem::take(&mut self.open), |chunk| &chunk[..]);
            self.numbers = [0; N];
        }
        let mut changed = take(&mut self.bytes)?;
        while changed != 0 {
            let difference = unzigzag(take(&mut self.bytes)?);
            let number = self.numbers.get_mut(changed.trailing_zeros() as usize)?;
            *number = number.wrapping_add(difference);
            changed &= changed - 1;
        }
        self.left -= 1;
        Some(T::from_numbers(self.numbers))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T: Pack<N>, const N: usize> ExactSizeIterator for Iter<'_, T, N> {}

impl<'a, T: Pack<N>, const N: usize> IntoIterator for &'a Packed<T, N> {
    type Item = T;
    type IntoIter = Iter<'a, T, N>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Pack<N>, const N: usize> Default for Packed<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Pack<N>, const N: usize> Extend<T> for Packed<T, N> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, records: I) {
        records.into_iter().for_each(|record| self.push(&record));
    }
}

impl<T: Pack<N>, const N: usize> FromIterator<T> for Packed<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(records: I) -> Self {
        let mut packed = Self::new();
        packed.extend(records);
        packed
    }
}

impl<T: Pack<N> + fmt::Debug, const N: usize> fmt::Debug for Packed<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<T: Pack<N> + Serialize, const N: usize> Serialize for Packed<T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de, T: Pack<N> + Deserialize<'de>, const N: usize> Deserialize<'de> for Packed<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of all lengths and both extremes, and many that repeat.
    fn strange() -> Vec<u64> {
        let powers = (0..64).flat_map(|shift| [(1 << shift) - 1, 1 << shift, u64::MAX - (1 << shift)]);
        let numbers: Vec<u64> = powers.chain([0, u64::MAX, 0, 5, 5, 5]).collect();
        numbers.iter().copied().cycle().take(5_000).collect()
    }

    #[test]
    fn what_was_put_in_comes_out_and_every_place_is_found() {
        let numbers = strange();
        for len in [0, 1, 1_023, 1_024, 1_025, 2_048, 5_000] {
            let packed: Packed<u64, 1> = numbers[..len].iter().copied().collect();
            assert_eq!(packed.iter().collect::<Vec<u64>>(), numbers[..len], "{len}");
            assert_eq!((packed.len(), packed.iter().len(), packed.is_empty()), (len, len, len == 0));
            assert_eq!(packed.last(), numbers[..len].last().copied());
            assert!((0..len).all(|place| packed.get(place) == Some(numbers[place])));
            assert_eq!((packed.get(len), packed.get(len + 5_000)), (None, None));
        }
        let pairs: Vec<_> = numbers.iter().zip(numbers.iter().rev()).map(|(&a, &b)| (a, b)).collect();
        let pairs = pairs.iter().map(|&(a, b)| (Duration::from_nanos(a), Duration::from_nanos(b)));
        let packed: Packed<(Duration, Duration), 2> = pairs.clone().collect();
        assert!(packed.iter().eq(pairs));
    }

    #[test]
    fn neighbours_that_are_alike_take_few_bytes() {
        let sorted: Packed<u64, 1> = (0..100_000).map(|n| 3_000_000_000 + n * 50).collect();
        assert!(sorted.bytes() < 210_000, "{}", sorted.bytes());
        let same: Packed<u64, 1> = std::iter::repeat_n(u64::MAX, 100_000).collect();
        assert!(same.bytes() < 105_000, "{}", same.bytes());
    }

    #[test]
    fn an_edited_list_is_as_if_it_had_been_put_in_so() {
        let mut packed: Packed<u64, 1> = strange().into_iter().collect();
        packed.edit()[3] = 17;
        packed.edit().truncate(2_000);
        let mut expected = strange();
        expected.truncate(2_000);
        expected[3] = 17;
        assert_eq!(packed, expected.iter().copied().collect());
        assert_ne!(packed, strange().into_iter().collect());
        let text = serde_json::to_string(&packed).unwrap();
        assert_eq!(text, serde_json::to_string(&expected).unwrap());
        assert_eq!(serde_json::from_str::<Packed<u64, 1>>(&text).unwrap(), packed);
    }
}
