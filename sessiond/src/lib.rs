//! sessiond
