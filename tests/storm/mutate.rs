//! Breaks bytes: lengths, flips, cuts, repetitions.

use crate::sample::Gen;

/// Changes `bytes` behind `from` in one of the ways that find faults.
pub(crate) fn mutate(g: &mut Gen, bytes: &mut Vec<u8>, from: usize) {
    let from = from.min(bytes.len());
    let at = from + g.below((bytes.len() - from).max(1) as u64) as usize;
    match g.below(8) {
        0 => {
            for _ in 0..=g.below(4) {
                let at = from + g.below((bytes.len() - from).max(1) as u64) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << g.below(8);
                }
            }
        }
        1 => {
            let left = (bytes.len() - at) as i32;
            let values = [-2, -1, 0, i32::MIN, i32::MAX, left, left + 1, 1 << 20];
            let value = values[g.below(8) as usize].to_be_bytes();
            overwrite(bytes, at, &value);
        }
        2 => {
            let values = [-2, -1, 0, i16::MIN, i16::MAX, 1, 255, 256];
            let value: i16 = values[g.below(8) as usize];
            overwrite(bytes, at, &value.to_be_bytes());
        }
        3 => {
            let values: [&[u8]; 4] = [
                &[0xff, 0xff, 0xff, 0xff, 0x0f],
                &[0xff, 0xff, 0xff, 0xff, 0x07],
                &[0xff; 10],
                &[0x80, 0x80, 0x04],
            ];
            overwrite(bytes, at, values[g.below(4) as usize]);
        }
        4 => bytes.truncate(at),
        5 => bytes.extend((0..g.below(64)).map(|_| g.next() as u8)),
        6 => {
            let slice = bytes[at..].to_vec();
            let times = 1 + g.below(50) as usize;
            bytes.splice(at..at, slice.repeat(times).into_iter().take(4096));
        }
        _ => {
            let value = (g.next() as i64).to_be_bytes();
            overwrite(bytes, at, &value);
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, value: &[u8]) {
    let end = bytes.len().min(at + value.len());
    bytes[at..end].copy_from_slice(&value[..end - at]);
}
