//! Ids, strings, variable length integers, headers, frames.

use bytes::Bytes;

use crate::messages::*;
use crate::*;

#[test]
fn an_id_prints_and_reads_as_kafka_does() {
    let id = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(id.to_string(), "AAECAwQFBgcICQoLDA0ODw");
    assert_eq!("AAECAwQFBgcICQoLDA0ODw".parse(), Ok(id));
    assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
    assert_eq!("short".parse::<Uuid>(), Err(WireError::InvalidUuid));
    for _ in 0..200 {
        let id = Uuid::random();
        assert!(!id.to_string().starts_with('-'));
        assert_eq!(id.to_string().parse(), Ok(id));
    }
}

#[test]
fn variable_length_integers_end_at_32_bits() {
    for value in [0, 1, 127, 128, 300, 16383, 16384, u32::MAX] {
        let mut w = Writer::new();
        w.uvarint(value);
        assert_eq!(
            Reader::new(w.finish().to_bytes().unwrap()).uvarint(),
            Ok(value)
        );
    }
    assert_eq!(
        Reader::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x1f])).uvarint(),
        Err(WireError::VarintTooLong)
    );
    assert_eq!(
        Reader::new(Bytes::from_static(&[0x80; 9])).uvarint(),
        Err(WireError::VarintTooLong)
    );
}

#[test]
fn decoded_strings_and_records_are_slices_of_the_input() {
    let partition = produce_request::PartitionProduceData {
        records: Some(Bytes::from(vec![7; 100]).into()),
        ..Default::default()
    };
    let topic = produce_request::TopicProduceData {
        name: "orders".into(),
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        topic_data: vec![topic],
        ..Default::default()
    };
    let body = encode_body(&request, 9).unwrap();
    assert_eq!(body.segments.len(), 3, "records are a segment of their own");
    let body = body.to_bytes().unwrap();
    let decoded: ProduceRequest = decode_exact(body.clone(), 9).unwrap();
    let within = |part: &Bytes| body.as_ptr_range().contains(&part.as_ptr());
    assert!(within(decoded.topic_data[0].name.as_bytes()));
    assert!(within(
        decoded.topic_data[0].partition_data[0]
            .records
            .as_ref()
            .unwrap()
            .as_bytes()
            .unwrap()
    ));
    assert!(!within(decoded.topic_data[0].name.detach().as_bytes()));
    assert_eq!(decoded, request);
}

#[test]
fn request_frames_carry_the_header_their_version_asks_for() {
    for (version, header_len) in [(0, 8 + 2 + 1), (3, 8 + 2 + 1 + 1)] {
        let frame = request_frame(7, Some("c"), version, &ApiVersionsRequest::default()).unwrap();
        let bytes = frame.to_bytes().unwrap();
        assert_eq!(frame.len, bytes.len() as u64);
        assert_eq!(bytes[..4], (bytes.len() as i32 - 4).to_be_bytes());
        let bytes = bytes.slice(4..);
        assert_eq!(
            peek_request(&bytes),
            Some((ApiKey::API_VERSIONS, version, 7))
        );
        let (header, body) = decode_request_header(bytes.clone()).unwrap();
        assert_eq!(
            (header.client_id.as_deref(), header.correlation_id),
            (Some("c"), 7)
        );
        assert_eq!(bytes.len() - body.len(), header_len);
    }
    assert_eq!(peek_request(&[0; 7]), None);
    assert!(decode_request_header(Bytes::from_static(&[0, 3, 0, 1])).is_err());
}

#[test]
fn the_answer_to_api_versions_has_no_tagged_header() {
    let frame =
        response_frame(ApiKey::API_VERSIONS, 9, 3, &ApiVersionsResponse::default()).unwrap();
    let bytes = frame.to_bytes().unwrap().slice(4..);
    assert_eq!(response_header_version::<ApiVersionsRequest>(3), 0);
    let (header, body) = decode_response_header(bytes, 0).unwrap();
    assert_eq!(header.correlation_id, 9);
    assert_eq!(decode_exact(body, 3), Ok(ApiVersionsResponse::default()));
    assert_eq!(response_header_version::<MetadataRequest>(9), 1);
    assert_eq!(response_header_version::<MetadataRequest>(8), 0);
}

#[test]
fn a_field_that_matters_is_not_dropped_silently() {
    let request = CreateTopicsRequest {
        validate_only: true,
        ..Default::default()
    };
    assert!(encode_body(&request, 2).is_ok());
    let request = FindCoordinatorRequest {
        coordinator_keys: vec!["g".into()],
        ..Default::default()
    };
    assert_eq!(
        encode_body(&request, 3),
        Err(WireError::FieldNotInVersion {
            field: "CoordinatorKeys",
            version: 3
        })
    );
    let request = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    assert_eq!(
        encode_body(&request, 0),
        Err(WireError::NullField {
            field: "Topics",
            version: 0
        })
    );
}

#[test]
fn tagged_fields_are_written_in_order_of_their_numbers() {
    let mut response = FetchResponse::default();
    let endpoint = fetch_response::NodeEndpoint {
        node_id: 1,
        host: "h".into(),
        port: 9092,
        ..Default::default()
    };
    response.node_endpoints.push(endpoint);
    response.unknown_tagged = vec![(5, Bytes::from_static(b"five"))];
    let body = encode_body(&response, 17).unwrap().to_bytes().unwrap();
    assert_eq!(decode_exact(body, 17), Ok(response));
}

#[test]
fn large_tagged_content_gets_a_longer_size() {
    let mut w = Writer::new();
    w.tag(1, |w| {
        w.raw(&[9; 300]);
        Ok(())
    })
    .unwrap();
    let bytes = w.finish().to_bytes().unwrap();
    assert_eq!(bytes[..3], [1, 0xac, 0x02]);
    assert_eq!(bytes[3..], [9; 300]);
}

#[test]
fn every_error_code_has_its_name() {
    assert_eq!(ErrorCode::NONE.name(), "NONE");
    assert_eq!(ErrorCode(44), ErrorCode::POLICY_VIOLATION);
    assert_eq!(ErrorCode(999).name(), "UNKNOWN");
    assert!(ErrorCode::NOT_COORDINATOR.is_retriable());
    assert!(ErrorCode::ALL.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn the_api_table_agrees_with_the_schemas() {
    assert!(apis::APIS.windows(2).all(|pair| pair[0].key < pair[1].key));
    for api in apis::APIS {
        let codec = api.codec();
        assert!(
            api.versions.max <= codec.max,
            "{api:?}: announced but unknown to the codec"
        );
        assert!(
            api.versions.min == codec.min || api.key == ApiKey::PRODUCE,
            "{api:?}"
        );
    }
}
