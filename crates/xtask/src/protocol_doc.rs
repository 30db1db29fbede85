//! `protocol-doc`: writes docs/protocol.md from the API table of `tarn-wire` and the table of
//! routes of `tarn-server`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use tarn_wire::VersionRange;
use tarn_wire::apis::{APIS, Api};

const INTRODUCTION: &str = "\
# Protocol

Generated from the tables of APIs (`crates/wire/src/apis.rs`) and of routes
(`crates/server/src/dispatch/routes.rs`) by `cargo run -p xtask -- protocol-doc`; `xtask tidy` keeps
it up to date.

Tarn speaks the Kafka protocol as of Kafka 4.3. The tables list every API of that release and the
APIs of cluster mirroring. What is served has been since 0.1.0, the first version.

* *Announced*: the versions that ApiVersions names. An API that is not served is not announced, and
  a request for it closes the connection, as Kafka does. Unstable versions are not announced.
* *Codec*: the versions the codec can read and write, where they differ from the announced ones or
  nothing is announced. Produce is announced from 0 because old librdkafka takes a higher minimum
  for \"no compression supported\"; versions below 3 are answered with UNSUPPORTED_VERSION for each
  partition. Accepted without being announced: Fetch 19.
* *Served*: *as absent* means that what the API is for is not there, and that the answers are those
  of a Kafka that has none of it: DescribeAcls, CreateAcls, DeleteAcls (SECURITY_DISABLED),
  ListTransactions, DescribeClientQuotas, DescribeUserScramCredentials, ListPartitionReassignments
  (empty), ConsumerGroupHeartbeat (UNSUPPORTED_VERSION). A transactional id is refused with
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED by FindCoordinator and InitProducerId, because that is the
  one code that every client takes for final; the text says why.
* Every announced version answers on every error path. A field that a version lacks is left out
  where Kafka's schema calls it ignorable or Kafka's own handlers leave it out by version (the
  `ignorable` lines in `crates/wire/schema/tarn`); any other value that a version cannot say becomes
  an answer with UNKNOWN_SERVER_ERROR in each place for an error, and one line a minute at ERROR. A
  request that cannot be read, or whose version is not announced, closes the connection, as Kafka
  does.
* The APIs of cluster mirroring (94 and up) and CreateTopics 8 are announced only while the mirror
  feature is on, and only to clients that may need them: Java clients (`apache-kafka-java`), since a
  prototype's tool cannot be told from a stock one before it sends such a key, this product's own
  (`tarn`), and whoever has sent such a key on the connection. Others, some of which fail on keys
  that they do not know, see what Kafka announces. The bodies:
  [mirror-protocol.md](mirror-protocol.md).
* Features with levels are `metadata.version` and `mirror.version`. `transaction.version`,
  `group.version`, `share.version`, `streams.version`, `eligible.leader.replicas.version` and
  `kraft.version` are not shown, which means level 0: what they stand for is not there.
* Broker loggers (resource type 8) are the targets of this program's log. Configurations of groups
  and client metrics are shown with Kafka's defaults and cannot be set.
";

/// Where the page is.
pub(crate) const PAGE: &str = "docs/protocol.md";
/// The handlers of APIs whose subject is not there.
const ABSENT: &str = "absent";

/// Writes the page.
pub(crate) fn run() -> Result<()> {
    let root = super::repository();
    let routes = fs::read_to_string(root.join("crates/server/src/dispatch/routes.rs"))?;
    fs::write(root.join(PAGE), page(&routes)?)?;
    Ok(())
}

/// The page, from the table of APIs and the source text of the table of routes. (The table itself
/// is inside of a crate that the other tasks do without.)
pub(crate) fn page(routes: &str) -> Result<String> {
    let routes = served(routes)?;
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, "APIs of Kafka", &routes, |api| !api.flags.mirror)?;
    section(&mut page, "APIs of cluster mirroring", &routes, |api| {
        api.flags.mirror
    })?;
    Ok(page)
}

/// Name of each API with a route, and the module of its handler.
fn served(routes: &str) -> Result<BTreeMap<&'static str, String>> {
    let table = routes.split("static ROUTES").nth(1).unwrap_or(routes);
    let row = Regex::new(
        r"(?:route!\(\s*(?:(\w+)Request|ApiKey::(\w+))|key: ApiKey::(\w+)).*?\bh::(\w+)",
    )?;
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut served = BTreeMap::new();
    for found in row.captures_iter(&table) {
        let name = found.get(1).or(found.get(2)).or(found.get(3));
        let name = name.map_or("", |name| name.as_str());
        let is_of =
            |api: &&Api| api.name == name || api.name.to_uppercase() == name.replace('_', "");
        let api = APIS.iter().find(is_of);
        let api = api.with_context(|| format!("no API is called {name}"))?;
        served.insert(api.name, found[4].to_owned());
    }
    ensure!(!served.is_empty(), "the table of routes was not found");
    Ok(served)
}

fn section(
    page: &mut String,
    title: &str,
    routes: &BTreeMap<&'static str, String>,
    wanted: impl Fn(&Api) -> bool,
) -> Result<()> {
    write!(
        page,
        "\n## {title}\n\n| Key | Name | Served | Announced | Codec | Listeners |\n|---|---|---|---|---|---|\n"
    )?;
    for api in APIS.iter().filter(|api| wanted(api)) {
        let handler = routes.get(api.name);
        let (served, announced) = match handler.map(String::as_str) {
            None => ("no", String::new()),
            Some(ABSENT) => ("as absent", versions(api.versions)),
            Some(_) => ("yes", versions(api.versions)),
        };
        let codec = if handler.is_some() && api.codec() == api.versions {
            String::new()
        } else {
            versions(api.codec())
        };
        let listeners = handler.map_or("", |_| listeners(api));
        writeln!(
            page,
            "| {} | {} | {served} | {announced} | {codec} | {listeners} |",
            api.key.0, api.name,
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
    fn only_what_has_a_route_is_served_and_announced() {
        let routes = "static ROUTES: &[Route] = &[\n    Route {\n        key: ApiKey::PRODUCE,\n        run: Run::Now(h::produce::handle),\n    },\n    \
                      route!(FetchRequest, h::fetch::handle, Some(19)),\n    route!(\n        DescribeAclsRequest,\n        h::absent::describe_acls\n    ),\n    \
                      raw_route!(ApiKey::CREATE_MIRROR, h::mirrors::handle),\n];";
        let page = page(routes).unwrap();
        for row in [
            "| 0 | Produce | yes | 0–13 |",
            "| 1 | Fetch | yes | 4–18 | 4–19 |",
            "| 2 | ListOffsets | no |  | 1–11 |  |",
            "| 29 | DescribeAcls | as absent | 1–3 |",
            "| 94 | CreateMirror | yes | 0 |",
        ] {
            assert!(page.contains(row), "{row} in {page}");
        }
    }
}
