//! What the mirror tools print: the tables character for character, JSON, and the line about an
//! unreachable source. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::destination::ConfigRow;
use super::personality::Personality;

const MIRROR_WIDTH: usize = 30;
const TOPIC_WIDTH: usize = 40;
const BOOTSTRAP_WIDTH: usize = 50;
const ERROR_WIDTH: usize = 80;

/// A partition of a mirror as a server described it. −1 stands for unknown everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub(crate) mirror: String,
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) source_offset: i64,
    pub(crate) destination_offset: i64,
    pub(crate) lag: i64,
    pub(crate) state: String,
    pub(crate) last_mirror_epoch: i32,
    pub(crate) retry_attempt: i16,
    pub(crate) error_message: Option<String>,
    pub(crate) lag_ms: i64,
    pub(crate) leader: i32,
    pub(crate) desired_state: Option<String>,
    pub(crate) last_fetch_age_ms: i64,
    pub(crate) beyond: Beyond,
}

/// What our own servers say beyond the prototype's fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// Since when the error text holds, epoch ms; 0 = not known.
    pub(crate) error_since_ms: i64,
    /// Offsets that were gone at the source before they could be copied.
    pub(crate) skipped_offsets: i64,
    /// Offsets that were cut because the source's log is another one.
    pub(crate) truncated_offsets: i64,
}

/// Something about a mirror that an operator should know, beyond the states of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoticeRow {
    pub(crate) mirror: String,
    /// `refresh`, `topic`, `configs`, `join`; `carried` is a fact and no problem.
    pub(crate) kind: String,
    /// The topic, or the step of the refresh.
    pub(crate) item: String,
    pub(crate) text: String,
    /// Epoch ms; −1 = not known.
    pub(crate) since_ms: i64,
}

impl NoticeRow {
    fn is_about(&self, row: &PartitionRow) -> bool {
        self.mirror == row.mirror && (self.item == row.topic || self.kind == REFRESH)
    }

    fn json(&self) -> Value {
        json!({"kind": self.kind, "item": self.item, "text": self.text, "sinceMs": since(self.since_ms)})
    }
}

/// Kind of a notice about a step of the refresh: it concerns every topic of the mirror.
const REFRESH: &str = "refresh";
/// Kind of a notice that tells a fact and no problem.
const CARRIED: &str = "carried";
/// Kind of a notice about a topic that is no member: it has an element of its own in the JSON.
const JOIN: &str = "join";
/// Most lines about notices on standard error.
const NOTICE_LINES_MAX: usize = 20;

fn since(ms: i64) -> Option<i64> {
    (ms > 0).then_some(ms)
}

/// One line for each problem, a limited number.
pub(crate) fn notice_lines(notices: &[NoticeRow], rows: &[PartitionRow]) -> Vec<String> {
    // That the source cannot be reached has its own line.
    let is_told = |n: &NoticeRow| {
        let text = |r: &PartitionRow| r.error_message.clone().unwrap_or_default();
        let unreachable =
            |r: &PartitionRow| r.mirror == n.mirror && text(r).starts_with(UNREACHABLE);
        n.kind == REFRESH && rows.iter().any(unreachable)
    };
    let problems = notices.iter().filter(|n| n.kind != CARRIED && !is_told(n));
    let mut lines: Vec<String> = problems
        .map(|n| {
            let since = since(n.since_ms).map_or(String::new(), |ms| format!(" since {}", utc(ms)));
            let text = n.text.replace('\n', " ");
            format!(
                "Mirror {}: {} of {}{since}: {text}",
                n.mirror, n.kind, n.item
            )
        })
        .collect();
    for row in rows {
        let (skipped, cut) = (row.beyond.skipped_offsets, row.beyond.truncated_offsets);
        let what = |n: i64, what: &str| {
            let place = format!("{}-{}", row.topic, row.partition);
            (n > 0).then(|| format!("Mirror {}: {place}: {n} offsets {what}", row.mirror))
        };
        lines.extend(what(
            skipped,
            "were gone at the source before they could be copied",
        ));
        lines.extend(what(
            cut,
            "were cut because the source's log is another one",
        ));
    }
    if lines.len() > NOTICE_LINES_MAX {
        let more = lines.len() - NOTICE_LINES_MAX;
        lines.truncate(NOTICE_LINES_MAX);
        lines.push(format!("{more} more: see --describe --json"));
    }
    lines
}

/// A mirror as the list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MirrorRow {
    pub(crate) mirror: String,
    pub(crate) topics: i32,
    pub(crate) source_cluster_id: String,
    pub(crate) source_bootstrap: String,
}

/// Sorts as the tables want it: mirror, topic, partition number.
pub(crate) fn sort(rows: &mut [PartitionRow]) {
    rows.sort_by(|a, b| {
        (&a.mirror, &a.topic, a.partition).cmp(&(&b.mirror, &b.topic, b.partition))
    });
}

/// `...` and the rightmost characters of what does not fit into `width`.
fn fit(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        text.to_owned()
    } else {
        format!(
            "...{}",
            text.chars().skip(length - (width - 3)).collect::<String>()
        )
    }
}

fn number(n: i64) -> String {
    if n < 0 { "-".into() } else { n.to_string() }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// The describe table; every line keeps the blanks behind its last column.
pub(crate) fn describe_table(personality: Personality, rows: &[PartitionRow]) -> String {
    if rows.is_empty() {
        return "No mirror partitions found\n".into();
    }
    let lag_width = personality.lag_width();
    let line = |cells: [&str; 7]| {
        let [mirror, topic, partition, source, destination, lag, state] = cells;
        format!(
            "{mirror:<30} {topic:<40} {partition:<10} {source:<15} {destination:<18} {lag:<lag_width$} {state:<12}\n"
        )
    };
    let mut out = line([
        "MIRROR",
        "TOPIC",
        "PARTITION",
        "SOURCE-OFFSET",
        "DESTINATION-OFFSET",
        "LAG",
        "STATE",
    ]);
    for row in rows {
        out.push_str(&line([
            &fit(&row.mirror, MIRROR_WIDTH),
            &fit(&row.topic, TOPIC_WIDTH),
            &row.partition.to_string(),
            &number(row.source_offset),
            &number(row.destination_offset),
            &number(row.lag),
            personality.state(&row.state),
        ]));
    }
    out
}

/// The table of `--failed`; `max_attempts` is the broker's limit of retries.
pub(crate) fn failed_table(rows: &[PartitionRow], max_attempts: i64) -> String {
    let failed: Vec<&PartitionRow> = rows.iter().filter(|r| r.state == "FAILED").collect();
    if failed.is_empty() {
        return "No failed partitions found\n".into();
    }
    let line = |mirror: &str, topic: &str, partition: &str, retry: &str, error: &str| {
        format!("{mirror:<30} {topic:<40} {partition:<10} {retry:<7} {error}\n")
    };
    let mut out = line("MIRROR", "TOPIC", "PARTITION", "RETRY", "ERROR");
    for row in failed {
        let retry = if row.retry_attempt < 0 {
            "NonRetryable".into()
        } else {
            format!("{}/{max_attempts}", row.retry_attempt)
        };
        let error = row.error_message.as_deref().unwrap_or("-");
        let error = if error.chars().count() > ERROR_WIDTH {
            format!(
                "{}...",
                error.chars().take(ERROR_WIDTH - 3).collect::<String>()
            )
        } else {
            error.into()
        };
        out.push_str(&line(
            &fit(&row.mirror, MIRROR_WIDTH),
            &fit(&row.topic, TOPIC_WIDTH),
            &row.partition.to_string(),
            &retry,
            &error.replace('\n', " "),
        ));
    }
    out
}

/// The JSON of describe: one array on one line.
pub(crate) fn describe_json(
    personality: Personality,
    rows: &[PartitionRow],
    notices: &[NoticeRow],
) -> String {
    let mut objects: Vec<Value> = rows
        .iter()
        .map(|r| {
            json!({
                "mirror": r.mirror,
                "topic": r.topic,
                "partition": r.partition,
                "sourceOffset": r.source_offset,
                "destinationOffset": r.destination_offset,
                "lag": r.lag,
                "state": personality.state(&r.state),
                "lastMirrorEpoch": r.last_mirror_epoch,
                "retryAttempt": r.retry_attempt,
                "errorMessage": r.error_message,
                "lagMs": r.lag_ms,
                "leader": r.leader,
                "desiredState": r.desired_state,
                "lastFetchAgeMs": r.last_fetch_age_ms,
                "errorSinceMs": since(r.beyond.error_since_ms),
                "skippedOffsets": r.beyond.skipped_offsets,
                "truncatedOffsets": r.beyond.truncated_offsets,
                "notices": notices.iter().filter(|n| n.is_about(r)).map(NoticeRow::json).collect::<Vec<_>>(),
            })
        })
        .collect();
    objects.extend(notices.iter().filter(|n| n.kind == JOIN).map(|n| {
        json!({
            "mirror": n.mirror,
            "topic": n.item,
            "partition": -1,
            "state": "UNKNOWN",
            "errorMessage": n.text,
            "errorSinceMs": since(n.since_ms),
            "notices": [n.json()],
        })
    }));
    format!("{}\n", Value::Array(objects))
}

/// The list table.
pub(crate) fn list_table(personality: Personality, rows: &[MirrorRow]) -> String {
    if rows.is_empty() {
        return "No mirrors found\n".into();
    }
    let mut out = String::new();
    let mut line = |mirror: &str, topics: &str, id: &str, bootstrap: &str| {
        writeln!(out, "{mirror:<30} {topics:<10} {id:<26} {bootstrap:<50}").ok();
    };
    line(
        "MIRROR",
        "TOPICS",
        "SOURCE-CLUSTER-ID",
        personality.bootstrap_header(),
    );
    for row in rows {
        line(
            &fit(&row.mirror, MIRROR_WIDTH),
            &row.topics.to_string(),
            or_dash(&row.source_cluster_id),
            &fit(or_dash(&row.source_bootstrap), BOOTSTRAP_WIDTH),
        );
    }
    out
}

/// The JSON of list.
pub(crate) fn list_json(rows: &[MirrorRow]) -> String {
    let objects: Vec<Value> = rows
        .iter()
        .map(|r| json!({"mirror": r.mirror, "topics": r.topics, "sourceClusterId": r.source_cluster_id, "sourceBootstrap": r.source_bootstrap}))
        .collect();
    format!("{}\n", Value::Array(objects))
}

/// What stands for a value that the cluster keeps to itself.
const HIDDEN: &str = "(hidden)";

/// The table of `--describe --config`: what is set for the mirror first.
pub(crate) fn config_table(rows: &[ConfigRow]) -> String {
    if rows.is_empty() {
        return "No mirrors found\n".into();
    }
    let line = |mirror: &str, key: &str, from: &str, value: &str| {
        format!("{mirror:<30} {key:<45} {from:<8} {value}\n")
    };
    let mut sorted: Vec<&ConfigRow> = rows.iter().collect();
    sorted.sort_by_key(|row| (&row.mirror, !row.is_set, &row.key));
    let mut out = line("MIRROR", "KEY", "FROM", "VALUE");
    for row in sorted {
        let value = match &row.value {
            Some(value) => value.as_str(),
            None if row.is_secret => HIDDEN,
            None => "-",
        };
        let from = if row.is_set { "mirror" } else { "default" };
        let mirror = fit(&row.mirror, MIRROR_WIDTH);
        out.push_str(&line(&mirror, &row.key, from, &value.replace('\n', " ")));
    }
    out
}

/// The JSON of `--describe --config`: one object for each key.
pub(crate) fn config_json(rows: &[ConfigRow]) -> String {
    let objects = rows.iter().map(|r| {
        json!({"mirror": r.mirror, "key": r.key, "value": r.value, "set": r.is_set, "sensitive": r.is_secret})
    });
    format!("{}\n", Value::Array(objects.collect()))
}

/// One line for every mirror whose source does not answer: partitions that go on trying carry the
/// reason, the age of the last good answer says since when.
pub(crate) fn unreachable_lines(rows: &[PartitionRow], now_ms: i64) -> Vec<String> {
    let mut worst: BTreeMap<&str, (&str, i64)> = BTreeMap::new();
    for row in rows
        .iter()
        .filter(|r| r.state != "FAILED" && r.state != "STOPPED")
    {
        let Some(text) = row
            .error_message
            .as_deref()
            .and_then(|t| t.strip_prefix(UNREACHABLE))
        else {
            continue;
        };
        let known = worst
            .entry(&row.mirror)
            .or_insert((text, row.last_fetch_age_ms));
        if row.last_fetch_age_ms >= 0 && (known.1 < 0 || row.last_fetch_age_ms < known.1) {
            *known = (text, row.last_fetch_age_ms);
        }
    }
    let line = |(mirror, (reason, age)): (&str, (&str, i64))| {
        let since = if age < 0 {
            "the first attempt".into()
        } else {
            utc(now_ms - age)
        };
        format!(
            "Mirror {mirror}: source unreachable since {since}: {}",
            reason.replace('\n', " ")
        )
    };
    worst.into_iter().map(line).collect()
}

/// How a broker begins the error text of a partition whose source does not answer.
pub(crate) const UNREACHABLE: &str = "source unreachable: ";

/// Epoch milliseconds as `YYYY-MM-DDTHH:MM:SSZ`.
fn utc(ms: i64) -> String {
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1000);
    // Days since 0000-03-01 in 400-year eras: leap days fall on the end of such years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests;
