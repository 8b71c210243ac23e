//! The result as JUnit XML: one suite with one test case.

use super::text;
use super::verdict::{Kind, Verdict};
use std::collections::BTreeMap;

/// Lines of output in a failure; `system-out` has more.
const LINES: usize = 50;

#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    /// The policy.
    pub(crate) class: &'a str,
    pub(crate) verdict: &'a Verdict,
    pub(crate) ms: u64,
    /// When it began, ISO 8601 in UTC.
    pub(crate) began: &'a str,
    pub(crate) properties: &'a BTreeMap<String, String>,
    /// The end of the output, and how many bytes of it are missing before.
    pub(crate) output: (&'a [u8], u64),
}

/// Well-formed whatever the command has printed.
pub(crate) fn xml(case: &Case<'_>) -> String {
    let output = text::plain(case.output.0);
    let verdict = case.verdict;
    let count = |kind| u8::from(verdict.kind == kind);
    let counts = format!(
        "tests=\"1\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"",
        count(Kind::Failed),
        count(Kind::Error),
        count(Kind::Skipped),
        seconds(case.ms),
    );
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"mews\" {counts}>\n\
         <testsuite name=\"mews run\" {counts} timestamp=\"{}\">\n",
        attribute(case.began)
    );
    if !case.properties.is_empty() {
        xml.push_str("<properties>\n");
        for (name, value) in case.properties {
            let (name, value) = (attribute(name), attribute(value));
            xml.push_str(&format!("<property name=\"{name}\" value=\"{value}\"/>\n"));
        }
        xml.push_str("</properties>\n");
    }
    xml.push_str(&format!(
        "<testcase classname=\"mews.{}\" name=\"{}\" time=\"{}\">\n",
        attribute(case.class),
        attribute(case.name),
        seconds(case.ms)
    ));
    xml.push_str(&result(verdict, &output));
    if !output.is_empty() {
        let missing = match case.output.1 {
            0 => String::new(),
            bytes => format!("[{bytes} bytes before this are not in the report]\n"),
        };
        xml.push_str(&format!("<system-out>{missing}{}</system-out>\n", content(&output)));
    }
    xml.push_str("</testcase>\n</testsuite>\n</testsuites>\n");
    xml
}

fn result(verdict: &Verdict, output: &str) -> String {
    let element = match verdict.kind {
        Kind::Passed => return String::new(),
        Kind::Failed => "failure",
        Kind::Error => "error",
        Kind::Skipped => "skipped",
    };
    let (cause, message) = (attribute(&verdict.cause), attribute(&verdict.message));
    let last = content(&text::last_lines(output, LINES));
    match verdict.kind {
        Kind::Skipped => format!("<skipped message=\"{message}\"/>\n"),
        Kind::Passed | Kind::Failed | Kind::Error => {
            let words = content(&text::plain(verdict.message.as_bytes()));
            let body = format!("{words}\n{last}");
            format!("<{element} type=\"{cause}\" message=\"{message}\">{body}</{element}>\n")
        }
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Text that is clean already.
fn content(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn attribute(text: &str) -> String {
    let text = content(&text::plain(text.as_bytes()));
    text.replace('"', "&quot;").replace('\n', "&#10;").replace('\t', "&#9;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(verdict: &Verdict, output: &[u8]) -> String {
        let properties = BTreeMap::from([("a<b".to_owned(), "\"1\"\n".to_owned())]);
        xml(&Case {
            name: "sh -c 'echo <&\">'",
            class: "ci",
            verdict,
            ms: 1234,
            began: "2026-11-28T12:00:00Z",
            properties: &properties,
            output: (output, 5),
        })
    }

    #[test]
    fn a_failure_has_cause_and_last_lines() {
        let verdict = Verdict {
            kind: Kind::Failed,
            cause: "exited".to_owned(),
            message: "exit status 7".to_owned(),
        };
        let xml = case(&verdict, b"one\ntwo ]]> </failure><error/> \x1b[1m&\x00\xff\n");
        assert!(xml.contains(r#"tests="1" failures="1" errors="0" skipped="0" time="1.234""#));
        assert!(xml.contains(r#"<failure type="exited" message="exit status 7">exit status 7"#));
        let printed = "one\ntwo ]]&gt; &lt;/failure&gt;&lt;error/&gt; &amp;\u{fffd}";
        assert_eq!(xml.matches(printed).count(), 2, "{xml}");
        assert!(xml.contains("[5 bytes before"), "{xml}");
        assert!(xml.contains(r#"<property name="a&lt;b" value="&quot;1&quot;&#10;"/>"#), "{xml}");
    }

    #[test]
    fn what_passed_has_its_output_alone() {
        let verdict =
            Verdict { kind: Kind::Passed, cause: "exited".to_owned(), message: String::new() };
        let xml = case(&verdict, b"fine\n");
        assert!(!xml.contains("<failure") && !xml.contains("<error"), "{xml}");
        assert!(xml.contains("fine\n</system-out>"), "{xml}");
    }
}
