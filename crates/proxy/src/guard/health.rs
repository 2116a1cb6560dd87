//! Whether an instance says that it is well: the answers to requests that the proxy makes itself, one after the other.

/// What is known of an instance. It counts as well until it has failed often enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    is_well: bool,
    /// How many checks in a row said otherwise.
    against: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self { is_well: true, against: 0 }
    }
}

impl Health {
    /// Whether it is well.
    pub const fn is_well(&self) -> bool {
        self.is_well
    }

    /// A check has ended. After `unhealthy` failures in a row it is not well, after `healthy` successes it is again. Whether that changed.
    #[must_use]
    pub fn checked(&mut self, succeeded: bool, healthy: u32, unhealthy: u32) -> bool {
        if succeeded == self.is_well {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let needed = if succeeded { healthy } else { unhealthy };
        if self.against < needed {
            return false;
        }
        *self = Self { is_well: succeeded, against: 0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_checks_in_a_row_are_needed_to_change_it() {
        let mut health = Health::default();
        let mut check = |succeeded| {
            let changed = health.checked(succeeded, 2, 3);
            (changed, health.is_well())
        };
        assert_eq!([check(false), check(false), check(true)], [(false, true); 3]);
        assert_eq!([check(false), check(false), check(false)], [(false, true), (false, true), (true, false)]);
        assert_eq!([check(true), check(false), check(true)], [(false, false); 3]);
        assert_eq!(check(true), (true, true));
    }
}
