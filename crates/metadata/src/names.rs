//! Names of topics and partitions: newtypes, and the rules a topic name has to keep.

use std::fmt;

use tarn_wire::{Str, Uuid};

/// Longest topic name, in bytes.
const NAME_LEN_MAX: usize = 249;

/// A partition by topic name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// Topic name.
    pub topic: Str,
    /// Partition number, 0 or more.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition by topic name.
    pub fn new(topic: impl Into<Str>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A partition by topic id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicIdPartition {
    /// Topic id, never zero.
    pub topic_id: Uuid,
    /// Partition number, 0 or more.
    pub partition: i32,
}

impl TopicIdPartition {
    /// A partition by topic id.
    pub fn new(topic_id: Uuid, partition: i32) -> Self {
        Self {
            topic_id,
            partition,
        }
    }
}

impl fmt::Display for TopicIdPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic_id, self.partition)
    }
}

/// Why a name cannot be a topic's (or a mirror's: same rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameProblem {
    /// No characters.
    #[error("name is empty")]
    Empty,
    /// `.` or `..`, which are directories.
    #[error("name must not be . or ..")]
    Dots,
    /// Longer than 249 characters.
    #[error("name is longer than 249 characters")]
    TooLong,
    /// Something else than letters, digits, `.`, `_` and `-`.
    #[error("name may hold only ASCII letters, digits, '.', '_' and '-'")]
    BadCharacter,
}

/// Checks a topic (or mirror) name: 1 to 249 characters of `[A-Za-z0-9._-]`, neither `.` nor `..`.
pub fn check_topic_name(name: &str) -> Result<(), TopicNameProblem> {
    match name {
        "" => Err(TopicNameProblem::Empty),
        "." | ".." => Err(TopicNameProblem::Dots),
        _ if name.len() > NAME_LEN_MAX => Err(TopicNameProblem::TooLong),
        _ if !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) =>
        {
            Err(TopicNameProblem::BadCharacter)
        }
        _ => Ok(()),
    }
}

/// True for two names that differ only in dots and underscores (`a.b` and `a_b`): metric names
/// replace dots, so only one of them may exist.
pub fn names_collide(a: &[u8], b: &[u8]) -> bool {
    let fold = |byte: u8| if byte == b'.' { b'_' } else { byte };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| fold(*a) == fold(*b))
}

/// Two names with the same key collide in the sense of [`names_collide`]; for maps of claimed
/// names.
pub fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_kafka_rules() {
        assert_eq!(check_topic_name("orders-2.x_y"), Ok(()));
        assert_eq!(check_topic_name(&"a".repeat(249)), Ok(()));
        assert_eq!(
            check_topic_name(&"a".repeat(250)),
            Err(TopicNameProblem::TooLong)
        );
        assert_eq!(check_topic_name(".."), Err(TopicNameProblem::Dots));
        assert_eq!(check_topic_name(""), Err(TopicNameProblem::Empty));
        assert_eq!(
            check_topic_name("../x"),
            Err(TopicNameProblem::BadCharacter)
        );
        assert_eq!(
            check_topic_name("tëst"),
            Err(TopicNameProblem::BadCharacter)
        );
    }
}
