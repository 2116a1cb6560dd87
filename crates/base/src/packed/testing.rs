//! Changes records of a [`Packed`] list. Only tests do this: h2lab itself keeps what it measured as it is.

use std::ops::{Deref, DerefMut};

use super::{Pack, Packed};

impl<T: Pack<N>, const N: usize> Packed<T, N> {
    /// The records unpacked, so that they can be changed. They are packed again when this is dropped.
    pub fn edit(&mut self) -> Edit<'_, T, N> {
        Edit { records: self.iter().collect(), packed: self }
    }
}

/// See [`Packed::edit`].
#[derive(Debug)]
pub struct Edit<'a, T: Pack<N>, const N: usize> {
    records: Vec<T>,
    packed: &'a mut Packed<T, N>,
}

impl<T: Pack<N>, const N: usize> Deref for Edit<'_, T, N> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.records
    }
}

impl<T: Pack<N>, const N: usize> DerefMut for Edit<'_, T, N> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.records
    }
}

impl<T: Pack<N>, const N: usize> Drop for Edit<'_, T, N> {
    fn drop(&mut self) {
        *self.packed = self.records.drain(..).collect();
    }
}
