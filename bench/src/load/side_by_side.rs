//! Runs the threads of a load side by side. What each does is the matter of `produce` and
//! `consume`.

use anyhow::{Result, anyhow};

/// Runs `step` for each of `parts` on a thread of its own and gives the results in their order. As
/// soon as one has failed, `fail` is called, which tells the others to end.
///
/// # Errors
/// The error of the first part, in their order, that failed or panicked.
pub(super) fn run<P: Send, T: Send>(
    parts: impl IntoIterator<Item = P>,
    step: impl Fn(P) -> Result<T> + Sync,
    fail: impl Fn() + Sync,
) -> Result<Vec<T>> {
    let (step, fail) = (&step, &fail);
    std::thread::scope(|scope| {
        let running: Vec<_> = parts
            .into_iter()
            .map(|part| {
                scope.spawn(move || {
                    let result = step(part);
                    if result.is_err() {
                        fail();
                    }
                    result
                })
            })
            .collect();
        let results: Vec<Result<T>> = running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a thread of the generator panicked")))
            })
            .collect();
        results.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn results_keep_the_order_of_the_parts() {
        let all = run([3, 1, 2], |n| Ok(n * 10), || ()).unwrap();
        assert_eq!(all, [30, 10, 20]);
    }

    #[test]
    fn whoever_fails_first_ends_the_others() {
        let stop = AtomicBool::new(false);
        let step = |fails: bool| -> Result<()> {
            if fails {
                return Err(anyhow!("refused"));
            }
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(())
        };
        let result = run([false, true], step, || stop.store(true, Ordering::Relaxed));
        assert_eq!(result.unwrap_err().to_string(), "refused");
    }
}
