//! `mews shell`: a shell in a living cage.

use super::exec;
use super::watching::Keys;
use crate::failure::Failure;
use crate::out::Say;
use crate::request;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews shell pi-1                 look around beside the agent
  echo 'ls -l' | mews shell pi-1")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    #[command(flatten)]
    keys: Keys,
}

pub(crate) async fn run(args: Args, say: &Say) -> Result<u8, Failure> {
    let Args { id, keys } = args;
    let command = vec![request::shell().into()];
    exec::run(exec::Args { id, detach: false, no_tty: false, keys, command }, say).await
}
