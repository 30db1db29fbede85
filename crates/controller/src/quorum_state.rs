//! The `quorum-state` file: what this node must remember of elections. JSON in the form Kafka's
//! static quorums use (data version 0).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tarn_raft::{Election, NodeId};

use crate::{ControllerError, atomic_file};

/// Largest file that is read; a real one has a few hundred bytes.
const SIZE_MAX: u64 = 1 << 20;

/// The file in a metadata log's directory.
#[derive(Clone, Debug)]
pub(crate) struct QuorumStateFile {
    path: PathBuf,
}

impl QuorumStateFile {
    /// The file of the log in `log_dir`.
    pub(crate) fn new(log_dir: &Path) -> Self {
        Self {
            path: log_dir.join("quorum-state"),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is stored; `None` if there is no file. A file that does not parse is an error: it may
    /// hold a vote.
    pub(crate) fn read(&self) -> Result<Option<Election>, ControllerError> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ControllerError::file("read", &self.path, error)),
            Ok(metadata) if metadata.len() > SIZE_MAX => return Err(self.bad("it is too large")),
            Ok(_) => {}
        }
        let text = fs::read(&self.path)
            .map_err(|error| ControllerError::file("read", &self.path, error))?;
        let value: Value =
            serde_json::from_slice(&text).map_err(|error| self.bad(&error.to_string()))?;
        let number = |name: &str| {
            value
                .get(name)
                .and_then(Value::as_i64)
                .and_then(|n| i32::try_from(n).ok())
        };
        let required =
            |name: &str| number(name).ok_or_else(|| self.bad(&format!("it has no usable {name}")));
        let version = required("data_version")?;
        if !(0..=1).contains(&version) {
            return Err(self.bad(&format!("data version {version} is not known")));
        }
        let node = |id: i32| (id >= 0).then_some(NodeId(id));
        let epoch = required("leaderEpoch")?;
        if epoch < 0 {
            return Err(self.bad("its epoch is negative"));
        }
        Ok(Some(Election {
            epoch,
            leader: node(required("leaderId")?),
            voted: node(required("votedId")?),
        }))
    }

    /// Stores this state; on return it is on disk.
    pub(crate) fn write(&self, election: &Election, voters: &[i32]) -> Result<(), ControllerError> {
        let id = |node: Option<NodeId>| node.map_or(-1, |node| node.0);
        let voters: Vec<Value> = voters.iter().map(|id| json!({ "voterId": id })).collect();
        let value = json!({
            "clusterId": "",
            "leaderId": id(election.leader),
            "leaderEpoch": election.epoch,
            "votedId": id(election.voted),
            "appliedOffset": 0,
            "currentVoters": voters,
            "data_version": 0,
        });
        atomic_file::replace(&self.path, value.to_string().as_bytes())
    }

    /// What an operator of a quorum of one can do without a copy: its only content is this node's
    /// own vote, and a new epoch is above it.
    pub(crate) fn remedy(epoch: i32) -> String {
        format!(
            "restore it from a copy, or, if this node is the only voter, write \
             {{\"leaderId\":-1,\"leaderEpoch\":{epoch},\"votedId\":-1,\"data_version\":0}} into it"
        )
    }

    fn bad(&self, what: &str) -> ControllerError {
        ControllerError::BadFile {
            path: self.path.clone(),
            reason: format!("the election state cannot be used: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = QuorumStateFile::new(dir.path());
        assert_eq!(file.read().unwrap(), None);
        let election = Election {
            epoch: 7,
            voted: Some(NodeId(3)),
            leader: None,
        };
        file.write(&election, &[1, 2, 3]).unwrap();
        assert_eq!(file.read().unwrap(), Some(election));
    }

    #[test]
    fn a_half_written_file_is_an_error_not_a_fresh_start() {
        let dir = tempfile::tempdir().unwrap();
        let file = QuorumStateFile::new(dir.path());
        file.write(&Election::default(), &[1]).unwrap();
        let path = dir.path().join("quorum-state");
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(file.read().is_err(), "cut at {cut}");
        }
    }
}
