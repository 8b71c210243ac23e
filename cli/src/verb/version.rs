//! `mews version`: of this client, of the daemons, and of what serves the living cages.

use crate::api::Api;
use crate::connect;
use crate::escape::escape;
use crate::failure::Failure;
use crate::hello;
use crate::out::{self, Say};
use serde_json::json;
use wire::api::Versions;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
After another mews was installed, the daemons go on as they were started: `mews daemon restart`
replaces them, and cages run on. A cage is served to its end by the mews that started it.

Examples:
  mews version
  mews version --json | jq -r .daemons.build")]
pub(crate) struct Args {}

pub(crate) async fn run(_args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::without_start();
    let daemons = match connect::connect(api.dirs())? {
        Some(_there) => Some(api.get::<Versions>("/versions").await?),
        None => None,
    };
    if say.json {
        out::json_line(&json!({ "client": hello::ours(), "daemons": daemons }))?;
        return Ok(0);
    }
    out::data(&format!("{}\n", hello::ours()))?;
    let Some(versions) = daemons else {
        say.note("no daemon is running");
        return Ok(0);
    };
    out::data(&format!(
        "sessiond    {} (protocol {})\nsupervisor  {}\n{}",
        escape(&versions.build),
        versions.proto,
        versions.supervisor.as_deref().map_or_else(|| "not connected".to_owned(), escape),
        others(&versions),
    ))?;
    advise(&versions, say);
    Ok(0)
}

/// One line for each living cage that another build serves, or that cannot be reached.
pub(crate) fn others(versions: &Versions) -> String {
    let lines = versions.cages.iter().map(|cage| {
        let build = cage.build.as_deref().map_or_else(|| "unknown".to_owned(), escape);
        let state = if cage.unreachable.is_some() { ", unreachable" } else { "" };
        format!("cage        {}: mews {build}{state}\n", escape(&cage.name))
    });
    lines.collect()
}

/// What to do where they differ.
pub(crate) fn advise(versions: &Versions, say: &Say) {
    let ours = &hello::ours().build;
    let supervisor = versions.supervisor.as_ref().unwrap_or(&versions.build);
    if [supervisor, &versions.build].iter().any(|build| *build != ours) {
        say.note(
            "the daemons are of another build than this client; `mews daemon restart` replaces \
             them by its own, and cages run on",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::api::CageBuild;

    #[test]
    fn cages_of_others_are_named_and_harmless() {
        let cage = |name: &str, build: Option<&str>, unreachable: Option<&str>| CageBuild {
            cage: wire::CageId::new(),
            session: wire::SessionId::new(),
            name: name.into(),
            build: build.map(str::to_owned),
            unreachable: unreachable.map(str::to_owned),
        };
        let versions = Versions {
            build: "1".into(),
            proto: 1,
            supervisor: None,
            pid: 1,
            supervisor_pid: None,
            epoch: 1,
            cages: vec![cage("a", Some("0.9\u{1b}"), None), cage("b", None, Some("why"))],
        };
        assert_eq!(
            others(&versions),
            "cage        a: mews 0.9\\u{1b}\ncage        b: mews unknown, unreachable\n"
        );
    }
}
