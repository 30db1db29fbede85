//! Owns the canonical text of one record, the form in which readers are compared with each other:
//! `partition:offset:timestamp:key:value[:header=value]…`, every byte string as `length/crc32c` or
//! `-` for null (`Driver.java` makes the same).

/// The digest of one byte string.
#[must_use]
pub fn digest(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(
        || "-".into(),
        |b| format!("{}/{:x}", b.len(), crc32c::crc32c(b)),
    )
}

/// The canonical text of one record.
#[must_use]
pub fn canonical<'a>(
    partition: i32,
    offset: i64,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
) -> String {
    let mut text = format!(
        "{partition}:{offset}:{timestamp}:{}:{}",
        digest(key),
        digest(value)
    );
    for (name, value) in headers {
        text.push_str(&format!(":{name}={}", digest(value)));
    }
    text
}
