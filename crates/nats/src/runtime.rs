//! The thread on which the connection lives.

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::thread::{self, ThreadId};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::NatsError;

/// A runtime with one thread of its own. Dropping this ends both, without waiting for them: it may be dropped on that
/// thread.
pub(crate) struct Runtime {
    handle: Handle,
    thread: ThreadId,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Runtime {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("nats".to_owned()).spawn(move || {
            // An error means that the other end was dropped, which is the sign.
            let _: Result<(), _> = runtime.block_on(stopped);
            // A resolver of names may still be at work; nobody waits for it.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, thread: thread.thread().id(), _stop: stop })
    }

    /// Runs `future` on that thread and waits for its result. It must end by a deadline of its own.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, NatsError>> + Send + 'static,
    ) -> Result<T, NatsError> {
        if thread::current().id() == self.thread {
            return Err(NatsError::invalid(
                "a call that waits",
                "it is made on the thread that it waits for",
            ));
        }
        let (sender, result) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // Nobody waits any more: the thread that did has panicked.
            let _: Result<(), _> = sender.send(future.await);
        });
        // The task, and the sender with it, is dropped when the runtime ends.
        result.recv().map_err(|_| NatsError::Gone)?
    }

    /// Runs `future` on that thread until it or the thread ends.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_result_comes_back_from_the_thread() {
        let runtime = Runtime::start().unwrap();
        let other = runtime.wait(async { Ok(thread::current().id()) }).unwrap();
        assert_ne!(other, thread::current().id());
    }

    #[test]
    fn waiting_on_the_thread_itself_is_an_error_and_no_deadlock() {
        let runtime = Arc::new(Runtime::start().unwrap());
        let inner = Arc::clone(&runtime);
        let result = runtime.wait(async move { Ok(inner.wait(async { Ok(()) }).is_err()) });
        assert!(result.unwrap());
    }

    #[test]
    fn a_caller_gets_an_error_when_its_task_panics() {
        let runtime = Runtime::start().unwrap();
        let die = |is_dying: bool| async move {
            assert!(!is_dying, "expected by this test");
            Ok(())
        };
        let result = runtime.wait(die(true));
        assert!(matches!(result, Err(NatsError::Gone)));
    }
}
