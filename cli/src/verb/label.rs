//! `mews label`: words of the operator's own on a session, to find it by.

use crate::api::Api;
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use std::collections::BTreeMap;
use wire::api::{PatchSession, SessionView};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without anything to set it shows the labels. `mews ls --label KEY[=VALUE]` finds sessions by them.

Examples:
  mews label review
  mews label review team=blue urgent=
  mews label review urgent-")]
pub(crate) struct Args {
    /// Name or id
    id: String,
    /// KEY=VALUE sets a label, KEY- takes it away
    #[arg(value_name = "KEY=VALUE|KEY-")]
    changes: Vec<String>,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let labels = asked(&args.changes)?;
    let api = Api::new();
    let path = format!("/sessions/{}", api.resolve(&args.id).await?.session);
    let view: SessionView = if labels.is_empty() {
        api.get(&path).await?
    } else {
        api.patch(&path, &PatchSession { labels, ..PatchSession::default() }).await?
    };
    if say.json {
        out::json_line(&view)?;
        return Ok(0);
    }
    let lines =
        view.labels.iter().map(|(key, value)| format!("{}={}\n", escape(key), escape(value)));
    out::data(&lines.collect::<String>())?;
    Ok(0)
}

fn asked(changes: &[String]) -> Result<BTreeMap<String, Option<String>>, Failure> {
    let mut labels = BTreeMap::new();
    for change in changes {
        let (key, value) = match (change.split_once('='), change.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Some(value.to_owned())),
            (None, Some(key)) => (key, None),
            (None, None) => ("", None),
        };
        if key.is_empty() {
            let words =
                format!("{change:?} is neither KEY=VALUE nor KEY-, such as team=blue or team-");
            return Err(Failure::usage(words));
        }
        if labels.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{key} is given twice; say it once")));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_set_taken_away_or_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found = asked(&words("team=blue a=b=c- old- empty=")).unwrap();
        let want = r#"{"a":"b=c-","empty":"","old":null,"team":"blue"}"#;
        assert_eq!(serde_json::to_string(&found).unwrap(), want);
        for bad in ["team", "=blue", "-", "team=blue team-"] {
            assert!(asked(&words(bad)).is_err(), "{bad}");
        }
    }
}
