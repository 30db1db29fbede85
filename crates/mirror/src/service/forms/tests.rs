//! The golden bodies and what each proves.

use super::*;

fn hex(text: &str) -> Bytes {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn proof(key: ApiKey, body: &str, configured: WireDialect) -> Option<Proof> {
    parse(key, &hex(body), configured).ok().map(|p| p.proof)
}

/// The golden bodies, and what each proves.
#[test]
fn each_golden_body_proves_what_the_table_says() {
    use Dialect::{Early, Late, Next};
    use Proof::{Content, Form, Nothing};
    let mirror = "0a6d792d6d6972726f72";
    let id = "000102030405060708090a0b0c0d0e0f";
    let rows = [
        (
            ApiKey::CREATE_MIRROR,
            format!("{mirror}0212626f6f7473747261702e73657276657273097372633a393039320000"),
            Nothing,
        ),
        (
            ApiKey::CREATE_MIRROR,
            format!("{mirror}02196d6972726f722e736f757263652e636c75737465722e69640461626300 00")
                .replace(' ', ""),
            Content(Late),
        ),
        (
            ApiKey::ADD_TOPICS_TO_MIRROR,
            format!("{mirror}02{id}04666f6f0000"),
            Form(Early),
        ),
        (
            ApiKey::ADD_TOPICS_TO_MIRROR,
            format!("{mirror}02{id}04666f6f0000000300ffffffffffffffff0100050204666f6f"),
            Form(Late),
        ),
        (
            ApiKey::REMOVE_TOPICS_FROM_MIRROR,
            format!("{mirror}02{id}04666f6f0000"),
            Form(Early),
        ),
        (
            ApiKey::REMOVE_TOPICS_FROM_MIRROR,
            format!("{mirror}0204666f6f00ffffffffffffffff0100050204666f6f"),
            Form(Late),
        ),
        (
            ApiKey::PAUSE_MIRROR_TOPICS,
            format!("{mirror}0204666f6f00ffffffffffffffff00"),
            Form(Late),
        ),
        (ApiKey::LIST_MIRRORS, "00".into(), Form(Early)),
        (ApiKey::LIST_MIRRORS, "0100".into(), Form(Late)),
        (ApiKey::DESCRIBE_MIRRORS, "010000".into(), Nothing),
        (ApiKey::DESCRIBE_MIRRORS, "000000".into(), Form(Next)),
        (
            ApiKey::DESCRIBE_MIRRORS,
            format!("010002000404616263011702{id}020000000000"),
            Form(Late),
        ),
        (
            ApiKey::READ_MIRROR_STATES,
            format!("{mirror}0204666f6f0200000000000000"),
            Nothing,
        ),
        (
            ApiKey::WRITE_MIRROR_STATES,
            format!("{mirror}0204666f6f0200000000ffffffff0100000100"),
            Nothing,
        ),
        (
            ApiKey::BUMP_LEADER_EPOCHS,
            format!("02{id}020000000000000007000000"),
            Nothing,
        ),
        (ApiKey::DELETE_MIRROR, format!("{mirror}00"), Form(Early)),
        (
            ApiKey::DELETE_MIRROR,
            format!("{mirror}ffffffffffffffff00"),
            Form(Late),
        ),
    ];
    for (key, body, want) in rows {
        assert_eq!(
            proof(key, &body, WireDialect::Auto),
            Some(want),
            "{} {body}",
            key.name()
        );
    }
}

/// `mirror.wire.dialect` overrides what would be accepted.
#[test]
fn a_set_dialect_accepts_its_own_forms_only() {
    let early = WireDialect::Only(Dialect::Early);
    let late = WireDialect::Only(Dialect::Late);
    assert!(proof(ApiKey::LIST_MIRRORS, "0100", early).is_none());
    assert!(proof(ApiKey::LIST_MIRRORS, "00", late).is_none());
    assert_eq!(
        proof(
            ApiKey::LIST_MIRRORS,
            "0100",
            WireDialect::Only(Dialect::Next)
        ),
        Some(Proof::Form(Dialect::Next))
    );
}

#[test]
fn a_state_validation_offset_is_kept() {
    let request = |offset: &str| {
        let body = format!("0a6d792d6d6972726f720204666f6f00{offset}00");
        let parsed = parse(ApiKey::PAUSE_MIRROR_TOPICS, &hex(&body), WireDialect::Auto);
        match parsed.unwrap().request {
            MirrorRequest::Change { checked_at, .. } => checked_at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(request("ffffffffffffffff"), None);
    assert_eq!(request("0000000000000007"), Some(7));
}
