//! The tables against the specification's own samples.

use super::*;

fn row(topic: &str, partition: i32, offsets: (i64, i64, i64), state: &str) -> PartitionRow {
    PartitionRow {
        mirror: "my-mirror".into(),
        topic: topic.into(),
        partition,
        source_offset: offsets.0,
        destination_offset: offsets.1,
        lag: offsets.2,
        state: state.into(),
        last_mirror_epoch: -1,
        retry_attempt: 0,
        error_message: None,
        lag_ms: -1,
        leader: 1,
        desired_state: Some("MIRRORING".into()),
        last_fetch_age_ms: -1,
        beyond: Beyond::default(),
    }
}

#[test]
fn describe_is_the_seeds_table_with_its_trailing_blanks() {
    let rows = [
        row("bar", 0, (2324, 2324, 0), "MIRRORING"),
        row("foo", 0, (69, 66, 3), "MIRRORING"),
        row("foo", 1, (-1, -1, -1), "PREPARING"),
    ];
    let want = "\
MIRROR                         TOPIC                                    PARTITION  SOURCE-OFFSET   DESTINATION-OFFSET LAG      STATE       \n\
my-mirror                      bar                                      0          2324            2324               0        MIRRORING   \n\
my-mirror                      foo                                      0          69              66                 3        MIRRORING   \n\
my-mirror                      foo                                      1          -               -                  -        PREPARING   \n";
    assert_eq!(describe_table(Personality::Mirrors, &rows), want);
}

#[test]
fn cluster_mirrors_has_a_wider_lag_column_and_its_own_state_names() {
    let table = describe_table(
        Personality::ClusterMirrors,
        &[row("foo", 1, (-1, -1, -1), "PREPARING")],
    );
    assert_eq!(
        table.lines().nth(1),
        Some(
            "my-mirror                      foo                                      1          -               -                  -          LOG_TRUNCATION"
        )
    );
}

#[test]
fn nothing_to_describe_says_so() {
    assert_eq!(
        describe_table(Personality::Mirrors, &[]),
        "No mirror partitions found\n"
    );
    assert_eq!(describe_json(Personality::Mirrors, &[], &[]), "[]\n");
}

#[test]
fn long_names_keep_their_right_end() {
    let long = "x".repeat(40) + "end";
    let table = describe_table(
        Personality::Mirrors,
        &[row(&long, 0, (1, 1, 0), "MIRRORING")],
    );
    let cell = table.lines().nth(1).and_then(|l| l.get(31..71)).unwrap();
    assert_eq!(cell, format!("...{}end", "x".repeat(34)));
}

#[test]
fn list_is_the_specifications_table() {
    let rows = [
        MirrorRow {
            mirror: "my-mirror".into(),
            topics: 2,
            source_cluster_id: "8-DTvGQ7QXqvT5HYhlnUyA".into(),
            source_bootstrap: "src1:9092,src2:9092".into(),
        },
        MirrorRow {
            mirror: "new-mirror".into(),
            topics: 1,
            source_cluster_id: String::new(),
            source_bootstrap: String::new(),
        },
    ];
    let want = "\
MIRROR                         TOPICS     SOURCE-CLUSTER-ID          SOURCE-BOOTSTRAP                                  \n\
my-mirror                      2          8-DTvGQ7QXqvT5HYhlnUyA     src1:9092,src2:9092                               \n\
new-mirror                     1          -                          -                                                 \n";
    assert_eq!(list_table(Personality::Mirrors, &rows), want);
    assert_eq!(list_table(Personality::Mirrors, &[]), "No mirrors found\n");
}

#[test]
fn json_has_the_fields_in_order_and_survives_percent_signs() {
    let mut one = row("t", 0, (69, 66, 3), "MIRRORING");
    one.error_message = Some("100% of %s".into());
    let json = describe_json(Personality::Mirrors, &[one], &[]);
    assert!(json.starts_with(
        r#"[{"mirror":"my-mirror","topic":"t","partition":0,"sourceOffset":69,"destinationOffset":66,"lag":3,"state":"MIRRORING","lastMirrorEpoch":-1,"retryAttempt":0,"errorMessage":"100% of %s","lagMs":-1,"leader":1,"desiredState":"MIRRORING""#
    ));
    assert!(json.ends_with("}]\n"));
}

#[test]
fn failed_table_is_the_specifications() {
    let mut first = row("foo", 1, (-1, -1, -1), "FAILED");
    (first.retry_attempt, first.error_message) = (3, Some("boom".into()));
    let mut second = row("gone", 0, (-1, -1, -1), "FAILED");
    (second.retry_attempt, second.error_message) =
        (-1, Some("The source topic is deleted.".into()));
    let want = "\
MIRROR                         TOPIC                                    PARTITION  RETRY   ERROR\n\
my-mirror                      foo                                      1          3/100   boom\n\
my-mirror                      gone                                     0          NonRetryable The source topic is deleted.\n";
    assert_eq!(
        failed_table(&[first, second, row("ok", 0, (1, 1, 0), "MIRRORING")], 100),
        want
    );
    assert_eq!(
        failed_table(&[row("ok", 0, (1, 1, 0), "MIRRORING")], 100),
        "No failed partitions found\n"
    );
}

#[test]
fn a_long_error_is_cut_to_eighty_characters() {
    let mut one = row("foo", 1, (-1, -1, -1), "FAILED");
    one.error_message = Some("e".repeat(81));
    let table = failed_table(&[one], 10);
    assert!(table.ends_with(&format!(" {}...\n", "e".repeat(77))));
}

#[test]
fn an_unreachable_source_is_told_once_a_mirror_with_the_last_good_answer() {
    let mut old = row("a", 0, (5, 5, 0), "MIRRORING");
    (old.error_message, old.last_fetch_age_ms) = (
        Some("source unreachable: cannot connect to 127.0.0.1:1".into()),
        9_000,
    );
    let mut young = old.clone();
    (young.partition, young.last_fetch_age_ms) = (1, 4_000);
    let mut failed = old.clone();
    (failed.state, failed.mirror) = ("FAILED".into(), "other".into());
    let lines = unreachable_lines(&[old, young, failed], 1_700_000_004_000);
    assert_eq!(
        lines,
        [
            "Mirror my-mirror: source unreachable since 2023-11-14T22:13:20Z: cannot connect to 127.0.0.1:1"
        ]
    );
}

#[test]
fn times_are_right_around_leap_days() {
    assert_eq!(utc(0), "1970-01-01T00:00:00Z");
    assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00Z");
    assert_eq!(utc(1_709_251_199_000), "2024-02-29T23:59:59Z");
    assert_eq!(utc(1_709_251_200_000), "2024-03-01T00:00:00Z");
}

#[test]
fn rows_are_sorted_by_partition_number_not_by_text() {
    let mut rows = [
        row("t", 10, (0, 0, 0), "MIRRORING"),
        row("t", 9, (0, 0, 0), "MIRRORING"),
        row("a", 11, (0, 0, 0), "MIRRORING"),
    ];
    sort(&mut rows);
    assert_eq!(rows.map(|r| r.partition), [11, 9, 10]);
}

/// What only the log knew is on show: in the JSON with since when, and one line each on standard
/// error.
#[test]
fn notices_are_fields_of_the_json_and_lines_on_standard_error() {
    let notice = |kind: &str, item: &str, text: &str| NoticeRow {
        mirror: "my-mirror".into(),
        kind: kind.into(),
        item: item.into(),
        text: text.into(),
        since_ms: 1_700_000_000_000,
    };
    let notices = [
        notice("configs", "foo", "denied"),
        notice("refresh", "discovery", "no answer"),
        notice("carried", "foo", "retention.ms=-1"),
        notice("join", "bar", "belongs to another mirror"),
    ];
    let mut rows = [row("foo", 0, (9, 9, 0), "MIRRORING")];
    rows[0].beyond.skipped_offsets = 50;
    let json = describe_json(Personality::Mirrors, &rows, &notices);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["skippedOffsets"], 50);
    assert_eq!(json[0]["notices"].as_array().map(Vec::len), Some(3));
    assert_eq!(json[0]["notices"][0]["sinceMs"], 1_700_000_000_000_i64);
    assert_eq!(
        (&json[1]["topic"], &json[1]["partition"]),
        (&json!("bar"), &json!(-1))
    );
    let lines = notice_lines(&notices, &rows);
    assert_eq!(lines.len(), 4, "a fact is no problem: {lines:?}");
    assert_eq!(
        lines[0],
        "Mirror my-mirror: configs of foo since 2023-11-14T22:13:20Z: denied"
    );
    assert!(lines[3].contains("50 offsets were gone"));
    let many = vec![notices[0].clone(); 100];
    assert_eq!(notice_lines(&many, &[]).len(), 21);
}

/// What is set comes first, and a secret stays one.
#[test]
fn a_configuration_is_a_table_or_json() {
    let row = |key: &str, value: Option<&str>, is_set, is_secret| ConfigRow {
        mirror: "m".into(),
        key: key.into(),
        value: value.map(str::to_owned),
        is_set,
        is_secret,
    };
    let rows = [
        row("a.default", Some("1"), false, false),
        row("bootstrap.servers", Some("s:1"), true, false),
        row("z.password", None, true, true),
        row("z.nothing", None, false, false),
    ];
    let table = config_table(&rows);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines,
        [
            ["MIRROR", "KEY", "FROM", "VALUE"],
            ["m", "bootstrap.servers", "mirror", "s:1"],
            ["m", "z.password", "mirror", "(hidden)"],
            ["m", "a.default", "default", "1"],
            ["m", "z.nothing", "default", "-"],
        ]
    );
    let json: Value = serde_json::from_str(&config_json(&rows)).unwrap();
    assert_eq!(json[1]["value"], "s:1");
    assert_eq!(
        (&json[2]["value"], &json[2]["sensitive"]),
        (&Value::Null, &Value::Bool(true))
    );
    assert_eq!(config_table(&[]), "No mirrors found\n");
}
