//! Which instances of a service are avoided because they are not fit: their health checks fail, or they are left out ([`super::outlier`]).
//!
//! The instances of one priority form two groups: those of the proxy's own zone, and the others. A group is enough if
//! `panic` percent of it are fit. If any group is enough, all instances that are not fit, of every group, are avoided.
//! So a backup takes over from primaries of which none is fit. If no group is enough, the few fit ones would break
//! under the load of all: then every instance is used of the groups in which any is fit. If none is fit at all, nothing
//! is known that distinguishes them.
//!
//! Envoy judges each priority in a similar way. It panics only where the fit instances of all priorities together are
//! too few for the load, and then sends nothing to a priority without any. It spills over in proportion where fewer
//! than 71 % of a priority are fit; here the next priority joins as a whole where the lower one is not enough.

use std::collections::BTreeMap;

/// An instance that may be given requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its checks succeed, and it is not left out.
    pub is_fit: bool,
    /// Instances of a higher number are used only where those of lower ones are not enough.
    pub priority: u16,
    /// Whether it is in the proxy's own zone.
    pub is_near: bool,
}

/// Which instances of a service are used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// For each candidate: whether it is used only if there is no other one.
    pub avoided: Vec<bool>,
    /// Lower priorities count as this one: together they are enough.
    pub joined: u16,
}

/// Which of `all` are used, where `percent` of a group are enough. With 0, those that are not fit are used only if none
/// is fit.
pub fn asked(all: &[Candidate], percent: u32) -> Asked {
    let group = |one: &Candidate| (one.priority, one.is_near);
    let mut groups: BTreeMap<(u16, bool), (usize, usize)> = BTreeMap::new();
    for one in all {
        let (fit, size) = groups.entry(group(one)).or_default();
        (*fit, *size) = (*fit + usize::from(one.is_fit), *size + 1);
    }
    groups.retain(|_, (fit, _)| *fit > 0);
    let Some(((last, _), _)) = groups.last_key_value() else {
        return Asked { avoided: vec![false; all.len()], joined: 0 };
    };
    let is_enough = |(fit, size): &(usize, usize)| fit * 100 >= size * percent as usize;
    let enough = groups.iter().find(|(_, counts)| is_enough(counts)).map(|((priority, _), _)| *priority);
    let is_avoided = |one: &Candidate| !one.is_fit && (enough.is_some() || !groups.contains_key(&group(one)));
    Asked { avoided: all.iter().map(is_avoided).collect(), joined: enough.unwrap_or(*last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups as (priority, own zone, fit, not fit): of each, whether the fit ones and the others are avoided; and the joined priority.
    fn of(groups: &[(u16, bool, usize, usize)], percent: u32) -> (Vec<[bool; 2]>, u16) {
        let one = |is_fit, &(priority, is_near, ..): &(u16, bool, usize, usize)| Candidate {
            is_fit,
            priority,
            is_near,
        };
        let mut all = Vec::new();
        let mut places = Vec::new();
        for group in groups {
            places.push([all.len(), all.len() + group.2]);
            all.extend(std::iter::repeat_n(one(true, group), group.2));
            all.extend(std::iter::repeat_n(one(false, group), group.3));
        }
        let Asked { avoided, joined } = asked(&all, percent);
        // A group without instances of a kind avoids none of that kind.
        let is_avoided = |at: usize, count: usize| count > 0 && avoided[at];
        let of_group = |(at, group): (&[usize; 2], &(u16, bool, usize, usize))| {
            [is_avoided(at[0], group.2), is_avoided(at[1], group.3)]
        };
        (places.iter().zip(groups).map(of_group).collect(), joined)
    }

    const NONE: [bool; 2] = [false; 2];
    const UNFIT: [bool; 2] = [false, true];

    #[test]
    fn of_one_group_all_are_asked_where_few_are_fit() {
        assert_eq!(of(&[(0, false, 5, 5)], 50), (vec![UNFIT], 0));
        assert_eq!(of(&[(0, false, 4, 6)], 50), (vec![NONE], 0));
        assert_eq!(of(&[(0, false, 1, 9)], 0), (vec![UNFIT], 0), "never");
        assert_eq!(of(&[(0, false, 0, 9)], 0), (vec![NONE], 0), "nothing tells them apart");
        assert_eq!(asked(&[], 50), Asked::default());
    }

    #[test]
    fn a_backup_takes_over_where_no_primary_is_fit() {
        assert_eq!(of(&[(0, false, 0, 2), (1, false, 1, 0)], 50), (vec![UNFIT, NONE], 1));
        assert_eq!(of(&[(0, false, 0, 9), (1, false, 1, 0)], 50), (vec![UNFIT, NONE], 1), "one for nine");
        assert_eq!(of(&[(0, false, 0, 2), (1, false, 0, 2), (7, false, 1, 1)], 50).1, 7);
        // The backups are too few by themselves: still no primary is used, but all backups are.
        assert_eq!(of(&[(0, false, 0, 2), (1, false, 1, 2)], 50), (vec![UNFIT, NONE], 1));
        assert_eq!(of(&[(0, false, 0, 2), (1, false, 0, 2)], 50), (vec![NONE; 2], 0));
    }

    #[test]
    fn backups_join_primaries_that_are_too_few_and_no_others() {
        assert_eq!(of(&[(0, false, 2, 2), (1, false, 2, 0)], 50), (vec![UNFIT, NONE], 0));
        assert_eq!(of(&[(0, false, 1, 2), (1, false, 2, 0)], 50), (vec![UNFIT, NONE], 1));
        assert_eq!(of(&[(0, false, 1, 2), (1, false, 1, 2)], 50), (vec![NONE; 2], 1), "all of both");
        assert_eq!(of(&[(0, false, 1, 2), (1, false, 2, 0)], 0), (vec![UNFIT, NONE], 0));
    }

    #[test]
    fn another_zone_takes_over_where_none_of_the_own_is_fit() {
        assert_eq!(of(&[(0, true, 0, 3), (0, false, 1, 0)], 50), (vec![UNFIT, NONE], 0));
        assert_eq!(of(&[(0, true, 1, 3), (0, false, 1, 3)], 50), (vec![NONE; 2], 0));
        assert_eq!(of(&[(0, true, 0, 3), (0, false, 0, 3), (1, false, 1, 0)], 50).1, 1);
    }
}
