//! The session manager: durable truth about sessions, runs, cages, terminals and events.
//!
//! Owns the database and the HTTP API. Touches no cage and no terminal: what happens to those is
//! asked of the supervisor ([`supervisor_link`]), and what happened comes up as events
//! ([`keeper`], [`ledger`]). Never root.
#![deny(unsafe_code)]

pub mod access;
pub mod amending;
pub mod api;
pub mod app;
pub mod audit;
pub mod checkpoints;
pub mod clock;
pub mod daemon;
pub mod endings;
pub mod epoch;
pub mod filing;
pub mod grants;
pub mod jobs;
pub mod keeper;
pub mod layers;
pub mod ledger;
pub mod names;
pub mod pausing;
pub mod reconcile;
pub mod serve;
pub mod session;
pub mod store;
pub mod stream;
pub mod supervisor_link;
#[expect(unsafe_code, reason = "taking over an inherited descriptor")]
mod sys;
