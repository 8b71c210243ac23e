//! cage
pub mod launch;
pub mod orders;
