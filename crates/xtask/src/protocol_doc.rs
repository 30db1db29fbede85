//! `protocol-doc`: writes docs/protocol.md from the API table of `tarn-wire`.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;
use tarn_wire::VersionRange;
use tarn_wire::apis::{APIS, Api};

const INTRODUCTION: &str = "\
# Protocol

Generated from `crates/wire/src/apis.rs` by `cargo run -p xtask -- protocol-doc`; a test keeps it up to date.

Tarn speaks the Kafka protocol as of Kafka 4.3. The table lists every API of that release and the APIs of cluster mirroring.

* *Announced*: the versions that ApiVersions names for a server that implements the API. Unstable versions are not announced.
* *Codec*: the versions the codec can read and write, where they differ. Produce is announced from 0 because old librdkafka
  takes a higher minimum for \"no compression supported\"; versions below 3 are answered with UNSUPPORTED_VERSION for each partition.
* Every announced version answers on every error path. A field that a version lacks is left out where Kafka's schema calls it
  ignorable or Kafka's own handlers leave it out by version (the `ignorable` lines in `crates/wire/schema/tarn`); any other value that
  a version cannot say becomes an answer with UNKNOWN_SERVER_ERROR in each place for an error, and one line a minute at ERROR. A
  request that cannot be read, or whose version is not announced, closes the connection, as Kafka does.
* *Forwarded*: a broker hands the request on to the active controller.
* The APIs of cluster mirroring (94 and up) and CreateTopics 8 are announced only while the mirror feature is on, and only to clients
  that may need them: Java clients (`apache-kafka-java`), since a prototype's tool cannot be told from a stock one before it sends such
  a key, this product's own (`tarn`), and whoever has sent such a key on the connection. Others, some of which fail on keys that they
  do not know, see what Kafka announces. The bodies exist in two dialects under one version; a server tells them apart by decoding to
  the last byte.
* Announced although what they are for is not there, with the answers of a Kafka that has none of it: DescribeAcls, CreateAcls,
  DeleteAcls (SECURITY_DISABLED), ListTransactions, DescribeClientQuotas, DescribeUserScramCredentials, ListPartitionReassignments
  (empty), ConsumerGroupHeartbeat (UNSUPPORTED_VERSION). A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED by
  FindCoordinator and InitProducerId, because that is the one code that every client takes for final; the text says why.
* Features with levels are `metadata.version` and `mirror.version`. `transaction.version`, `group.version`, `share.version`,
  `streams.version`, `eligible.leader.replicas.version` and `kraft.version` are not shown, which means level 0: what they stand for
  is not there.
* Broker loggers (resource type 8) are the targets of this program's log. Configurations of groups and client metrics are shown with
  Kafka's defaults and cannot be set.
* Released Kafka 4.4 uses 94 for UnregisterController. A body that is no CreateMirror is answered with INVALID_REQUEST.
";

/// Writes the page.
pub(crate) fn run() -> Result<()> {
    fs::write(super::repository().join("docs/protocol.md"), page()?)?;
    Ok(())
}

fn page() -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, "APIs of Kafka", |api| !api.flags.mirror)?;
    section(&mut page, "APIs of cluster mirroring", |api| {
        api.flags.mirror
    })?;
    Ok(page)
}

fn section(page: &mut String, title: &str, wanted: impl Fn(&Api) -> bool) -> Result<()> {
    write!(
        page,
        "\n## {title}\n\n| Key | Name | Announced | Codec | Listeners | Forwarded |\n|---|---|---|---|---|---|\n"
    )?;
    for api in APIS.iter().filter(|api| wanted(api)) {
        let codec = if api.codec() == api.versions {
            String::new()
        } else {
            versions(api.codec())
        };
        writeln!(
            page,
            "| {} | {} | {} | {codec} | {} | {} |",
            api.key.0,
            api.name,
            versions(api.versions),
            listeners(api),
            if api.flags.forwarded { "yes" } else { "" }
        )?;
    }
    Ok(())
}

fn versions(range: VersionRange) -> String {
    if range.min == range.max {
        range.min.to_string()
    } else {
        format!("{}–{}", range.min, range.max)
    }
}

fn listeners(api: &Api) -> &'static str {
    match (api.listeners.broker, api.listeners.controller) {
        (true, true) => "broker, controller",
        (true, false) => "broker",
        (false, true) => "controller",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let written =
            fs::read_to_string(crate::repository().join("docs/protocol.md")).unwrap_or_default();
        assert!(
            page().unwrap() == written,
            "docs/protocol.md is old: cargo run -p xtask -- protocol-doc"
        );
    }
}
