//! Samples of several generators in one order.

use crate::record::Sample;

/// Orders samples by `scheduled_at`, and by their numbers those that were due together, as requests of a closed loop are.
///
/// Numbers are given in the order in which requests become due. Where one thread kept each of them, a sample's number is its
/// place, and nothing is sorted. Elsewhere what is sorted is their keys: a sample is so large that moving it at each step of a
/// sort took a sixth of all instructions of a load.
pub(super) fn put_in_order(samples: &mut [Sample]) {
    if let Some(order) = order_of_numbers(samples) {
        move_to(samples, order);
    }
    let key = |sample: &Sample| (sample.scheduled_at, sample.number);
    if !samples.is_sorted_by_key(key) {
        let mut keys: Vec<_> =
            samples.iter().enumerate().map(|(index, sample)| (key(sample), index as u32)).collect();
        keys.sort_unstable();
        move_to(samples, keys.into_iter().map(|(_, index)| index).collect());
    }
}

/// The indices of samples in the order of their numbers; `None` unless those are all from 0 on.
fn order_of_numbers(samples: &[Sample]) -> Option<Vec<u32>> {
    let mut order = vec![u32::MAX; samples.len()];
    for (index, sample) in samples.iter().enumerate() {
        let place = order.get_mut(sample.number as usize)?;
        if *place != u32::MAX {
            return None;
        }
        *place = index as u32;
    }
    Some(order)
}

/// Puts at each place the sample whose index `order` has there. Each moves once, and not far, since requests end nearly in the
/// order in which they were due.
fn move_to(samples: &mut [Sample], mut order: Vec<u32>) {
    for first in 0..samples.len() {
        let waiting = samples[first];
        let mut place = first;
        // Around the circle of those that take each other's places.
        loop {
            let from = std::mem::replace(&mut order[place], place as u32) as usize;
            if from == first {
                samples[place] = waiting;
                break;
            }
            samples[place] = samples[from];
            place = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_wire::StreamId;

    use super::*;

    #[test]
    fn samples_are_ordered_by_when_they_were_due_and_then_by_their_numbers() {
        let in_order = |samples: &[(u64, u32)]| {
            let sample =
                |&(ms, number): &(u64, u32)| Sample { number, ..Sample::due(Time::from_millis(ms), true) };
            let mut samples: Vec<Sample> = samples.iter().map(sample).collect();
            put_in_order(&mut samples);
            let places = samples.iter().map(|sample| (sample.scheduled_at, sample.number));
            places.collect::<Vec<_>>()
        };
        let assert_order = |given: &[(u64, u32)], expected: &[(u64, u32)]| {
            let due = |&(ms, number): &(u64, u32)| (Time::from_millis(ms), number);
            assert_eq!(in_order(given), expected.iter().map(due).collect::<Vec<_>>());
        };
        // Each was kept, by one thread.
        assert_order(&[(1, 1), (2, 2), (1, 0), (3, 3)], &[(1, 0), (1, 1), (2, 2), (3, 3)]);
        // By two threads, the second of which was late.
        assert_order(&[(1, 0), (2, 2), (3, 1), (4, 3)], &[(1, 0), (2, 2), (3, 1), (4, 3)]);
        // Not each was kept.
        assert_order(&[(2, 9), (2, 4), (1, 2)], &[(1, 2), (2, 4), (2, 9)]);
        // Two are from elsewhere, without a number.
        assert_order(&[(2, 0), (1, 0)], &[(1, 0), (2, 0)]);
        assert_order(&[], &[]);
    }

    #[test]
    fn each_sample_is_still_there_once_it_is_in_order() {
        for of in [1, 2, 997] {
            // 7 generates all remainders of 997, so that the places change in long circles; some are due together.
            let places = (0..of).map(|number: u32| number * 7 % of);
            for (each, together) in [(1, 1), (1, 3), (2, 1), (2, 3)] {
                let sample = |number: u32| Sample {
                    number: number * each,
                    stream: StreamId(number),
                    ..Sample::due(Time::from_millis(u64::from(number / together)), true)
                };
                let mut samples: Vec<Sample> = places.clone().map(sample).collect();
                put_in_order(&mut samples);
                assert!(samples == (0..of).map(sample).collect::<Vec<_>>(), "{of} {each} {together}");
            }
        }
    }
}
