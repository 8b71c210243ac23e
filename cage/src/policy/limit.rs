//! The value of one limit as text: how operators say it, and how it is shown.

use super::PolicyLimits;
use super::values::{BadValue, Bytes, Millis, Speed, cpu_milli};
use serde_json::Value;
use wire::limits::{LimitsAsked, Unit};

/// Unlike processes, files of a workspace have no number that everything needs.
const FILES: &str = "workspace_inodes";

/// `none` and null: no limit.
pub fn limit_asked(key: &str, unit: Unit, value: &Value) -> Result<Option<u64>, BadValue> {
    let text = match value {
        Value::Null => return Ok(None),
        Value::String(text) if text.trim() == "none" => return Ok(None),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(BadValue(format!("{other} is not the value of a limit")));
        }
    };
    if key == FILES {
        let count = text.trim().parse().ok().filter(|count| *count > 0);
        let bad = || BadValue(format!("{text:?} is no number of files"));
        return count.map(Some).ok_or_else(bad);
    }
    limit_value(unit, &text).map(Some)
}

impl PolicyLimits {
    /// Keys and values as in `[limits]`, laid over what the policy says.
    pub(super) fn set(&mut self, asked: &LimitsAsked) -> Result<(), BadValue> {
        for (key, value) in asked {
            let key = key.strip_prefix("limits.").unwrap_or(key);
            let (unit, field) = self.field(key)?;
            let bad = |BadValue(why)| BadValue(format!("{key}: {why}"));
            *field = limit_asked(key, unit, value).map_err(bad)?;
        }
        Ok(())
    }

    fn field(&mut self, key: &str) -> Result<(Unit, &mut Option<u64>), BadValue> {
        Ok(match key {
            "memory" => (Unit::Bytes, &mut self.memory_bytes),
            "swap" => (Unit::Bytes, &mut self.swap_bytes),
            "pids" => (Unit::Count, &mut self.pids),
            "cpu" => (Unit::MilliCpu, &mut self.cpu_milli),
            "io" => (Unit::BytesPerSecond, &mut self.io_bytes),
            "walltime" => (Unit::Ms, &mut self.walltime_ms),
            "idle" => (Unit::Ms, &mut self.idle_ms),
            "output_bytes" => (Unit::Bytes, &mut self.output_bytes),
            "workspace_bytes" => (Unit::Bytes, &mut self.workspace_bytes),
            FILES => (Unit::Count, &mut self.workspace_inodes),
            other => {
                let words = format!(
                    "there is no limit {other:?} for a flag; known are memory, swap, pids, cpu, io, \
                     walltime, idle, output_bytes, workspace_bytes, workspace_inodes"
                );
                return Err(BadValue(words));
            }
        })
    }
}

/// What a policy's key of this unit takes.
fn limit_value(unit: Unit, text: &str) -> Result<u64, BadValue> {
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
    use crate::policy::load;
    use wire::PolicySource;

    #[test]
    fn asked_limits_are_laid_over_the_policys() {
        let mut limits = load(&PolicySource::Name("shell".into()), &[]).unwrap().limits;
        let asked = |text: &str| serde_json::from_str::<LimitsAsked>(text).unwrap();
        let text = r#"{"memory": "2G", "pids": "none", "idle": "10m", "cpu": 1.5,
            "limits.output_bytes": "1M", "workspace_inodes": 3, "io": "5M/s"}"#;
        limits.set(&asked(text)).unwrap();
        assert_eq!((limits.memory_bytes, limits.pids), (Some(2 << 30), None));
        assert_eq!((limits.idle_ms, limits.cpu_milli), (Some(600_000), Some(1500)));
        assert_eq!((limits.output_bytes, limits.workspace_inodes), (Some(1 << 20), Some(3)));
        assert_eq!(limits.io_bytes, Some(5 << 20));
        for (bad, word) in [
            (r#"{"memroy": "2G"}"#, "known are"),
            (r#"{"memory": "much"}"#, "memory: "),
            (r#"{"pids": [1]}"#, "not the value"),
            (r#"{"workspace_inodes": 0}"#, "number of files"),
        ] {
            let BadValue(why) = limits.set(&asked(bad)).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

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
