//! Which log directory a partition is in: what the metadata says, held against what lies in the
//! directories.
//!
//! The metadata names the directory of each partition (KIP-858), so that a directory that is not
//! there takes its partitions offline instead of having them begin again elsewhere. Does not decide
//! where new partitions go: that is the controller's.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use tarn_log::{LogDir, LogError, Pace};
use tarn_metadata::{Image, TopicImage};
use tarn_wire::Uuid;
use tracing::error;

/// Ids below this are markers, not directories.
const RESERVED: u128 = 100;

/// A partition whose directory is to be noted in the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Topic.
    pub topic_id: Uuid,
    /// Partition index.
    pub partition: i32,
    /// The directory it is in, or is to be made in.
    pub directory: Uuid,
}

/// The directories of this broker.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    dirs: Vec<Arc<LogDir>>,
    /// Directories that should be there and are not.
    missing: Vec<Uuid>,
}

/// A directory's id, when it has one.
pub fn directory_id(dir: &LogDir) -> Option<Uuid> {
    dir.directory_id()?.parse().ok()
}

fn is_directory(id: &Uuid) -> bool {
    u128::from_be_bytes(id.0) >= RESERVED
}

impl std::ops::Deref for Directories {
    type Target = [Arc<LogDir>];

    fn deref(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }
}

impl Directories {
    pub(crate) fn new(dirs: Vec<Arc<LogDir>>, missing: Vec<Uuid>) -> Self {
        Directories { dirs, missing }
    }

    fn online(&self) -> impl Iterator<Item = &Arc<LogDir>> {
        self.dirs
            .iter()
            .filter(|dir| dir.state().offline_reason().is_none())
    }

    /// Ids of the directories that work.
    pub(crate) fn online_ids(&self) -> Vec<Uuid> {
        self.online().filter_map(|dir| directory_id(dir)).collect()
    }

    /// Working directories with the log of a partition, or with proof that it should be there.
    pub(crate) fn holders(&self, topic: &str, index: i32, id: &str) -> Vec<&Arc<LogDir>> {
        // A disk that does not answer is not asked: that would hold up what belongs to the others.
        let answers = |dir: &LogDir| dir.state().pace() != Pace::Stalled;
        self.online()
            .filter(|dir| {
                dir.get(topic, index).is_some()
                    || (answers(dir) && dir.holds(topic, index, Some(id)))
            })
            .collect()
    }

    /// The directory in which a partition's log is opened, or made.
    pub(crate) fn of(
        &self,
        topic: &str,
        index: i32,
        id: &str,
        assigned: Uuid,
    ) -> Result<&Arc<LogDir>, LogError> {
        let folder = format!("{topic}-{index}");
        let holders = self.holders(topic, index, id);
        let missing = |path: PathBuf, reason: String| Err(LogError::Missing { path, reason });
        if !is_directory(&assigned) {
            return match (holders.as_slice(), self.missing.first()) {
                ([one], _) => Ok(one),
                ([], Some(gone)) => missing(
                    PathBuf::from(folder),
                    format!("it may be in log directory {gone}, which is not there: mount it"),
                ),
                ([], None) => self.least_loaded(),
                (several, _) => missing(
                    PathBuf::from(folder),
                    format!(
                        "it is in several log directories ({}): move all but one away",
                        paths(several)
                    ),
                ),
            };
        }
        let Some(dir) = self
            .dirs
            .iter()
            .find(|dir| directory_id(dir) == Some(assigned))
        else {
            return missing(
                PathBuf::from(folder),
                format!(
                    "it is in log directory {assigned}, which is not there: mount it and name it in log.dirs, or delete the topic to give \
                     up what it held"
                ),
            );
        };
        if holders.is_empty() || holders.iter().any(|holder| Arc::ptr_eq(holder, dir)) {
            return Ok(dir);
        }
        let reason = format!(
            "it should be here, but is in {}: move it back while the broker is down",
            paths(&holders)
        );
        missing(dir.path().join(folder), reason)
    }

    /// For partitions without a directory in the metadata: that with the fewest logs.
    fn least_loaded(&self) -> Result<&Arc<LogDir>, LogError> {
        let chosen = self
            .online()
            .filter(|dir| dir.state().pace() != Pace::Stalled)
            .min_by_key(|dir| dir.open_count());
        chosen
            .or(self.dirs.first())
            .ok_or_else(|| LogError::Missing {
                path: PathBuf::new(),
                reason: "log.dirs names no usable directory".to_owned(),
            })
    }
}

fn paths(dirs: &[&Arc<LogDir>]) -> String {
    let paths: Vec<String> = dirs
        .iter()
        .map(|dir| dir.path().display().to_string())
        .collect();
    paths.join(", ")
}

/// A folder: in which directory, of which topic id.
type Folder = (usize, Option<String>);

/// The folders of each partition, by topic name and partition.
#[derive(Default)]
struct Found(HashMap<(String, i32), Vec<Folder>>);

impl Found {
    fn scan(dirs: &[Arc<LogDir>]) -> Result<Found, LogError> {
        let mut found = Found::default();
        for (at, dir) in dirs.iter().enumerate() {
            for one in dir.scan()? {
                let all = found.0.entry((one.topic, one.partition)).or_default();
                all.push((at, one.topic_id));
            }
        }
        Ok(found)
    }

    /// Directories with a folder of this very topic, or with one that does not say whose it is.
    fn holders(&self, topic: &TopicImage, index: i32) -> Vec<usize> {
        let id = topic.id.to_string();
        let all = self.0.get(&(topic.name.to_string(), index));
        let ours = |(_, other): &&Folder| other.as_ref().is_none_or(|other| *other == id);
        all.map(|all| all.iter().filter(ours).map(|(at, _)| *at).collect())
            .unwrap_or_default()
    }
}

/// Compares the metadata with what lies in `dirs` (all that are there), and gives what is to be
/// noted: partitions that have no directory in the metadata yet, and those that were moved by hand.
/// `missing` are directories that should be there.
pub fn locate(
    dirs: &[Arc<LogDir>],
    image: &Image,
    node_id: i32,
    missing: &[Uuid],
) -> Result<Vec<Located>, LogError> {
    let ids: Vec<Option<Uuid>> = dirs.iter().map(|dir| directory_id(dir)).collect();
    let found = Found::scan(dirs)?;
    let mut held = vec![0_usize; dirs.len()];
    let (mut located, mut unplaced) = (Vec::new(), Vec::new());
    for topic in image.topics().iter() {
        for (index, assigned) in assigned_here(topic, node_id) {
            let noted = ids.iter().position(|id| *id == Some(assigned));
            let here = place(topic, index, noted, &found.holders(topic, index));
            match here.or(noted) {
                Some(at) => held[at] += 1,
                None if is_directory(&assigned) || !missing.is_empty() => {}
                None => unplaced.push((topic, index)),
            }
            if let Some(directory) = here.and_then(|at| ids[at]) {
                located.push(Located {
                    topic_id: topic.id,
                    partition: index,
                    directory,
                });
            }
        }
    }
    for (topic, index) in unplaced {
        // Where a checkpoint names it, its folder is missed there rather than made elsewhere.
        let expected = dirs
            .iter()
            .position(|dir| dir.holds(&topic.name, index, None));
        let fewest = || (0..dirs.len()).min_by_key(|at| held[*at]);
        let Some(at) = expected.or_else(fewest) else {
            continue;
        };
        held[at] += 1;
        located.extend(ids[at].map(|directory| Located {
            topic_id: topic.id,
            partition: index,
            directory,
        }));
    }
    Ok(located)
}

/// The directory to note for a partition that is `noted` in one and lies in `holders`; `None` when
/// nothing is to be noted by what lies there.
fn place(topic: &TopicImage, index: i32, noted: Option<usize>, holders: &[usize]) -> Option<usize> {
    let right = noted.is_some_and(|noted| holders.contains(&noted));
    match holders {
        [one] if !right => Some(*one),
        [] | [_] => None,
        _ => {
            error!(topic = %topic.name, partition = index, right, "the partition lies in several log directories; used is the one that the metadata names, if any");
            None
        }
    }
}

/// Partitions of a topic on this broker, with their directories.
fn assigned_here(topic: &TopicImage, node_id: i32) -> impl Iterator<Item = (i32, Uuid)> {
    let here = move |(index, partition): (usize, &Arc<tarn_metadata::PartitionImage>)| {
        let at = partition.replicas.iter().position(|id| *id == node_id)?;
        let directory = partition.directories.get(at).copied().unwrap_or(Uuid::ZERO);
        Some((index as i32, directory))
    };
    topic.partitions.iter().enumerate().filter_map(here)
}

/// Directories that partitions of `node_id`, or its registration, name and that are not `present`;
/// with a few of the partitions in each.
pub fn missing_directories(
    image: &Image,
    node_id: i32,
    present: &[Uuid],
) -> Vec<(Uuid, Vec<String>)> {
    const NAMED_MAX: usize = 3;
    let mut missing: Vec<(Uuid, Vec<String>)> = Vec::new();
    let mut note = |id: Uuid, partition: Option<String>| {
        if !is_directory(&id) || present.contains(&id) {
            return;
        }
        let at = missing.iter().position(|(known, _)| *known == id);
        let at = at.unwrap_or_else(|| {
            missing.push((id, Vec::new()));
            missing.len() - 1
        });
        let named = &mut missing[at].1;
        named.extend(partition.filter(|_| named.len() < NAMED_MAX));
    };
    if let Some(broker) = image.broker(node_id) {
        broker.log_dirs.iter().for_each(|id| note(*id, None));
    }
    for topic in image.topics().iter() {
        for (index, directory) in assigned_here(topic, node_id) {
            if is_directory(&directory) && !present.contains(&directory) {
                note(directory, Some(format!("{}-{index}", topic.name)));
            }
        }
    }
    missing
}
