//! Gives other tasks of a worker their turn in the middle of a long loop.

/// Elements after which a loop lets others run: well below a millisecond of the usual look-ups.
const ELEMENTS_PER_TURN: usize = 256;

/// Counts the elements of a loop.
#[derive(Debug, Default)]
pub(crate) struct Turn(usize);

impl Turn {
    /// Counts `elements` more, and yields when it is the turn of others.
    pub(crate) async fn spend(&mut self, elements: usize) {
        self.0 += elements;
        if self.0 >= ELEMENTS_PER_TURN {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}
