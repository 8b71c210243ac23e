//! One verb, one file.

pub(crate) mod archive;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod cancel;
pub(crate) mod changes;
pub(crate) mod checkpoint;
pub(crate) mod completions;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod end;
pub(crate) mod events;
pub(crate) mod exec;
mod explain;
mod flags;
pub(crate) mod grants;
pub(crate) mod inspect;
pub(crate) mod kill;
pub(crate) mod label;
pub(crate) mod limits;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod pause;
mod pick;
pub(crate) mod policy;
pub(crate) mod prune;
pub(crate) mod rename;
pub(crate) mod rm;
pub(crate) mod run;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod screen;
pub(crate) mod send;
pub(crate) mod shell;
pub(crate) mod stats;
pub(crate) mod top;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod watching;

use crate::args::{Cli, Verb};
use crate::failure::Failure;
use crate::out::Say;

pub(crate) async fn run(cli: Cli, say: &Say) -> Result<u8, Failure> {
    let Some(verb) = cli.verb else { return ls::overview(say).await };
    match verb {
        Verb::Run(args) => run::run(*args, say).await,
        Verb::Ls(args) => ls::run(&args, say).await,
        Verb::Attach(args) => attach::run(args, say).await,
        Verb::Exec(args) => exec::run(args, say).await,
        Verb::Shell(args) => shell::run(args, say).await,
        Verb::Logs(args) => logs::run(&args, say).await,
        Verb::Inspect(args) => inspect::run(&args, say).await,
        Verb::Events(args) => events::run(&args, say).await,
        Verb::Send(args) => send::run(&args, say).await,
        Verb::Screen(args) => screen::run(&args, say).await,
        Verb::Wait(args) => wait::run(&args, say).await,
        Verb::Kill(args) => kill::run(&args, say).await,
        Verb::Pause(args) => pause::pause(&args, say).await,
        Verb::Resume(args) => pause::resume(&args, say).await,
        Verb::Checkpoint(args) => checkpoint::take(&args, say).await,
        Verb::Checkpoints(args) => checkpoint::list(&args, say).await,
        Verb::Rollback(args) => checkpoint::rollback(&args, say).await,
        Verb::Diff(args) => changes::diff(&args, say).await,
        Verb::Apply(args) => changes::apply(&args, say).await,
        Verb::Discard(args) => changes::discard(&args, say).await,
        Verb::Top(args) => top::run(&args, say).await,
        Verb::Stats(args) => stats::run(&args, say).await,
        Verb::Limits(args) => limits::run(&args, say).await,
        Verb::Grants(args) => grants::run(args, say).await,
        Verb::Audit(args) => audit::run(&args, say).await,
        Verb::Rename(args) => rename::run(&args, say).await,
        Verb::Label(args) => label::run(&args, say).await,
        Verb::Archive(args) => archive::run(&args, say).await,
        Verb::Cancel(args) => cancel::run(&args, say).await,
        Verb::End(args) => end::run(&args, say).await,
        Verb::Rm(args) => rm::run(&args, say).await,
        Verb::Prune(args) => prune::run(&args, say).await,
        Verb::Policy(args) => policy::run(*args, say).await,
        Verb::Doctor(args) => doctor::run(&args, say).await,
        Verb::Version(args) => version::run(&args, say).await,
        Verb::Completions(args) => completions::run(&args, say),
        Verb::Man(args) => man::run(&args, say),
        Verb::Daemon(args) => daemon::run(&args, say).await,
    }
}
