//! The policies that are shipped, compiled in.

const PRESETS: &[(&str, &str)] = &[
    ("base", include_str!("../../../policies/base.toml")),
    ("shell", include_str!("../../../policies/shell.toml")),
    ("agent-offline", include_str!("../../../policies/agent-offline.toml")),
    ("ci", include_str!("../../../policies/ci.toml")),
    ("strict", include_str!("../../../policies/strict.toml")),
    ("pi", include_str!("../../../policies/pi.toml")),
    ("qwen", include_str!("../../../policies/qwen.toml")),
    ("codex", include_str!("../../../policies/codex.toml")),
    ("claude-code", include_str!("../../../policies/claude-code.toml")),
    ("opencode", include_str!("../../../policies/opencode.toml")),
];

pub(super) const COUNT: usize = PRESETS.len();

/// Their names, in the order in which they are documented.
#[must_use]
pub fn preset_names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// The text of one, comments and all.
#[must_use]
pub fn preset_text(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
