//! Byte strings that are nearly always UTF-8: arguments, environment, paths.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An argument as the kernel sees it. In JSON a string where it is UTF-8, else an array of bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Arg(pub Vec<u8>);

impl Arg {
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    #[must_use]
    pub fn to_os_string(&self) -> OsString {
        OsString::from_vec(self.0.clone())
    }

    /// For people: bytes that are not UTF-8 become U+FFFD, control characters stay.
    #[must_use]
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lossy())
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&OsStr> for Arg {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<OsString> for Arg {
    fn from(text: OsString) -> Self {
        Self(text.into_vec())
    }
}

impl Serialize for Arg {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_not_utf8) => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Arg {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Bytes(Vec<u8>),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Text(text) => Self(text.into_bytes()),
            Form::Bytes(bytes) => Self(bytes),
        })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Arg {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Arg".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let (text, bytes) =
            (generator.subschema_for::<String>(), generator.subschema_for::<Vec<u8>>());
        schemars::json_schema!({
            "description": "A string, or an array of bytes where it is not UTF-8.",
            "anyOf": [text, bytes],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf8_is_a_string_and_the_rest_is_bytes() {
        for (bytes, json) in [(b"abc".to_vec(), "\"abc\""), (vec![0xff, 0x41], "[255,65]")] {
            let arg = Arg(bytes);
            assert_eq!(serde_json::to_string(&arg).unwrap(), json);
            assert_eq!(serde_json::from_str::<Arg>(json).unwrap(), arg);
        }
    }
}
