//! Where a key of the mirror coordinator lives (docs/mirroring.md §1.3), and the rules for mirror
//! names. Pure.

use tarn_wire::Uuid;

use crate::dialect::MirrorError;

/// Name of the internal topic.
pub const STATE_TOPIC: &str = "__mirror_state";

/// Partitions of the internal topic when this broker creates it. Afterwards the topic itself says
/// how many there are.
pub const STATE_TOPIC_PARTITIONS: i32 = 50;

/// Longest mirror name, in bytes (topic-name rules).
pub const MIRROR_NAME_LEN_MAX: usize = 249;

/// Java's `String.hashCode`: over UTF-16 units, wrapping at 32 bits.
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |h, unit| {
        h.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// Non-negative remainder the way the prototype takes it: the absolute value, with `i32::MIN`
/// counted as 0.
fn bucket(hash: i32, partitions: i32) -> i32 {
    hash.checked_abs().unwrap_or(0) % partitions.max(1)
}

/// The `__mirror_state` partition of one mirror partition; `partitions` is the topic's real count.
pub fn coordinator_partition(mirror: &str, topic_id: Uuid, partition: i32, partitions: i32) -> i32 {
    bucket(
        java_string_hash(&format!("{mirror}:{topic_id}:{partition}")),
        partitions,
    )
}

/// The `__mirror_state` partition of a mirror name (its name coordinator).
pub fn name_coordinator_partition(mirror: &str, partitions: i32) -> i32 {
    bucket(java_string_hash(mirror), partitions)
}

/// Checks a name for a new mirror: topic-name rules, and no suffix the early generation gives a
/// meaning to.
pub fn validate_mirror_name(name: &str) -> Result<(), MirrorError> {
    let refuse = |text: String| Err(MirrorError::InvalidName(text));
    if name.is_empty() {
        return refuse("Mirror name must not be empty".into());
    }
    if name == "." || name == ".." {
        return refuse("Mirror name must not be '.' or '..'".into());
    }
    if name.len() > MIRROR_NAME_LEN_MAX {
        return refuse(format!(
            "Mirror name must not be longer than {MIRROR_NAME_LEN_MAX} characters"
        ));
    }
    if !name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        return refuse(format!(
            "Mirror name '{name}' may hold only letters, digits, '.', '_' and '-'"
        ));
    }
    if name.ends_with(".removed") || name.ends_with(".paused") {
        return refuse("Mirror name must not end with '.removed' or '.paused'".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_javas() {
        // "polygenelubricants" is the well-known string whose Java hash is Integer.MIN_VALUE.
        assert_eq!(java_string_hash("polygenelubricants"), i32::MIN);
        assert_eq!(
            java_string_hash("my-mirror"),
            "my-mirror"
                .bytes()
                .fold(0_i32, |h, b| h.wrapping_mul(31).wrapping_add(b.into()))
        );
        assert_eq!(java_string_hash("hello"), 99_162_322);
        assert_eq!(name_coordinator_partition("polygenelubricants", 50), 0);
        assert_eq!(name_coordinator_partition("hello", 50), 22);
    }

    #[test]
    fn names_follow_topic_rules() {
        for good in ["a", "my-mirror", "A.b_c-9", &"x".repeat(249)] {
            assert!(validate_mirror_name(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a b",
            "ü",
            "x.removed",
            "x.paused",
            &"x".repeat(250),
        ] {
            assert!(validate_mirror_name(bad).is_err(), "{bad}");
        }
    }
}
