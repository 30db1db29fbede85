//! The refresh of each mirror from its source.

/// Text of a mirror whose source answers with another cluster id than the stored one.
pub(crate) fn wrong_cluster_text(stored: &str, found: &str) -> String {
    format!(
        "the source is another cluster: its id is {found}, this mirror belongs to {stored}; correct bootstrap.servers and add the topics again"
    )
}
