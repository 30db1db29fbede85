//! Every message in every version: what is written is read back, and ends where it should.

mod sample;

use proptest::prelude::*;
use sample::{Gen, Sample, Visitor, sample, visit_all};
use tarn_wire::{Message, decode_exact, encode_body};

struct RoundTrip {
    seed: u64,
    pairs: usize,
}

impl Visitor for RoundTrip {
    fn message<M: Message + Sample>(&mut self) {
        for version in M::VERSIONS.min..=M::VERSIONS.max {
            let mut g = Gen::new(self.seed.wrapping_add(version as u64));
            for _ in 0..3 {
                let message: M = sample(&mut g, version);
                let body = encode_body(&message, version)
                    .unwrap_or_else(|e| panic!("{} v{version}: {e}", M::NAME));
                let body = body.to_bytes().unwrap();
                let back = decode_exact::<M>(body.clone(), version);
                assert_eq!(
                    back.as_ref(),
                    Ok(&message),
                    "{} v{version}: {body:02x?}",
                    M::NAME
                );
                assert!(
                    M::MIN_SIZE <= body.len(),
                    "{} v{version} is shorter than its minimum",
                    M::NAME
                );
            }
            // Defaults are no random values, but the commonest ones.
            if let Ok(body) = encode_body(&M::default(), version) {
                let back: M = decode_exact(body.to_bytes().unwrap(), version).unwrap();
                assert_eq!(
                    encode_body(&back, version).unwrap().to_bytes(),
                    body.to_bytes()
                );
            }
            self.pairs += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_survives_a_round_trip(seed in any::<u64>()) {
        let mut visitor = RoundTrip { seed, pairs: 0 };
        visit_all(&mut visitor);
        prop_assert!(visitor.pairs > 700, "only {} pairs of message and version", visitor.pairs);
    }
}
