//! The command line: `mews-supervisor [--one-shot] [--ready-fd N]`.

use std::ffi::OsString;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// One caller on descriptor 3; no sockets, no sessiond; ends with its caller.
    pub one_shot: bool,
    /// Where `ready` is written once everything answers. The log then goes to a file.
    pub ready_fd: Option<i32>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}. Usage: mews-supervisor [--one-shot] [--ready-fd N]")]
pub struct BadOptions(String);

impl Options {
    /// # Errors
    /// An argument that is none of ours.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, BadOptions> {
        let mut options = Self::default();
        let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned());
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--one-shot" => options.one_shot = true,
                "--ready-fd" => {
                    let number = args.next().and_then(|n| n.parse().ok()).filter(|n| *n > 2);
                    let number = number.ok_or_else(|| {
                        BadOptions("--ready-fd wants a descriptor above 2".into())
                    })?;
                    options.ready_fd = Some(number);
                }
                other => return Err(BadOptions(format!("unknown argument '{other}'"))),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |text: &str| Options::parse(text.split_whitespace().map(OsString::from));
        assert_eq!(parse(""), Ok(Options::default()));
        assert_eq!(parse("--one-shot"), Ok(Options { one_shot: true, ready_fd: None }));
        assert_eq!(parse("--ready-fd 5"), Ok(Options { one_shot: false, ready_fd: Some(5) }));
        for bad in ["--ready-fd", "--ready-fd 1", "--ready-fd x", "x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
