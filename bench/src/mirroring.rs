//! What the mirror scenarios share: the filled source Kafka, the destination in its two forms, the
//! outside observer, and the proof that a copy is right. Not here: what is measured
//! (`scenarios/mirror_*`), how MirrorMaker 2 is run (`mm2`).

pub mod destination;
pub mod fill;
pub mod observe;
pub mod source;
pub mod wire;
