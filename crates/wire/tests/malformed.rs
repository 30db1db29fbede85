//! Broken input: every message in every version, cut at every byte, and with impossible lengths at
//! every position. The answer is a value or a typed error; never a panic, and never more memory
//! than the input pays for.

mod sample;

use std::alloc::System;

use bytes::Bytes;
use sample::{Gen, Sample, Visitor, sample, visit_all};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tarn_wire::{Message, Reader, decode_exact, encode_body};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Memory a decoder may take in all, freed or not, for an input of `len` bytes.
fn allowed(len: usize) -> usize {
    4 * len + 64 * 1024
}

#[derive(Default)]
struct Broken {
    inputs: usize,
    worst: usize,
}

impl Broken {
    fn decode<M: Message>(&mut self, input: &[u8], version: i16) -> bool {
        let bytes = Bytes::copy_from_slice(input);
        let region = Region::new(ALLOCATOR);
        let result = M::decode(&mut Reader::new(bytes), version);
        let change = region.change();
        let taken = change.bytes_allocated;
        assert!(
            taken <= allowed(input.len()),
            "{} v{version} takes {taken} bytes for {input:02x?}",
            M::NAME
        );
        self.worst = self.worst.max(taken);
        self.inputs += 1;
        result.is_ok()
    }

    fn impossible_lengths<M: Message>(&mut self, body: &[u8], version: i16) {
        for at in 0..body.len() {
            let rest = (body.len() - at) as i32;
            for len in [-2, i32::MAX, rest + 1] {
                for patch in [
                    len.to_be_bytes().to_vec(),
                    (len as i16).to_be_bytes().to_vec(),
                    uvarint(len as u32),
                ] {
                    let mut broken = body.to_vec();
                    let end = (at + patch.len()).min(broken.len());
                    broken[at..end].copy_from_slice(&patch[..end - at]);
                    self.decode::<M>(&broken, version);
                }
            }
        }
    }
}

fn uvarint(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A value of middle size: longer ones only repeat the same fields.
fn body<M: Message + Sample>(version: i16) -> Bytes {
    let bodies = (0..20).map(|seed| {
        let message: M = sample(&mut Gen::new(seed), version);
        encode_body(&message, version).unwrap().to_bytes().unwrap()
    });
    let small_enough = bodies.filter(|body| body.len() < 400);
    small_enough.max_by_key(Bytes::len).unwrap_or_default()
}

impl Visitor for Broken {
    fn message<M: Message + Sample>(&mut self) {
        for version in M::VERSIONS.min..=M::VERSIONS.max {
            let body = body::<M>(version);
            for cut in 0..body.len() {
                self.decode::<M>(&body[..cut], version);
                let exact = decode_exact::<M>(body.slice(..cut), version);
                assert!(
                    exact.is_err(),
                    "{} v{version} decodes although cut at {cut} of {}",
                    M::NAME,
                    body.len()
                );
            }
            self.impossible_lengths::<M>(&body, version);
        }
    }
}

#[test]
fn broken_messages_give_errors_and_take_no_memory() {
    let mut broken = Broken::default();
    visit_all(&mut broken);
    println!(
        "{} inputs, at most {} bytes taken",
        broken.inputs, broken.worst
    );
    assert!(broken.inputs > 100_000);
}
