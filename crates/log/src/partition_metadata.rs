//! `partition.metadata`: whose log a folder holds, and what may only be said of that very log.
//!
//! The first two lines are Kafka's, which reads no further. Ours follow, closed by a checksum: they
//! stand in the folder of the log and so go where it goes, unlike a line of a checkpoint, which is
//! found by name. Lines that do not fit the checksum say nothing.

use std::path::Path;

use tarn_records::crc32c;

/// Name of the file.
pub(crate) const FILE: &str = "partition.metadata";

const TOPIC_ID: &str = "topic_id";
const LOG_START: &str = "log_start_offset";
const CONTIGUOUS: &str = "contiguous";
const CHECKSUM: &str = "checksum";

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartitionMetadata {
    /// Kafka's 22-character topic id; no file is kept without one.
    pub(crate) topic_id: Option<String>,
    /// First offset that can be read, when that was raised above the first one kept.
    pub(crate) log_start: Option<i64>,
    /// Each segment begins where the one before it ends, so that a missing one is seen.
    pub(crate) contiguous: bool,
}

impl PartitionMetadata {
    /// The content; `None` without a topic id.
    pub(crate) fn format(&self) -> Option<Vec<u8>> {
        let id = self.topic_id.as_ref()?;
        let mut text = format!("version: 0\n{TOPIC_ID}: {id}\n");
        if let Some(start) = self.log_start {
            text.push_str(&format!("{LOG_START}: {start}\n"));
        }
        if self.contiguous {
            text.push_str(&format!("{CONTIGUOUS}: true\n"));
        }
        text.push_str(&format!("{CHECKSUM}: {:08x}\n", crc32c(text.as_bytes())));
        Some(text.into_bytes())
    }

    /// What a content says. A file of Kafka's has the id alone; so has, in effect, one that was
    /// edited.
    pub(crate) fn parse(text: &str) -> PartitionMetadata {
        let value = |of: &str, key: &str| {
            let of_line = |l: &str| Some(l.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
            of.lines().find_map(of_line).filter(|v| !v.is_empty())
        };
        let topic_id = value(text, TOPIC_ID);
        let ours = text.rsplit_once(CHECKSUM).and_then(|(front, sum)| {
            let sum = u32::from_str_radix(sum.strip_prefix(':')?.trim(), 16).ok()?;
            Some((front, sum == crc32c(front.as_bytes())))
        });
        match ours {
            Some((front, true)) => PartitionMetadata {
                topic_id,
                log_start: value(front, LOG_START).and_then(|v| v.parse().ok()),
                contiguous: value(front, CONTIGUOUS).is_some_and(|v| v == "true"),
            },
            _ => PartitionMetadata {
                topic_id,
                ..PartitionMetadata::default()
            },
        }
    }

    /// Reads the file in a partition's folder; what cannot be read says nothing.
    pub(crate) fn read(folder: &Path) -> PartitionMetadata {
        let text = std::fs::read_to_string(folder.join(FILE));
        text.map_or_else(|_| PartitionMetadata::default(), |t| Self::parse(&t))
    }

    /// What is wrong with a content that is not blank.
    pub(crate) fn complaint(&self, text: &str) -> Option<&'static str> {
        if self.topic_id.is_none() {
            Some("no topic id can be read, the log is taken for the one its folder is named after")
        } else if text.contains(LOG_START) && self.log_start.is_none() {
            Some("the checksum is wrong, the log start offset in it is not believed")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_an_edited_line_says_nothing() {
        let all = PartitionMetadata {
            topic_id: Some("MkU3OEVBNTcwNTJENDM2Qg".to_owned()),
            log_start: Some(900),
            contiguous: true,
        };
        let text = String::from_utf8(all.format().unwrap()).unwrap();
        assert!(text.starts_with("version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg\n"));
        assert_eq!(PartitionMetadata::parse(&text), all);
        let id_alone = PartitionMetadata {
            topic_id: all.topic_id.clone(),
            ..PartitionMetadata::default()
        };
        for edited in [
            text.replace("900", "901"),
            text.replace("contiguous: true\n", ""),
            text[..text.find("checksum").unwrap()].to_owned(),
            "version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg".to_owned(),
        ] {
            assert_eq!(PartitionMetadata::parse(&edited), id_alone, "{edited}");
        }
        assert_eq!(PartitionMetadata::parse(""), PartitionMetadata::default());
        assert_eq!(PartitionMetadata::default().format(), None);
    }
}
