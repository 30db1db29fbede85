//! The refresh of each mirror from its source (docs/mirroring.md §5.1): cluster id, growth,
//! deletion, re-creation, wanted topics, patterns, topic configs, epochs.
//!
//! Every mirror has its own task, so a dead source stalls no other mirror; the task ends with its
//! mirror. Topics whose wish is PAUSED or STOPPED are never touched. What is decided is pure
//! ([`plan`]); nothing destructive follows from an absence.

pub mod ask;
mod configs;
mod discovery;
mod kicks;
mod members;
pub mod plan;
pub mod problems;
mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_metadata::Image;
use tarn_wire::Str;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::MirrorConfig;
use crate::lifecycle::{LifeCycle, Tools};
use crate::seam::{Source, SourceSettings};
use crate::survive::survive;

use self::kicks::Kicks;
use self::problems::Problems;

/// What the refresh of one mirror knows, for describe. Nothing in it decides anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Why the source cannot be asked.
    pub error: Option<Trouble>,
    /// Wanted topics: partitions at the source if known, and why they are not there yet.
    pub wanted: BTreeMap<Str, WantedStatus>,
    /// What single steps or topics met.
    pub problems: Problems,
}

/// Why a source cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The reason.
    pub text: String,
    /// Since when, epoch ms.
    pub since_ms: i64,
    logged_ms: i64,
}

/// A wanted topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedStatus {
    /// Partitions at the source.
    pub partitions: Option<i32>,
    /// Why it has not been created; `None` = it will be at the next refresh.
    pub error: Option<String>,
}

/// One mirror's task and what it works with.
#[derive(Clone)]
struct Running {
    settings: SourceSettings,
    source: Arc<dyn Source>,
    kicks: Arc<Kicks>,
    /// As last applied: whatever an operator changes in it shows at once.
    config: MirrorConfig,
    cancel: CancellationToken,
    status: Arc<Mutex<MirrorStatus>>,
    /// Newest wish among its members: a newer one means "refresh at once".
    newest_wish: i64,
}

/// Runs the refresh tasks.
pub struct Refresher {
    tools: Tools,
    life: Arc<LifeCycle>,
    mirrors: Mutex<BTreeMap<Str, Running>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Refresher {
    /// A refresher without mirrors.
    pub fn new(tools: Tools, life: Arc<LifeCycle>) -> Arc<Refresher> {
        let refresher = Arc::new(Refresher {
            tools,
            life: life.clone(),
            mirrors: Mutex::default(),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
        });
        let weak = Arc::downgrade(&refresher);
        life.set_refresh_hook(Arc::new(move |mirror: &Str, topic: &Str| {
            if let Some(refresher) = weak.upgrade()
                && let Some(running) = refresher.mirrors.lock().get(mirror)
            {
                running.kicks.topic(topic);
            }
        }));
        refresher
    }

    /// Brings the tasks in line with the mirrors of the image. Contacts nobody.
    pub fn apply(self: &Arc<Self>, image: &Image) {
        let mut gone = Vec::new();
        let mut mirrors = self.mirrors.lock();
        mirrors.retain(|name, running| {
            let stays = image.mirror(name).is_some_and(|c| !c.is_empty());
            if !stays {
                running.cancel.cancel();
                gone.push(name.clone());
            }
            stays
        });
        for (name, _) in image.mirrors() {
            let config = MirrorConfig::of(image, name, &self.tools.settings);
            let settings = config.source_settings(name, &self.tools.settings);
            let newest_wish = image
                .members_of(name)
                .map(|(_, m)| m.change_offset)
                .max()
                .unwrap_or(-1);
            match mirrors.get_mut(name) {
                Some(running) => {
                    if running.config != config {
                        running.config = config;
                        running.kicks.everything();
                    }
                    if running.settings != settings {
                        running.source = self.tools.data.configure(settings.clone());
                        running.settings = settings;
                    }
                    if newest_wish > running.newest_wish {
                        running.newest_wish = newest_wish;
                        running.kicks.everything();
                    }
                }
                None => {
                    let running = Running {
                        source: self.tools.data.configure(settings.clone()),
                        settings,
                        kicks: Arc::default(),
                        config,
                        cancel: self.cancel.child_token(),
                        status: Arc::default(),
                        newest_wish,
                    };
                    let (refresher, mirror, task) = (self.clone(), name.clone(), running.clone());
                    let cancel = running.cancel.clone();
                    let refreshing = survive("the refresh of a mirror", cancel, move || {
                        refresher.clone().run(mirror.clone(), task.clone())
                    });
                    self.tasks.spawn(refreshing);
                    mirrors.insert(name.clone(), running);
                }
            }
        }
        drop(mirrors);
        for name in gone {
            // Called here, not in the task: a mirror of this name that follows at once must find it
            // gone.
            let ended = self.tools.data.forget_mirror(name);
            self.tasks.spawn(ended);
        }
    }

    /// Refreshes a mirror soon instead of at the next interval.
    pub fn kick(&self, mirror: &str) {
        if let Some(running) = self.mirrors.lock().get(mirror) {
            running.kicks.everything();
        }
    }

    /// The source of a mirror; `None` until the image with it was applied.
    pub fn source(&self, mirror: &str) -> Option<Arc<dyn Source>> {
        self.mirrors.lock().get(mirror).map(|r| r.source.clone())
    }

    /// What the refresh of a mirror knows.
    pub fn status(&self, mirror: &str) -> MirrorStatus {
        let status = self.mirrors.lock().get(mirror).map(|r| r.status.clone());
        status.map(|s| s.lock().clone()).unwrap_or_default()
    }

    /// Ends every task.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Text of a mirror whose source answers with another cluster id than the stored one.
pub(crate) fn wrong_cluster_text(stored: &str, found: &str) -> String {
    format!(
        "the source is another cluster: its id is {found}, this mirror belongs to {stored}; correct bootstrap.servers and add the topics again"
    )
}
