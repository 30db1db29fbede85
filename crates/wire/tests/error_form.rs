//! An answer that a version cannot express still becomes an answer.

mod sample;

use sample::{Gen, ResponseVisitor, Sample, sample, visit_responses};
use tarn_wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use tarn_wire::messages::{FindCoordinatorResponse, ListOffsetsResponse};
use tarn_wire::{
    ApiKey, ErrorCode, ErrorForm, Message, Reader, Str, WireError, answer_frame, decode_exact,
    decode_response_header, encode_body,
};

struct Forms {
    seed: u64,
    pairs: usize,
    refused: usize,
}

impl ResponseVisitor for Forms {
    fn response<M: Message + Sample + ErrorForm>(&mut self) {
        for version in M::VERSIONS.min..=M::VERSIONS.max {
            // Values that another version has, which is what a handler that forgets the version
            // makes.
            for from in [M::VERSIONS.min, M::VERSIONS.max] {
                let message: M = sample(&mut Gen::new(self.seed), from);
                self.refused += usize::from(encode_body(&message, version).is_err());
                let form = message.error_form(version, -1);
                let body = encode_body(&form, version)
                    .unwrap_or_else(|e| panic!("{} v{version}: {e}", M::NAME));
                let back = decode_exact::<M>(body.to_bytes().unwrap(), version);
                assert_eq!(back.as_ref(), Ok(&form), "{} v{version}", M::NAME);
            }
            self.pairs += 1;
        }
    }
}

#[test]
fn the_error_form_of_every_response_is_encoded_in_every_version() {
    let (mut pairs, mut refused) = (0, 0);
    for seed in 0..20 {
        let mut forms = Forms {
            seed,
            pairs: 0,
            refused: 0,
        };
        visit_responses(&mut forms);
        pairs = forms.pairs;
        refused += forms.refused;
    }
    assert!(pairs > 250, "only {pairs} pairs of response and version");
    assert!(refused > 250, "the values of other versions were no test");
}

fn listed(name: Str) -> ListOffsetsResponse {
    let partition = ListOffsetsPartitionResponse {
        partition_index: 7,
        timestamp: 5,
        offset: 42,
        leader_epoch: 3,
        ..Default::default()
    };
    let topic = ListOffsetsTopicResponse {
        name,
        partitions: vec![partition],
        ..Default::default()
    };
    ListOffsetsResponse {
        topics: vec![topic],
        ..Default::default()
    }
}

/// The leader epoch is left out of versions 1 to 3, as Kafka's handler does; the offset is what
/// counts.
#[test]
fn an_offset_with_an_epoch_is_told_in_every_version_of_list_offsets() {
    for version in 1..=11 {
        let body = encode_body(&listed(Str::from("t")), version).unwrap();
        let back: ListOffsetsResponse = decode_exact(body.to_bytes().unwrap(), version).unwrap();
        let partition = &back.topics[0].partitions[0];
        let epoch = if version < 4 { -1 } else { 3 };
        assert_eq!((partition.offset, partition.leader_epoch), (42, epoch));
    }
}

#[test]
fn what_cannot_be_said_is_still_refused() {
    let wrong = FindCoordinatorResponse {
        error_code: 35,
        ..Default::default()
    };
    let refused = WireError::FieldNotInVersion {
        field: "ErrorCode",
        version: 4,
    };
    assert_eq!(encode_body(&wrong, 4).unwrap_err(), refused);
}

#[test]
fn an_answer_that_cannot_be_encoded_names_its_partitions_and_the_error() {
    let name = Str::from("ä".repeat(20_000));
    let code = ErrorCode::UNKNOWN_SERVER_ERROR;
    let (frame, reason) = answer_frame(ApiKey::LIST_OFFSETS, 9, 1, &listed(name), code).unwrap();
    assert_eq!(reason, Some(WireError::TooLong(40_000)));
    let bytes = frame.to_bytes().unwrap().slice(4..);
    let (header, body) = decode_response_header(bytes, 0).unwrap();
    assert_eq!(header.correlation_id, 9);
    let back = ListOffsetsResponse::decode(&mut Reader::new(body), 1).unwrap();
    assert_eq!(back.topics[0].name.as_str(), "ä".repeat(512));
    let partition = &back.topics[0].partitions[0];
    assert_eq!((partition.partition_index, partition.error_code), (7, -1));
}
