//! The words of errors that came from a cluster: exception names as the Java tools print them, and
//! texts for codes without one. Pure.

use tarn_wire::{ErrorCode, Str};

/// Which numbers and bodies the cluster uses for mirror calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// April 2026: the seed's names.
    Early,
    /// July 2026.
    Late,
}

/// Beginnings of texts that stand alone, without the name of an exception in front.
const PLAIN: [&str; 4] = [
    "Cannot reach the source of mirror '",
    "No topics matching pattern '",
    "Invalid topic pattern '",
    "No matching topics",
];

/// First code whose meaning depends on the dialect.
const FIRST_MIRROR_CODE: i16 = 134;

/// The line for an error code with the server's own text.
pub(crate) fn line(dialect: Dialect, code: i16, text: Option<&Str>) -> String {
    let text = text.map(|t| t.as_str()).filter(|t| !t.is_empty());
    match text {
        Some(text) if PLAIN.iter().any(|p| text.starts_with(p)) || is_unknown_mirror(text) => {
            text.to_owned()
        }
        _ => format!(
            "org.apache.kafka.common.errors.{}: {}",
            exception(dialect, code),
            text.unwrap_or_else(|| meaning(dialect, code))
        ),
    }
}

/// The text of one topic's error: the server's, or the meaning of the code.
pub(crate) fn topic_text(dialect: Dialect, code: i16, text: Option<&Str>) -> String {
    text.map(|t| t.as_str())
        .filter(|t| !t.is_empty())
        .unwrap_or_else(|| meaning(dialect, code))
        .to_owned()
}

/// The text for a mirror that does not exist.
pub(crate) fn unknown_mirror(mirror: &str) -> String {
    format!("Mirror '{mirror}' not found")
}

fn is_unknown_mirror(text: &str) -> bool {
    text.starts_with("Mirror '") && text.ends_with("' not found")
}

/// Whether a code says that the mirror does not exist.
pub(crate) fn is_unknown_mirror_code(dialect: Dialect, code: i16) -> bool {
    code == if dialect == Dialect::Early { 136 } else { 137 }
}

/// Names and meanings of 134 and up, [early] then [late].
const EARLY: [(&str, &str); 10] = [
    ("ReadOnlyTopicException", "The topic is read-only."),
    (
        "InvalidMirrorNameException",
        "The mirror name does not meet the naming rules.",
    ),
    ("UnknownMirrorException", "The mirror does not exist."),
    (
        "TopicAlreadyInMirrorException",
        "The topic is already assigned to a mirror.",
    ),
    (
        "TopicNotInMirrorException",
        "The topic does not belong to the specified mirror.",
    ),
    (
        "MirrorTopicAlreadyPausedException",
        "The mirror topic is already paused.",
    ),
    (
        "MirrorTopicNotPausedException",
        "The mirror topic is not paused.",
    ),
    (
        "MirrorTopicBeingRemovedException",
        "The mirror topic is being removed.",
    ),
    (
        "MirrorNotEmptyException",
        "The mirror still has active or non-removed topics.",
    ),
    (
        "MirrorAuthorizationException",
        "Mirror authorization failed.",
    ),
];
const LATE: [(&str, &str); 13] = [
    ("ReadOnlyTopicException", "The topic is read-only."),
    (
        "UnknownServerException",
        "The server reported an unknown error.",
    ),
    (
        "ClusterMirrorAlreadyExistsException",
        "The cluster mirror already exists.",
    ),
    (
        "UnknownClusterMirrorException",
        "The cluster mirror does not exist.",
    ),
    (
        "TopicAlreadyInClusterMirrorException",
        "The topic is already assigned to a cluster mirror.",
    ),
    (
        "TopicNotInClusterMirrorException",
        "The topic does not belong to the specified cluster mirror.",
    ),
    (
        "MirrorTopicAlreadyPausedException",
        "The mirror topic is already paused.",
    ),
    (
        "MirrorTopicNotPausedException",
        "The mirror topic is not paused.",
    ),
    (
        "MirrorTopicBeingStoppedException",
        "The mirror topic is being stopped.",
    ),
    (
        "ClusterMirrorNotEmptyException",
        "The cluster mirror still has active or non-stopped topics.",
    ),
    (
        "ClusterMirrorAuthorizationException",
        "Cluster mirror authorization failed.",
    ),
    (
        "InvalidMirrorStateException",
        "Cluster mirror partition states are not in the expected states.",
    ),
    (
        "MirrorTopicNotStoppedException",
        "The mirror topic is not stopped.",
    ),
];

fn mirror_row(dialect: Dialect, code: i16) -> Option<(&'static str, &'static str)> {
    let at = usize::try_from(code.checked_sub(FIRST_MIRROR_CODE)?).ok()?;
    match dialect {
        Dialect::Early => EARLY.get(at).copied(),
        Dialect::Late => LATE.get(at).copied(),
    }
}

fn meaning(dialect: Dialect, code: i16) -> &'static str {
    mirror_row(dialect, code).map_or_else(|| ErrorCode(code).message(), |(_, meaning)| meaning)
}

/// The simple class name of Kafka's exception for a code.
fn exception(dialect: Dialect, code: i16) -> String {
    if let Some((name, _)) = mirror_row(dialect, code) {
        return name.into();
    }
    let name = ErrorCode(code).name();
    // Where Kafka's class is not the camel-case form of the code's name.
    let irregular = match name {
        "UNKNOWN_SERVER_ERROR" | "UNKNOWN" => "UnknownServer",
        "INVALID_TOPIC_EXCEPTION" => "InvalidTopic",
        "REQUEST_TIMED_OUT" => "Timeout",
        "TOPIC_ALREADY_EXISTS" => "TopicExists",
        "INVALID_CONFIG" => "InvalidConfiguration",
        "TOPIC_AUTHORIZATION_FAILED" => "TopicAuthorization",
        "CLUSTER_AUTHORIZATION_FAILED" => "ClusterAuthorization",
        "GROUP_AUTHORIZATION_FAILED" => "GroupAuthorization",
        _ => "",
    };
    if !irregular.is_empty() {
        return format!("{irregular}Exception");
    }
    let camel: String = name
        .split('_')
        .map(|word| {
            word.chars()
                .enumerate()
                .map(|(i, c)| if i == 0 { c } else { c.to_ascii_lowercase() })
                .collect::<String>()
        })
        .collect();
    format!("{camel}Exception")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_carry_the_exception_name() {
        let text = Str::from("Mirror 'x' already exists");
        assert_eq!(
            line(Dialect::Early, 42, Some(&text)),
            "org.apache.kafka.common.errors.InvalidRequestException: Mirror 'x' already exists"
        );
        assert_eq!(
            line(Dialect::Late, 136, Some(&text)),
            "org.apache.kafka.common.errors.ClusterMirrorAlreadyExistsException: Mirror 'x' already exists"
        );
        assert_eq!(
            line(Dialect::Early, 142, None),
            "org.apache.kafka.common.errors.MirrorNotEmptyException: The mirror still has active or non-removed topics."
        );
        assert!(
            line(Dialect::Early, 40, None)
                .starts_with("org.apache.kafka.common.errors.InvalidConfigurationException: ")
        );
    }

    #[test]
    fn our_own_texts_stand_alone() {
        let text = Str::from("Mirror 'x' not found");
        assert_eq!(
            line(Dialect::Early, 136, Some(&text)),
            "Mirror 'x' not found"
        );
        let text = Str::from("Cannot reach the source of mirror 'm': connection refused");
        assert_eq!(
            line(Dialect::Early, 7, Some(&text)),
            "Cannot reach the source of mirror 'm': connection refused"
        );
    }

    #[test]
    fn the_same_number_means_different_things() {
        assert_eq!(exception(Dialect::Early, 136), "UnknownMirrorException");
        assert_eq!(
            exception(Dialect::Late, 137),
            "UnknownClusterMirrorException"
        );
    }
}
