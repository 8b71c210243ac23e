//! ptybroker
pub mod limiter;
pub mod queue;
pub mod recording;
pub mod ring;
pub mod screen;
pub mod scrollback;
