//! The agents, and what each needs in a cage: docs/agents.md says the same to people.

use super::install::installed;
use std::path::Path;

pub(super) struct Agent {
    /// Also of the preset that it runs under.
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    pub(super) version: &'static str,
    /// Below the prefix.
    pub(super) program: &'static str,
    /// Shell: makes the settings in its home, once.
    settings: &'static str,
    pub(super) headless: &'static [&'static str],
    pub(super) screen: &'static [&'static str],
    /// On its screen when it takes a question.
    pub(super) ready: &'static str,
    /// On its screen while a tool call runs.
    pub(super) busy: &'static str,
    /// What makes it end, typed.
    pub(super) leave: &'static str,
}

pub(super) const AGENTS: &[&Agent] = &[&PI, &QWEN, &CODEX, &CLAUDE, &OPENCODE];

pub(super) const PI: Agent = Agent {
    name: "pi",
    package: "@mariozechner/pi-coding-agent",
    version: "0.73.1",
    program: "bin/pi",
    settings: r#"mkdir -p ~/.pi/agent && echo '{"providers":{"mock":{"baseUrl":"http://127.0.0.1:8399/v1",
        "api":"openai-completions","apiKey":"x","models":[{"id":"mock-1"}]}}}' > ~/.pi/agent/models.json"#,
    headless: &["--provider", "mock", "--model", "mock-1", "-p", "--mode", "json", "go"],
    screen: &["--provider", "mock", "--model", "mock-1"],
    ready: r"\(mock\) mock-1",
    busy: "tool-started",
    leave: "/quit",
};

const QWEN: Agent = Agent {
    name: "qwen",
    package: "@qwen-code/qwen-code",
    version: "0.24.4",
    program: "bin/qwen",
    settings: "true",
    headless: &["--auth-type", "openai", "--approval-mode", "yolo", "-o", "json", "-p", "go"],
    screen: &["--auth-type", "openai", "--approval-mode", "yolo"],
    ready: "Type your message",
    busy: "tool-started",
    leave: "/quit",
};

/// Its own sandbox does not work within another one and fails in silence: off on purpose.
const CODEX: Agent = Agent {
    name: "codex",
    package: "@openai/codex",
    version: "0.171.0",
    program: "bin/codex",
    settings: r#"mkdir -p ~/.codex && echo 'model = "mock-1"
model_provider = "mock"
[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:8399/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"' > ~/.codex/config.toml"#,
    headless: &[
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "go",
    ],
    screen: &["--dangerously-bypass-approvals-and-sandbox"],
    // It takes text before, and no Enter.
    ready: "describe a task",
    // It shows the command once it has ended.
    busy: "esc to interrupt",
    leave: "/quit",
};

/// In full screen its first start asks about colours, folder and key, after it has looked for its vendor.
const CLAUDE: Agent = Agent {
    name: "claude-code",
    package: "@anthropic-ai/claude-code",
    version: "2.1.197",
    program: if cfg!(target_arch = "aarch64") {
        "lib/node_modules/@anthropic-ai/claude-code/node_modules/@anthropic-ai/claude-code-linux-arm64/claude"
    } else {
        "lib/node_modules/@anthropic-ai/claude-code/node_modules/@anthropic-ai/claude-code-linux-x64/claude"
    },
    settings: r#"echo '{"hasCompletedOnboarding":true,"customApiKeyResponses":{"approved":["caged"]},
        "projects":{"'$PWD'":{"hasTrustDialogAccepted":true}}}' > ~/.claude.json"#,
    headless: &[
        "-p",
        "go",
        "--output-format",
        "json",
        "--allowedTools",
        "Bash",
        "--model",
        "mock-1",
    ],
    screen: &["--allowedTools", "Bash", "--model", "mock-1"],
    ready: "for shortcuts",
    busy: "tool-started",
    leave: "/exit",
};

const OPENCODE: Agent = Agent {
    name: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    program: if cfg!(target_arch = "aarch64") {
        "lib/node_modules/opencode-ai/node_modules/opencode-linux-arm64/bin/opencode"
    } else {
        "lib/node_modules/opencode-ai/node_modules/opencode-linux-x64/bin/opencode"
    },
    settings: r#"mkdir -p ~/.config/opencode && echo '{"model":"mock/mock-1","provider":{"mock":{
        "npm":"@ai-sdk/openai-compatible","models":{"mock-1":{}},"options":{
        "baseURL":"http://127.0.0.1:8399/v1","apiKey":"x"}}}}' > ~/.config/opencode/opencode.json"#,
    headless: &["run", "--format", "json", "go"],
    screen: &[],
    ready: "Ask anything",
    busy: "tool-started",
    leave: "/exit",
};

impl Agent {
    /// Options and script that run it in a cage, with that provider.
    pub(super) fn caged(
        &self,
        socket: &Path,
        args: &[&str],
    ) -> anyhow::Result<(Vec<String>, String)> {
        let prefix = installed(self)?;
        let program = prefix.join(self.program);
        let words = args.join(" ");
        let script = format!("{}\nexec {} {words}", self.settings, program.display());
        let socket = format!("unix:{}", socket.display());
        let prefix = prefix.to_string_lossy().into_owned();
        let options = ["--policy", self.name, "--provider", &socket, "--read", &prefix];
        let home = ["--home", self.name];
        let options = options.into_iter().chain(home).map(str::to_owned).collect();
        Ok((options, script))
    }
}
