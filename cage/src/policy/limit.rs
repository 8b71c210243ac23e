//! The value of one limit as text: how operators say it, and how it is shown.

use super::values::{BadValue, Bytes, Millis, Speed, cpu_milli};
use wire::limits::Unit;

/// What a policy's key of this unit takes.
pub fn limit_value(unit: Unit, text: &str) -> Result<u64, BadValue> {
    match unit {
        Unit::Bytes => Bytes::parse(text).map(|bytes| bytes.0),
        Unit::BytesPerSecond => Speed::parse(text).map(|speed| speed.0),
        Unit::Ms => Millis::parse(text).map(|time| time.0),
        Unit::Count => {
            let count = text
                .trim()
                .parse()
                .map_err(|_no_number| BadValue(format!("{text:?} is not a whole number")))?;
            checked_pids(count)
        }
        Unit::MilliCpu => {
            let cpus = text.trim().parse().map_err(|_no_number| {
                BadValue(format!("{text:?} is not a number of CPUs, such as 1.5"))
            })?;
            cpu_milli(cpus)
        }
    }
}

/// `2G`, `50M/s`, `1h30m`, `512`, `1.5`; `none`.
#[must_use]
pub fn limit_words(unit: Unit, value: Option<u64>) -> String {
    let Some(value) = value else { return "none".to_owned() };
    match unit {
        Unit::Bytes => Bytes(value).to_string(),
        Unit::BytesPerSecond => Speed(value).to_string(),
        Unit::Ms => Millis(value).to_string(),
        Unit::Count => value.to_string(),
        Unit::MilliCpu => {
            let text = format!("{}.{:03}", value / 1000, value % 1000);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

pub(super) fn checked_pids(pids: u64) -> Result<u64, BadValue> {
    if (8..=4_194_304).contains(&pids) {
        return Ok(pids);
    }
    Err(BadValue(format!("{pids} is out of range; write a number from 8 to 4194304")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_they_are_said() {
        for (unit, text, value) in [
            (Unit::Bytes, "2G", 2 << 30),
            (Unit::Ms, "1h30m", 5_400_000),
            (Unit::Count, "512", 512),
            (Unit::MilliCpu, "1.5", 1500),
            (Unit::MilliCpu, "2", 2000),
        ] {
            assert_eq!(limit_value(unit, text).unwrap(), value, "{text}");
            assert_eq!(limit_words(unit, Some(value)), text);
        }
        assert_eq!(limit_value(Unit::BytesPerSecond, "50M").unwrap(), 50 << 20);
        assert_eq!(limit_words(Unit::BytesPerSecond, Some(50 << 20)), "50M/s");
        for (unit, bad) in [
            (Unit::Bytes, "much"),
            (Unit::BytesPerSecond, "0"),
            (Unit::Ms, "5"),
            (Unit::Count, "3"),
            (Unit::Count, "-9"),
            (Unit::MilliCpu, "0"),
            (Unit::MilliCpu, "NaN"),
        ] {
            assert!(limit_value(unit, bad).is_err(), "{bad}");
        }
    }
}
