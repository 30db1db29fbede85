//! Tasks that run as long as their owner. A panic in one is a defect of ours: it is told in the
//! log, and the task begins again.

use std::future::Future;
use std::time::Duration;

use tarn_client::Backoff;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// First and longest pause before a task that panicked begins again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Runs what `begin` gives, again after each panic, until it ends by itself or its owner is
/// cancelled.
pub(crate) async fn survive<F>(
    what: &'static str,
    cancel: CancellationToken,
    mut begin: impl FnMut() -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut pause = Backoff::new(PAUSE.0, PAUSE.1);
    loop {
        match tokio::spawn(begin()).await {
            Err(e) if e.is_panic() && !cancel.is_cancelled() => {
                error!("{what} panicked, which is a defect of this broker; it is started again");
                tokio::time::sleep(pause.next_wait()).await;
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Nothing that runs for ever is over without a word.
    #[tokio::test]
    async fn what_panics_begins_again_and_what_ends_does_not() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let begin = move || {
            let run = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(run >= 2, "a panic that a test asked for") }
        };
        survive("the work of a test", CancellationToken::new(), begin).await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
