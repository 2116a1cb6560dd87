//! Mutations of valid inputs, drawn from a seed.

use h2lab_base::random::Counter;

/// Numbers at which counters, lengths and flags change their meaning.
const INTERESTING: [u8; 12] = [0, 1, 2, 4, 5, 8, 9, 0x20, 0x40, 0x7f, 0x80, 0xff];

/// Pieces that parsers look for.
const DICTIONARY: [&[u8]; 14] = [
    b"\r\n",
    b"\r\n\r\n",
    b": ",
    b"content-length: ",
    b"transfer-encoding: chunked\r\n",
    b"connection: close\r\n",
    b"HTTP/1.1",
    b"0\r\n\r\n",
    &[0, 0, 0, 4, 0, 0, 0, 0, 0],
    &[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    &[0, 0, 0, 9, 4, 0, 0, 0, 1],
    &[0, 0, 1, 0, 8, 0, 0, 0, 1, 0xff],
    &[0x3f, 0xe1, 0x1f],
    &[0x7f, 0xff, 0xff, 0xff, 0xff],
];

/// Longest input that is made.
const LONGEST: usize = 16 * 1024;

/// Makes inputs out of valid ones: the n-th is a function of the seed and n.
#[derive(Debug)]
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    random: Counter,
}

impl Mutator {
    /// Inputs near `seeds`, of which there is at least one.
    pub fn new(seeds: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { seeds, random: Counter::new(seed, "mutations") }
    }

    /// The next input: one to eight mutations of a valid one.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.any_seed().clone();
        for _ in 0..=self.random.below(8) {
            self.mutate(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn any_seed(&mut self) -> &Vec<u8> {
        let n = self.below(self.seeds.len());
        &self.seeds[n]
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let place = self.below(input.len());
        let kind = self.below(10);
        if input.is_empty() || kind == 0 {
            let word = DICTIONARY[self.below(DICTIONARY.len())];
            input.splice(place..place, word.iter().copied());
            return;
        }
        match kind {
            1 => input[place] = self.random.next_u64() as u8,
            2 => input[place] ^= 1 << self.below(8),
            3 | 4 => input[place] = INTERESTING[self.below(INTERESTING.len())],
            5 => input[place] = input[place].wrapping_add(if self.below(2) == 0 { 1 } else { 255 }),
            6 => {
                let end = (place + 1 + self.below(16)).min(input.len());
                input.drain(place..end);
            }
            7 => input.truncate(place),
            8 => {
                let end = (place + 1 + self.below(200)).min(input.len());
                let piece = input[place..end].to_vec();
                let at = self.below(input.len());
                input.splice(at..at, piece);
            }
            _ => {
                let other = self.any_seed().clone();
                let from = self.below(other.len());
                input.truncate(place);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}
