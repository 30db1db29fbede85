//! The generated messages: one struct a message, its nested structs in a module named after it.

use crate::{ApiKey, VersionRange};

pub(crate) fn request_flexible_from(_: ApiKey) -> i16 {
    i16::MAX
}

pub(crate) fn request_versions(_: ApiKey) -> Option<VersionRange> {
    None
}
