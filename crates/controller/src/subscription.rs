//! How rooms follow the image: each subscriber has one slot that holds the newest image and
//! everything that changed since it last looked.
//!
//! A slow subscriber costs one image and one merged delta, never a queue.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tarn_metadata::{Delta, Image};
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Slot {
    pending: Mutex<Pending>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    next: Option<(Arc<Image>, Delta)>,
    closed: bool,
}

/// A follower of the image. The first item is the image as it is, with a delta in which everything
/// is new.
#[derive(Debug)]
pub struct Subscription {
    slot: Arc<Slot>,
}

impl Subscription {
    /// The next image and what changed since the one before; `None` once the controller is gone.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<(Arc<Image>, Arc<Delta>)> {
        loop {
            let changed = self.slot.changed.notified();
            {
                let mut pending = self.slot.pending.lock();
                if let Some((image, delta)) = pending.next.take() {
                    return Some((image, Arc::new(delta)));
                }
                if pending.closed {
                    return None;
                }
            }
            changed.await;
        }
    }
}

/// The controller's side.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    slots: Mutex<Vec<Weak<Slot>>>,
}

impl Subscribers {
    /// A new subscriber that starts from `image`. The caller holds off [`Subscribers::publish`]
    /// meanwhile (both run under the image lock).
    pub(crate) fn add(&self, image: &Arc<Image>) -> Subscription {
        let next = Some((image.clone(), Delta::everything(image)));
        let slot = Arc::new(Slot {
            pending: Mutex::new(Pending {
                next,
                closed: false,
            }),
            changed: Notify::new(),
        });
        self.slots.lock().push(Arc::downgrade(&slot));
        Subscription { slot }
    }

    /// Hands an image to everyone.
    pub(crate) fn publish(&self, image: &Arc<Image>, delta: &Delta) {
        self.each(|pending| match &mut pending.next {
            Some((held, merged)) => {
                *held = image.clone();
                merged.merge(delta.clone());
            }
            None => pending.next = Some((image.clone(), delta.clone())),
        });
    }

    /// Ends every subscription after what it still holds.
    pub(crate) fn close(&self) {
        self.each(|pending| pending.closed = true);
    }

    fn each(&self, act: impl Fn(&mut Pending)) {
        self.slots.lock().retain(|slot| {
            let Some(slot) = slot.upgrade() else {
                return false;
            };
            act(&mut slot.pending.lock());
            // One permit is kept for a subscriber that is not waiting just now.
            slot.changed.notify_one();
            true
        });
    }
}
