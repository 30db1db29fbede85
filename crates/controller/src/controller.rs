//! The handle other rooms hold: read the image, follow it, and have decisions made.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tarn_metadata::{Delta, Image, Record};
use tarn_raft::Status;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::event_loop::{Command, Decision, EventLoop};
use crate::subscription::Subscribers;
use crate::{ControllerError, Ctx, Settings, Subscription};

/// Decisions that may wait at once; further callers wait before they queue.
const QUEUE_MAX: usize = 4_096;

/// What the event loop and all handles share.
pub(crate) struct Shared {
    image: ArcSwap<Image>,
    subscribers: Subscribers,
    /// Held while an image is published or a subscriber added, so that nobody misses one or gets
    /// one twice.
    publishing: Mutex<()>,
    halted: watch::Sender<Option<Arc<str>>>,
}

impl Shared {
    fn new() -> Self {
        Self {
            image: ArcSwap::default(),
            subscribers: Subscribers::default(),
            publishing: Mutex::new(()),
            halted: watch::Sender::new(None),
        }
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        self.image.load_full()
    }

    pub(crate) fn publish(&self, image: Image, delta: &Delta) {
        let _publishing = self.publishing.lock();
        let image = Arc::new(image);
        self.image.store(image.clone());
        self.subscribers.publish(&image, delta);
    }

    pub(crate) fn halt(&self, error: &ControllerError) {
        self.halted.send_if_modified(|halted| {
            let first = halted.is_none();
            halted.get_or_insert_with(|| error.to_string().into());
            first
        });
    }

    pub(crate) fn halted(&self) -> Option<ControllerError> {
        self.halted.borrow().clone().map(ControllerError::Halted)
    }
}

/// Says so when the event loop ends in another way than by being told to (a panic in a decision).
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.halt(&ControllerError::Halted(
                "a decision panicked, see the log".into(),
            ));
        }
        self.0.subscribers.close();
    }
}

/// Handle to the controller of this node. Cheap to clone.
#[derive(Clone)]
pub struct Controller {
    pub(crate) settings: Arc<Settings>,
    shared: Arc<Shared>,
    commands: Sender<Command>,
    queue: Arc<Semaphore>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("node_id", &self.settings.node_id)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// Opens the metadata log, takes leadership of the quorum of one, replays what is there (a new
    /// cluster gets its first records), and starts the event loop. Errors: what is on disk cannot
    /// be used, with a sentence that says why.
    pub async fn start(settings: Settings) -> Result<Self, ControllerError> {
        let opened = tokio::task::spawn_blocking(move || Self::start_blocking(settings)).await;
        opened.unwrap_or_else(|panic| Err(ControllerError::Halted(panic.to_string().into())))
    }

    /// [`Controller::start`] for threads that may block.
    pub fn start_blocking(settings: Settings) -> Result<Self, ControllerError> {
        let shared = Arc::new(Shared::new());
        let event_loop = EventLoop::open(settings.clone(), shared.clone())?;
        shared.publish(event_loop.image().clone(), &Delta::default());
        let (commands, queue) = channel();
        let guard = EndGuard(shared.clone());
        let spawned = std::thread::Builder::new()
            .name("controller".to_owned())
            .spawn(move || {
                let _guard = guard;
                event_loop.run(&queue);
            });
        spawned.map_err(|error| {
            ControllerError::file("start the thread of", &settings.metadata_dir, error)
        })?;
        Ok(Self {
            settings: Arc::new(settings),
            shared,
            commands,
            queue: Arc::new(Semaphore::new(QUEUE_MAX)),
        })
    }

    /// The newest committed image.
    pub fn image(&self) -> Arc<Image> {
        self.shared.image()
    }

    /// Follows the image. The first item is the image as it is with everything in its delta.
    pub fn subscribe(&self) -> Subscription {
        let _publishing = self.shared.publishing.lock();
        self.shared.subscribers.add(&self.shared.image.load_full())
    }

    /// Has one decision made: `decide` runs alone in the event loop, sees every decision before it,
    /// and gives records and an answer. The records are written, synced and applied all together or
    /// not at all; the answer (or the refusal) comes back after that. It must not block.
    pub async fn submit<T, E, F>(&self, name: &'static str, decide: F) -> Result<T, E>
    where
        F: FnOnce(&Image, &mut Ctx) -> Result<(Vec<Record>, T), E> + Send + 'static,
        T: Send + 'static,
        E: From<ControllerError> + Send + 'static,
    {
        let Ok(_permit) = self.queue.acquire().await else {
            return Err(ControllerError::ShutDown.into());
        };
        let (reply, answer) = oneshot::channel();
        let queued = Queued {
            name,
            decide: Some(decide),
            outcome: None,
            reply,
        };
        if self
            .commands
            .send(Command::Decide(Box::new(queued)))
            .is_err()
        {
            return Err(self.gone().into());
        }
        answer.await.unwrap_or_else(|_| Err(self.gone().into()))
    }

    /// How the quorum is, as this node sees it.
    pub async fn quorum_status(&self) -> Result<Status, ControllerError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command::Describe(reply))
            .map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())
    }

    /// Takes a snapshot now.
    pub async fn snapshot(&self) -> Result<(), ControllerError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command::Snapshot(reply))
            .map_err(|_| self.gone())?;
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Why the controller halted, if it did.
    pub fn halted(&self) -> Option<ControllerError> {
        self.shared.halted()
    }

    /// Waits until the controller halts; a broker that sees this has to stop.
    pub async fn wait_halted(&self) -> ControllerError {
        let mut halted = self.shared.halted.subscribe();
        match halted.wait_for(Option::is_some).await {
            Ok(reason) => {
                ControllerError::Halted(reason.clone().unwrap_or_else(|| "unknown".into()))
            }
            Err(_) => ControllerError::ShutDown,
        }
    }

    /// Finishes what is queued, takes a snapshot, closes the log. Later calls answer
    /// [`ControllerError::ShutDown`].
    pub async fn shutdown(&self) -> Result<(), ControllerError> {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::ShutDown(reply)).is_err() {
            return self.halted().map_or(Ok(()), Err);
        }
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    fn gone(&self) -> ControllerError {
        self.halted().unwrap_or(ControllerError::ShutDown)
    }
}

/// A decision with its types.
struct Queued<F, T, E> {
    name: &'static str,
    decide: Option<F>,
    outcome: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> Decision for Queued<F, T, E>
where
    F: FnOnce(&Image, &mut Ctx) -> Result<(Vec<Record>, T), E> + Send,
    T: Send,
    E: From<ControllerError> + Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn decide(&mut self, image: &Image, ctx: &mut Ctx) -> Vec<Record> {
        let Some(decide) = self.decide.take() else {
            return Vec::new();
        };
        match decide(image, ctx) {
            Ok((records, answer)) => {
                self.outcome = Some(Ok(answer));
                records
            }
            Err(refusal) => {
                self.outcome = Some(Err(refusal));
                Vec::new()
            }
        }
    }

    fn finish(self: Box<Self>, committed: Result<(), ControllerError>) {
        let outcome = match committed {
            Err(error) => Err(E::from(error)),
            Ok(()) => self
                .outcome
                .unwrap_or_else(|| Err(E::from(ControllerError::ShutDown))),
        };
        // A caller that went away does not undo what was committed.
        drop(self.reply.send(outcome));
    }
}
