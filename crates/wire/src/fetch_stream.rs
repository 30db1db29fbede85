//! A push parser of Fetch responses: record bytes are handed on while they arrive, before the response is complete.
//!
//! Owns the framing of Fetch responses 4 to 18 as a stream; does not look into record batches.
