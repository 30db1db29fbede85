//! The "authorized operations" bit fields. Without an authoriser everything is allowed, and the
//! field lists what exists (as Kafka does).

/// Operations by their code: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8,
/// CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12.
const fn bits(operations: &[u32]) -> i32 {
    let mut field = 0;
    let mut at = 0;
    while at < operations.len() {
        field |= 1 << operations[at];
        at += 1;
    }
    field
}

/// Not asked for.
const OMITTED: i32 = i32::MIN;

/// Of the cluster.
pub(crate) const fn cluster(asked: bool) -> i32 {
    if asked {
        bits(&[5, 7, 8, 9, 10, 11, 12])
    } else {
        OMITTED
    }
}

/// Of a group.
pub(crate) const GROUP: i32 = bits(&[3, 6, 8, 10, 11]);

/// Of a topic.
pub(crate) const fn topic(asked: bool) -> i32 {
    if asked {
        bits(&[3, 4, 5, 6, 7, 8, 10, 11])
    } else {
        OMITTED
    }
}
