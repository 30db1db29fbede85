//! [`Uuid`]: Kafka's 128 bit id and its text form.

use std::fmt;
use std::str::FromStr;

use crate::WireError;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TEXT_LEN: usize = 22;

/// A 128 bit id (topic, cluster, directory, producer incarnation, …). Its text is unpadded
/// base64url, 22 characters.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All zero: "no id" everywhere in Kafka.
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// The topic id of the metadata log.
    pub const METADATA_TOPIC: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    /// How many low numbers are reserved (directory ids use the first ones as markers).
    const RESERVED: u128 = 100;

    /// A new random id (version 4) that is not reserved and whose text does not start with a dash,
    /// so that command line tools never take it for an option.
    pub fn random() -> Uuid {
        loop {
            let id = Uuid(*uuid::Uuid::new_v4().as_bytes());
            if u128::from_be_bytes(id.0) >= Uuid::RESERVED && id.digit(0) != b'-' {
                return id;
            }
        }
    }

    /// True for [`Uuid::ZERO`].
    pub fn is_zero(&self) -> bool {
        *self == Uuid::ZERO
    }

    /// From the two big-endian halves that Kafka's tools print.
    pub fn from_halves(most: u64, least: u64) -> Uuid {
        Uuid((u128::from(most) << 64 | u128::from(least)).to_be_bytes())
    }

    fn digit(&self, at: usize) -> u8 {
        // 22 digits carry 132 bits, so the last one is padded with four zero bits.
        let value = u128::from_be_bytes(self.0);
        let low = 122 - 6 * at as i32;
        let bits = if low >= 0 {
            value >> low
        } else {
            value << -low
        };
        ALPHABET[(bits & 63) as usize]
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: [u8; TEXT_LEN] = std::array::from_fn(|at| self.digit(at));
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Uuid, WireError> {
        let digits = text
            .as_bytes()
            .strip_suffix(b"==")
            .unwrap_or(text.as_bytes());
        if digits.len() != TEXT_LEN {
            return Err(WireError::InvalidUuid);
        }
        let mut value: u128 = 0;
        for (at, digit) in digits.iter().enumerate() {
            let bits = ALPHABET
                .iter()
                .position(|c| c == digit)
                .ok_or(WireError::InvalidUuid)? as u128;
            let low = 122 - 6 * at as i32;
            value |= if low >= 0 { bits << low } else { bits >> -low };
        }
        Ok(Uuid(value.to_be_bytes()))
    }
}
