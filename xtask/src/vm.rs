//! The product as it is installed, on Debian with systemd and nothing but cgroup v2, in an emulated
//! machine: suites that the developer's own host cannot have.

mod boot;
mod image;
mod payload;

use crate::build::{Profile, Scope, build};
use crate::tally::Tally;
use anyhow::{Context as _, bail};

/// What is run if nobody says what. Emulated, so each part is chosen for what differs on such a host:
/// the suites as a whole are for the host itself.
const SUITES: &[&str] = &[
    "system",
    "cage",
    "limits.memory",
    "limits.pids",
    "limits.cpu",
    "limits.io",
    "limits.swap_on_top_of_memory",
    "limits.changed_on_a_living_cage",
    "suspend",
    "restart",
    "operators",
    "checkpoint.overlay.rollback_brings_files_back",
    "checkpoint.overlay.for_an_ordinary_user.rollback_brings_files_back",
    "users.the_same_walls",
    "users.absent_limits_are_said",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debian {
    Twelve,
    Thirteen,
}

impl Debian {
    const ALL: [Self; 2] = [Self::Twelve, Self::Thirteen];

    fn number(self) -> &'static str {
        match self {
            Self::Twelve => "12",
            Self::Thirteen => "13",
        }
    }

    /// As the archive calls it.
    fn suite(self) -> &'static str {
        match self {
            Self::Twelve => "bookworm",
            Self::Thirteen => "trixie",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    guests: Vec<Debian>,
    profile: Profile,
    suites: Vec<String>,
}

/// # Errors
/// Something could not be built or started.
pub(crate) fn vm(args: &[String]) -> anyhow::Result<bool> {
    let options = parse(args)?;
    if std::env::consts::ARCH != "x86_64" {
        bail!("the guests are x86_64, this host is {}", std::env::consts::ARCH);
    }
    let images: Vec<image::Image> =
        options.guests.iter().map(|guest| image::ready(*guest)).collect::<anyhow::Result<_>>()?;
    build(options.profile, Scope::Guest)?;
    let payload = payload::make(options.profile, &options.suites)?;
    let mut tally = Tally::default();
    for (guest, image) in options.guests.iter().zip(&images) {
        println!("=== Debian {}", guest.number());
        boot::run(image, &payload, &mut tally)?;
    }
    println!("{tally}");
    Ok(tally.all_passed())
}

fn parse(args: &[String]) -> anyhow::Result<Options> {
    let mut options =
        Options { guests: Debian::ALL.to_vec(), profile: Profile::Release, suites: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--debian" => {
                let number = args.next().context("--debian wants 12 or 13")?;
                let guest = Debian::ALL.into_iter().find(|guest| guest.number() == number);
                options.guests =
                    vec![guest.with_context(|| format!("no guest Debian {number}: 12 or 13"))?];
            }
            "--debug" => options.profile = Profile::Dev,
            other if other.starts_with('-') => {
                bail!("vm: no option {other}: --debian 12|13, --debug")
            }
            suite => options.suites.push(suite.to_owned()),
        }
    }
    if options.suites.is_empty() {
        options.suites = SUITES.iter().map(|&suite| suite.to_owned()).collect();
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> anyhow::Result<Options> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args)
    }

    #[test]
    fn both_guests_and_the_release_build_unless_told_otherwise() {
        let all = parsed("").unwrap();
        assert_eq!((all.guests, all.profile), (Debian::ALL.to_vec(), Profile::Release));
        assert_eq!(all.suites, SUITES);
        let one = parsed("--debian 13 --debug limits restart.kill_both").unwrap();
        assert_eq!((one.guests, one.profile), (vec![Debian::Thirteen], Profile::Dev));
        assert_eq!(one.suites, ["limits", "restart.kill_both"]);
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (line, word) in
            [("--debian 11", "11"), ("--debian", "12 or 13"), ("--relaese", "--relaese")]
        {
            let told = parsed(line).unwrap_err().to_string();
            assert!(told.contains(word), "{told}");
        }
    }
}
