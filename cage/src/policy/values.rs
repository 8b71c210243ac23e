//! Checked values: parsed once, at the border, with words that tell how to mend a bad one.

use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// Why a value is refused; becomes the message of a `PolicyError`, with the line beside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub(crate) String);

fn bad<T>(message: impl Into<String>) -> Result<T, BadValue> {
    Err(BadValue(message.into()))
}

/// A number of bytes: `4096`, `"512M"`, `"1.5G"`, `"2GiB"`. Powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let hint = "write a number of bytes or a size such as \"512M\" or \"2G\"";
        let trimmed = text.trim();
        let digits =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let Some(factor) = unit_bytes(unit.trim()) else {
            return bad(format!("{text:?} is not a size: unknown unit {unit:?}; {hint}"));
        };
        scaled(number, factor)
            .map(Self)
            .map_or_else(|| bad(format!("{text:?} is not a size; {hint}")), Ok)
    }
}

fn unit_bytes(unit: &str) -> Option<u64> {
    Some(match unit {
        "" | "B" => 1,
        "K" | "k" | "KiB" | "KB" => 1 << 10,
        "M" | "m" | "MiB" | "MB" => 1 << 20,
        "G" | "g" | "GiB" | "GB" => 1 << 30,
        "T" | "t" | "TiB" | "TB" => 1 << 40,
        _ => return None,
    })
}

/// `number × factor`, exact, with up to three decimals; `None` on overflow or nonsense.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let thousandths: u64 = format!("{fraction:0<3}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    let rest = u128::from(thousandths) * u128::from(factor) / 1000;
    whole.checked_mul(factor)?.checked_add(u64::try_from(rest).ok()?)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if bytes != 0 && bytes.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", bytes >> shift);
            }
        }
        write!(f, "{bytes}")
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size: write a number of bytes or a text such as \"512M\"")]
        enum Form {
            Number(i64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(bytes) => u64::try_from(bytes).map(Self).map_err(|_negative| {
                de::Error::custom(format!("{bytes} is not a size: it must not be negative"))
            }),
            Form::Text(text) => Self::parse(&text).map_err(de::Error::custom),
        }
    }
}

/// A length of time in whole milliseconds: `"500ms"`, `"30s"`, `"10m"`, `"1h"`, `"1h30m"`, `"2d"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl Millis {
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let hint = "write a length of time such as \"500ms\", \"30s\", \"10m\" or \"1h30m\"";
        let refused = || BadValue(format!("{text:?} is not a length of time; {hint}"));
        let mut rest = text.trim();
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(refused());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
            let (number, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let factor = unit_ms(unit).ok_or_else(refused)?;
            let number: u64 = number.parse().map_err(|_not_a_number| refused())?;
            let part = number.checked_mul(factor).ok_or_else(refused)?;
            total = total.checked_add(part).ok_or_else(refused)?;
            rest = tail;
        }
        if total == 0 {
            return bad(format!("{text:?} is no time at all; leave the key out for no limit"));
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(mut rest) = *self;
        if rest == 0 {
            return f.write_str("0ms");
        }
        for unit in ["d", "h", "m", "s", "ms"] {
            let factor = unit_ms(unit).unwrap_or(1);
            if rest >= factor {
                write!(f, "{}{unit}", rest / factor)?;
                rest %= factor;
            }
        }
        Ok(())
    }
}

fn unit_ms(unit: &str) -> Option<u64> {
    Some(match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    })
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// For a program to stop by itself. Pid 1 of the cage does nothing else meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grace(pub(super) Millis);

/// In milliseconds.
const GRACE_MAX: u64 = 60_000;

impl<'de> Deserialize<'de> for Grace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let grace = Millis::deserialize(deserializer)?;
        if grace.0 > GRACE_MAX {
            return Err(de::Error::custom("a grace is at most \"60s\""));
        }
        Ok(Self(grace))
    }
}

/// CPUs, in thousandths: `1.0`, `2`, `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CpuMilli(pub(super) u64);

impl<'de> Deserialize<'de> for CpuMilli {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let cpus = f64::deserialize(deserializer)?;
        cpu_milli(cpus).map(Self).map_err(de::Error::custom)
    }
}

pub(super) fn cpu_milli(cpus: f64) -> Result<u64, BadValue> {
    if !(0.01..=4096.0).contains(&cpus) {
        return bad(format!(
            "{cpus} CPUs cannot be given; write a number from 0.01 to 4096, such as 1.0"
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked above"
    )]
    let milli = (cpus * 1000.0).round() as u64;
    Ok(milli)
}

/// Bytes a second; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Speed(pub(super) u64);

impl Speed {
    /// With or without the `/s` that it is shown with.
    pub(super) fn parse(text: &str) -> Result<Self, BadValue> {
        let text = text.trim();
        Bytes::parse(text.strip_suffix("/s").unwrap_or(text)).and_then(Self::of)
    }

    fn of(Bytes(bytes): Bytes) -> Result<Self, BadValue> {
        if bytes == 0 {
            return bad("0 would stop it for ever; leave the key out for no limit");
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0))
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Bytes::deserialize(deserializer)
            .and_then(|bytes| Self::of(bytes).map_err(de::Error::custom))
    }
}

/// A count of at least `MIN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count<const MIN: u64, const MAX: u64>(pub(super) u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        match u64::try_from(number) {
            Ok(count) if (MIN..=MAX).contains(&count) => Ok(Self(count)),
            _ => Err(de::Error::custom(format!(
                "{number} is out of range; write a number from {MIN} to {MAX}"
            ))),
        }
    }
}

/// A short name: of a policy, a home, a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

impl Name {
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if text.len() > 64 || !begins || !text.chars().all(fine) {
            return bad(format!(
                "{text:?} is not a name: use up to 64 of A-Z a-z 0-9 . _ -, and begin with a letter or digit"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Where the payload's home is: `private` or `persistent:<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// An empty folder in memory, gone with the cage.
    Private,
    Persistent(Name),
}

impl<'de> Deserialize<'de> for Home {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(':') {
            None if text == "private" => Ok(Self::Private),
            Some(("persistent", name)) => {
                Name::parse(name).map(Self::Persistent).map_err(de::Error::custom)
            }
            _ => Err(de::Error::custom(format!(
                "{text:?} is not a home; write \"private\" or \"persistent:NAME\""
            ))),
        }
    }
}

/// What the host must be able to do, or nothing starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    Userns,
    Seccomp,
    /// At least this ABI.
    Landlock(u32),
    CgroupMemory,
    CgroupSwap,
    CgroupPids,
    CgroupCpu,
    CgroupIo,
}

impl Requirement {
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        Ok(match text {
            "userns" => Self::Userns,
            "seccomp" => Self::Seccomp,
            "landlock" => Self::Landlock(1),
            "cgroup.memory" => Self::CgroupMemory,
            "cgroup.swap" => Self::CgroupSwap,
            "cgroup.pids" => Self::CgroupPids,
            "cgroup.cpu" => Self::CgroupCpu,
            "cgroup.io" => Self::CgroupIo,
            other => match other.strip_prefix("landlock>=").map(str::parse) {
                Some(Ok(abi)) if (1..=99).contains(&abi) => Self::Landlock(abi),
                _ => {
                    return bad(format!(
                        "{text:?} is nothing that can be required; known are userns, seccomp, \
                         landlock>=N, cgroup.memory, cgroup.swap, cgroup.pids, cgroup.cpu, cgroup.io"
                    ));
                }
            },
        })
    }
}

impl Requirement {
    /// The wall that it is about, as errors and `inspect` name it.
    #[must_use]
    pub const fn wall(self) -> &'static str {
        match self {
            Self::Userns => "userns",
            Self::Seccomp => "seccomp",
            Self::Landlock(_) => "landlock",
            Self::CgroupMemory => "cgroup.memory",
            Self::CgroupSwap => "cgroup.swap",
            Self::CgroupPids => "cgroup.pids",
            Self::CgroupCpu => "cgroup.cpu",
            Self::CgroupIo => "cgroup.io",
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Landlock(abi) => write!(f, "landlock>={abi}"),
            Self::Userns
            | Self::Seccomp
            | Self::CgroupMemory
            | Self::CgroupSwap
            | Self::CgroupPids
            | Self::CgroupCpu
            | Self::CgroupIo => f.write_str(self.wall()),
        }
    }
}

impl<'de> Deserialize<'de> for Requirement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["500ms", "30s", "10m", "1h30m", "2d", "1d1h1m1s1ms"] {
            assert_eq!(Millis::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Millis(90_000).to_string(), "1m30s");
    }
}
