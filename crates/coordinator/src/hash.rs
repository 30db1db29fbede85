//! Which partition of an internal topic a key belongs to: Kafka's rule, so that its tools find the
//! same one.

/// Java's `String.hashCode`: over UTF-16 units, 32-bit wrap-around.
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// `abs(hash(key)) mod partitions`, where the absolute value of the smallest integer is 0.
/// `partitions` must be positive.
pub fn partition_for_key(key: &str, partitions: i32) -> i32 {
    debug_assert!(partitions > 0, "a topic has at least one partition");
    java_string_hash(key).checked_abs().unwrap_or(0) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(java_string_hash(""), 0);
        assert_eq!(
            java_string_hash("console-consumer"),
            "console-consumer"
                .bytes()
                .fold(0i32, |h, b| h.wrapping_mul(31).wrapping_add(b.into()))
        );
        assert_eq!(java_string_hash("hello"), 99_162_322);
        // A character outside the basic plane counts as its two UTF-16 units.
        assert_eq!(java_string_hash("\u{1F600}"), 0xD83D * 31 + 0xDE00);
    }

    #[test]
    fn the_smallest_hash_maps_to_partition_zero() {
        assert_eq!(java_string_hash("polygenelubricants"), i32::MIN);
        assert_eq!(partition_for_key("polygenelubricants", 50), 0);
        assert_eq!(partition_for_key("hello", 50), 22);
    }
}
