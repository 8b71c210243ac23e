//! ptybroker
