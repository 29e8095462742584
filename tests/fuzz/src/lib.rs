//! Harnesses: how fuzzed bytes reach a decoder, and what must hold afterwards.

pub mod control;
pub mod packets;
pub mod records;
pub mod seeded;
pub mod virtio;
