//! The checks against the specification's texts, in their order.

use super::*;

fn parse_line(personality: Personality, line: &str) -> Result<Parsed, CliError> {
    parse(
        personality,
        &line
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    )
}

fn text_of(personality: Personality, line: &str) -> String {
    parse_line(personality, line).unwrap_err().to_string()
}

fn options(line: &str) -> Options {
    match parse_line(Personality::Mirrors, line) {
        Ok(Parsed::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn kafka_mirrors_checks_in_order() {
    let p = Personality::Mirrors;
    assert_eq!(
        parse_line(p, "--create --list"),
        Err(CliError::Usage("Command must include exactly one action: --create, --alter, --add, --remove, --delete, --pause, --resume, --list, or --describe".into()))
    );
    assert!(matches!(
        parse_line(p, "--mirror m"),
        Err(CliError::Usage(_))
    ));
    assert_eq!(
        text_of(p, "--create"),
        "--bootstrap-server must be specified"
    );
    assert_eq!(
        text_of(p, "--bootstrap-server :1 --create"),
        "--mirror must be specified"
    );
    let m = "--bootstrap-server :1 --mirror m";
    assert_eq!(
        text_of(p, &format!("{m} --create")),
        "--mirror-config must be specified when creating a mirror"
    );
    assert_eq!(
        text_of(p, &format!("{m} --alter")),
        "--mirror-config must be specified when altering a mirror"
    );
    assert_eq!(
        text_of(p, &format!("{m} --add")),
        "--topic must be specified when adding topic(s) to a mirror"
    );
    assert_eq!(
        text_of(p, &format!("{m} --remove")),
        "--topic must be specified when removing topic(s) from a mirror"
    );
    assert_eq!(
        text_of(p, &format!("{m} --pause")),
        "--topic must be specified when pausing mirror topic(s)"
    );
    assert_eq!(
        text_of(p, &format!("{m} --resume")),
        "--topic must be specified when resuming mirror topic(s)"
    );
    assert_eq!(
        text_of(p, &format!("{m} --delete --json")),
        "--json is only supported for describing mirrors"
    );
}

#[test]
fn kafka_cluster_mirrors_checks_in_order() {
    let p = Personality::ClusterMirrors;
    assert_eq!(
        text_of(p, "--bootstrap-server :1"),
        "Command must include exactly one action: --create, --start, --stop, --delete, --pause, --resume, --list, or --describe"
    );
    let m = "--bootstrap-server :1 --mirror m";
    assert_eq!(
        text_of(p, &format!("{m} --start")),
        "--topics must be specified when starting mirror topic(s)"
    );
    assert_eq!(
        text_of(p, &format!("{m} --stop")),
        "--topics must be specified when stopping mirror topic(s)"
    );
    assert_eq!(
        text_of(p, &format!("{m} --pause")),
        "--topics must be specified when pausing mirror topic(s)"
    );
    assert_eq!(
        text_of(p, &format!("{m} --resume")),
        "--topics must be specified when resuming mirror topic(s)"
    );
    assert_eq!(
        text_of(p, &format!("{m} --stop --topics a --exclude b")),
        "--exclude is only valid with --start"
    );
    assert_eq!(
        text_of(p, &format!("{m} --delete --failed")),
        "--failed is only supported for describing mirrors"
    );
}

#[test]
fn list_and_describe_need_no_mirror() {
    assert_eq!(options("--bootstrap-server :1 --list").verb, Verb::List);
    assert_eq!(
        options("--bootstrap-server :1 --describe --json").mirror,
        None
    );
    assert!(options("--bootstrap-server :1 --list --json").json);
}

#[test]
fn values_come_with_a_blank_or_an_equals_sign() {
    let o = options("--bootstrap-server=:1 --mirror=m --add --topic=a=b --replication-factor=2");
    assert_eq!(
        (
            o.bootstrap.as_str(),
            o.mirror.as_deref(),
            o.topics,
            o.replication_factor
        ),
        (":1", Some("m"), vec!["a=b".to_owned()], Some(2))
    );
}

#[test]
fn topic_options_accumulate_and_only_topics_splits_at_commas() {
    let o =
        options("--bootstrap-server :1 --mirror m --remove --topic a{1,2} --topics b,c --topic d");
    assert_eq!(o.topics, ["a{1,2}", "b", "c", "d"]);
}

#[test]
fn both_spellings_of_a_verb_are_one_verb() {
    assert_eq!(
        options("--bootstrap-server :1 --mirror m --add --start --topic a").verb,
        Verb::Add
    );
    assert_eq!(
        options("--bootstrap-server :1 --mirror m --stop --topic a").verb,
        Verb::Remove
    );
}

#[test]
fn all_topics_stands_for_patterns_except_with_add() {
    assert!(options("--bootstrap-server :1 --mirror m --remove --all-topics").all_topics);
    let p = Personality::Mirrors;
    assert_eq!(
        text_of(p, "--bootstrap-server :1 --mirror m --add --all-topics"),
        "--topic must be specified when adding topic(s) to a mirror"
    );
    assert_eq!(
        text_of(
            p,
            "--bootstrap-server :1 --mirror m --remove --all-topics --topic a"
        ),
        "--all-topics cannot be combined with --topic or --topics"
    );
}

#[test]
fn odd_options_get_kafkas_texts() {
    let p = Personality::Mirrors;
    assert_eq!(text_of(p, "--bogus"), "bogus is not a recognized option");
    assert_eq!(text_of(p, "--mirr m"), "mirr is not a recognized option");
    assert_eq!(
        text_of(p, "--list stray"),
        "stray is not a recognized option"
    );
    assert_eq!(
        text_of(p, "--list --mirror a --mirror b"),
        "Found multiple arguments for option mirror, but you asked for only one"
    );
    assert_eq!(
        text_of(p, "--list --mirror"),
        "Option mirror requires an argument"
    );
    assert_eq!(
        text_of(
            p,
            "--bootstrap-server :1 --mirror m --add --topic a --replication-factor x"
        ),
        "Cannot parse argument 'x' of option replication-factor"
    );
}

#[test]
fn an_invalid_pattern_is_refused_before_any_request() {
    assert_eq!(
        text_of(
            Personality::Mirrors,
            "--bootstrap-server :1 --mirror m --add --topic a("
        ),
        "Invalid topic pattern 'a(': unclosed group"
    );
}

#[test]
fn help_version_and_nothing_win_over_checks() {
    let p = Personality::Mirrors;
    assert_eq!(parse(p, &[]), Ok(Parsed::Nothing));
    assert_eq!(parse_line(p, "--create --list --help"), Ok(Parsed::Help));
    assert_eq!(parse_line(p, "--version"), Ok(Parsed::Version));
}

#[test]
fn alter_takes_lists_in_brackets() {
    let o = options(
        "--bootstrap-server :1 --mirror m --alter --add-config a=1,b=[x,y] --add-config c=2 --delete-config d,e",
    );
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert_eq!(
        o.add_config,
        [pair("a", "1"), pair("b", "x,y"), pair("c", "2")]
    );
    assert_eq!(o.delete_config, ["d", "e"]);
}

#[test]
fn wait_has_a_limit() {
    assert_eq!(
        options("--bootstrap-server :1 --mirror m --pause --topic a --wait").wait,
        Some(Duration::from_secs(60))
    );
    assert_eq!(
        options("--bootstrap-server :1 --mirror m --pause --topic a --wait --timeout-ms 5").wait,
        Some(Duration::from_millis(5))
    );
    assert_eq!(
        text_of(Personality::Mirrors, "--bootstrap-server :1 --list --wait"),
        "--wait is only valid with --add, --remove, --pause, or --resume"
    );
}

/// Our own tool shows a mirror's configuration.
#[test]
fn config_belongs_to_describe() {
    assert!(options("--bootstrap-server :1 --describe --config --mirror m --json").config);
    let p = Personality::Mirrors;
    for line in ["--list --config", "--describe --failed --config"] {
        assert_eq!(
            text_of(p, &format!("--bootstrap-server :1 {line}")),
            "--config is only valid with --describe, and not with --failed"
        );
    }
}
