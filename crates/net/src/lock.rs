//! Mutexes that stay usable after a thread that held them has panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if another holder has panicked: for data that is valid between any two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
