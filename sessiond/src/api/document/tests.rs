use super::*;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn what_is_checked_in_is_what_is_served() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let text = text();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&page, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&page).unwrap();
    assert!(
        text == kept,
        "docs/openapi.json is another API: run with UPDATE_GOLDEN=1 and read the difference"
    );
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get("$ref") {
                found.push(target.clone());
            }
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50, "{found:?}");
    for target in found {
        let place = target.strip_prefix('#').unwrap();
        assert!(document.pointer(place).is_some(), "{target}");
    }
    let mut names = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} again: {method} {path}");
            let answers = operation["responses"].as_object().unwrap();
            assert!(
                answers.keys().any(|status| status != "default"),
                "{method} {path} gives nothing"
            );
        }
    }
}

#[test]
fn every_post_that_changes_something_takes_an_id() {
    let document = document();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let Some(post) = operations.get("post") else { continue };
        let schema = &post["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        let schema = schema.as_str().and_then(|target| document.pointer(&target[1..]));
        let in_body =
            schema.is_some_and(|schema| schema["properties"].get("client_request_id").is_some());
        let in_query = post["parameters"].as_array().is_some_and(|parameters| {
            parameters.iter().any(|parameter| parameter["name"] == "client_request_id")
        });
        // It only waits, or only tells; and after a shutdown there is nobody to ask again.
        let needs_none = ["/plan", "/ptys/{t}/wait", "/shutdown"].contains(&path.as_str());
        assert_eq!(in_body || in_query, !needs_none, "{path}");
    }
}

/// A route beside the table would be described nowhere and tried by no matrix.
#[test]
fn the_table_is_the_only_place_where_routes_are_made() {
    let mut places = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("document/tests.rs") {
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let calls = text.matches(".route(").count();
                places.extend(std::iter::repeat_n(path, calls));
            }
        }
    }
    assert!(matches!(places.as_slice(), [one] if one.ends_with("api/routes.rs")), "{places:?}");
}
