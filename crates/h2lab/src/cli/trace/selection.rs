//! Which frames are shown: by type, and how many of a long run.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use h2lab_wire::trace::FrameKind;

/// A frame type by its name in RFC 9113, in any case, or by its number: `HEADERS`, `goaway`, `0x10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameType(pub FrameKind);

impl FromStr for FrameType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = (0..=0x10).map(FrameKind).find(|kind| kind.to_string().eq_ignore_ascii_case(text));
        let number = || u8::from_str_radix(text.strip_prefix("0x")?, 16).ok().map(FrameKind);
        named.or_else(number).map(Self).ok_or_else(|| {
            format!("`{text}` is not a frame type (such as HEADERS, DATA, SETTINGS, GOAWAY, or a number such as 0x10)")
        })
    }
}

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elision {
    /// Nothing.
    Nothing,
    /// The middle of long runs, between frames that are rare.
    Middle,
    /// All but this many first and last frames.
    Between {
        /// The first.
        head: usize,
        /// The last.
        tail: usize,
    },
}

/// Frames that are shown at the beginning of a run, and again after each rare frame.
const RUN_HEAD: usize = 24;
/// Frames that are shown before each rare frame and at the end.
const RUN_TAIL: usize = 6;
/// How often a type may occur and still be rare.
const RARE: u32 = 8;

/// What was left out in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Frames.
    pub frames: u64,
    /// The lowest and the highest of their streams, 0 left aside; `None` if they were all on stream 0.
    pub streams: Option<(u32, u32)>,
}

/// Holds frames back until it is decided whether they are shown. `T` is a frame prepared for output.
#[derive(Debug)]
pub struct FrameSelection<T> {
    only: Vec<FrameKind>,
    elision: Elision,
    /// How many are shown at once before others are held back.
    budget: usize,
    held: VecDeque<Held<T>>,
    /// How many of these are frames.
    frames_held: usize,
    gap: Option<Gap>,
    seen: BTreeMap<FrameKind, u32>,
}

/// What is held back.
#[derive(Debug)]
enum Held<T> {
    /// A frame, and its stream.
    Frame(u32, T),
    /// A note between frames; it is never left out.
    Note(String),
}

/// What comes out of a [`FrameSelection`], in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown<T> {
    /// Frames were left out here.
    Gap(Gap),
    /// A frame.
    Frame(T),
    /// A note between frames.
    Note(String),
}

impl<T> FrameSelection<T> {
    /// A selection of these types; of none, all are shown.
    pub fn new(only: &[FrameType], elision: Elision) -> Self {
        let budget = match elision {
            Elision::Nothing => usize::MAX,
            Elision::Middle => RUN_HEAD,
            Elision::Between { head, .. } => head,
        };
        Self {
            only: only.iter().map(|kind| kind.0).collect(),
            elision,
            budget,
            held: VecDeque::new(),
            frames_held: 0,
            gap: None,
            seen: BTreeMap::new(),
        }
    }

    /// Takes a frame; `make` is called if it may be shown.
    pub fn frame(
        &mut self,
        kind: FrameKind,
        stream: u32,
        make: impl FnOnce() -> T,
        show: &mut impl FnMut(Shown<T>),
    ) {
        if !self.only.is_empty() && !self.only.contains(&kind) {
            return;
        }
        if self.elision == Elision::Middle && self.is_rare(kind) {
            self.flush(show);
            self.budget = self.budget.max(RUN_HEAD / 2);
        }
        if self.budget > 0 {
            self.budget -= usize::from(self.elision != Elision::Nothing);
            return show(Shown::Frame(make()));
        }
        let room = if let Elision::Between { tail, .. } = self.elision { tail } else { RUN_TAIL };
        self.held.push_back(Held::Frame(stream, make()));
        self.frames_held += 1;
        while self.frames_held > room
            && let Some(oldest) = self.held.pop_front()
        {
            match oldest {
                Held::Frame(stream, _) => self.leave_out(stream),
                Held::Note(note) => {
                    self.show_gap(show);
                    show(Shown::Note(note));
                }
            }
        }
    }

    /// A note is to be shown between the frames before and after it.
    pub fn note(&mut self, note: String, show: &mut impl FnMut(Shown<T>)) {
        match self.elision {
            Elision::Between { .. } if self.gap.is_some() || !self.held.is_empty() => {
                self.held.push_back(Held::Note(note));
                return;
            }
            Elision::Middle => {
                self.flush(show);
                self.budget = RUN_HEAD;
            }
            _ => {}
        }
        show(Shown::Note(note));
    }

    /// Shows what is held back.
    pub fn flush(&mut self, show: &mut impl FnMut(Shown<T>)) {
        self.show_gap(show);
        self.frames_held = 0;
        for held in self.held.drain(..) {
            show(match held {
                Held::Frame(_, frame) => Shown::Frame(frame),
                Held::Note(note) => Shown::Note(note),
            });
        }
    }

    fn show_gap(&mut self, show: &mut impl FnMut(Shown<T>)) {
        if let Some(gap) = self.gap.take() {
            show(Shown::Gap(gap));
        }
    }

    /// Whether a type is neither common nor, by now, frequent.
    fn is_rare(&mut self, kind: FrameKind) -> bool {
        let everyday =
            [FrameKind::DATA, FrameKind::HEADERS, FrameKind::WINDOW_UPDATE, FrameKind::CONTINUATION];
        let seen = self.seen.entry(kind).or_default();
        *seen = seen.saturating_add(1);
        !everyday.contains(&kind) && *seen <= RARE
    }

    fn leave_out(&mut self, stream: u32) {
        self.frames_held -= 1;
        let gap = self.gap.get_or_insert(Gap { frames: 0, streams: None });
        gap.frames += 1;
        if stream > 0 {
            let (low, high) = gap.streams.unwrap_or((stream, stream));
            gap.streams = Some((low.min(stream), high.max(stream)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of HEADERS on streams 1, 3 … and a last frame of `last`: `1 3 [2: 5-7] 9`.
    fn shown(elision: Elision, only: &str, headers: u32, last: FrameKind) -> String {
        let only: Vec<FrameType> = only.split_terminator(',').map(|name| name.parse().unwrap()).collect();
        let (mut selection, mut words) = (FrameSelection::new(&only, elision), Vec::new());
        let mut show = |shown: Shown<u32>| match shown {
            Shown::Frame(stream) => words.push(stream.to_string()),
            Shown::Gap(Gap { frames, streams }) => {
                let (low, high) = streams.unwrap_or_default();
                words.push(format!("[{frames}: {low}-{high}]"));
            }
            Shown::Note(note) => words.push(note),
        };
        for stream in (0..headers).map(|n| 2 * n + 1) {
            selection.frame(FrameKind::HEADERS, stream, || stream, &mut show);
        }
        selection.frame(last, 0, || 0, &mut show);
        selection.flush(&mut show);
        words.join(" ")
    }

    #[test]
    fn head_and_tail_bound_what_is_shown() {
        let between = |head, tail| shown(Elision::Between { head, tail }, "", 5, FrameKind::GOAWAY);
        assert_eq!(between(2, 2), "1 3 [2: 5-7] 9 0");
        assert_eq!(between(3, 3), "1 3 5 7 9 0", "nothing is left out");
        assert_eq!(between(1, 0), "1 [5: 3-9]");
        assert_eq!(between(0, 1), "[5: 1-9] 0");
    }

    #[test]
    fn what_is_printed_between_frames_stays_between_them_and_is_never_left_out() {
        let between = |head, tail| {
            let (mut selection, mut words) =
                (FrameSelection::new(&[], Elision::Between { head, tail }), Vec::new());
            let mut show = |shown: Shown<u32>| {
                words.push(match shown {
                    Shown::Frame(stream) => stream.to_string(),
                    Shown::Gap(gap) => format!("[{}]", gap.frames),
                    Shown::Note(note) => note,
                });
            };
            for (stream, note) in [(1, "a"), (3, "b"), (5, "c"), (7, "d")] {
                selection.frame(FrameKind::HEADERS, stream, || stream, &mut show);
                selection.note(note.to_owned(), &mut show);
            }
            selection.flush(&mut show);
            words.join(" ")
        };
        assert_eq!(between(1, 1), "1 a [1] b [1] c 7 d");
        assert_eq!(between(1, 2), "1 a [1] b 5 c 7 d");
        assert_eq!(between(0, 0), "[1] a [1] b [1] c [1] d");
        assert_eq!(between(4, 0), "1 a 3 b 5 c 7 d");
    }

    #[test]
    fn the_middle_of_a_run_is_left_out_before_a_rare_frame() {
        let run = (RUN_HEAD + RUN_TAIL) as u32;
        let text = |headers| shown(Elision::Middle, "", headers, FrameKind::GOAWAY);
        assert!(!text(run).contains('['), "{}", text(run));
        assert!(text(run + 1).contains(" 47 [1: 49-49] 51 "), "{}", text(run + 1));
        assert!(text(1_000).ends_with(" [970: 49-1987] 1989 1991 1993 1995 1997 1999 0"), "{}", text(1_000));
    }

    #[test]
    fn a_frame_that_comes_all_the_time_is_not_rare() {
        let mut selection = FrameSelection::new(&[], Elision::Middle);
        let mut count = 0;
        for _ in 0..1_000 {
            selection.frame(FrameKind::PING, 0, || (), &mut |_| count += 1);
        }
        assert!(count < 100, "{count} are shown");
    }

    #[test]
    fn types_are_chosen_by_name_in_any_case_or_number() {
        assert_eq!(shown(Elision::Nothing, "goaway", 3, FrameKind::GOAWAY), "0");
        assert_eq!(shown(Elision::Nothing, "HEADERS,DATA", 2, FrameKind::GOAWAY), "1 3");
        assert_eq!("priority_update".parse(), Ok(FrameType(FrameKind::PRIORITY_UPDATE)));
        assert_eq!("0xfe".parse(), Ok(FrameType(FrameKind(0xfe))));
        for bad in ["HEADER", "", "254", "unknown", "0x100"] {
            assert!(bad.parse::<FrameType>().is_err(), "{bad}");
        }
    }
}
