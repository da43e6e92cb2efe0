//! Differences between two YAML files. Comments, quotes and the order of keys are ignored.

use serde_json::Value;

/// Returns each difference: key, old value, new value. Texts that are not YAML are compared as a
/// whole.
pub fn differences(before: &str, after: &str) -> Vec<String> {
    // Keep `y` a text. Without a type it would be `true`, as in YAML 1.1.
    let options = serde_saphyr::options! { strict_booleans: true };
    let [one, other] = [before, after]
        .map(|text| serde_saphyr::from_str_with_options::<Value>(text, options.clone()).ok());
    match (one, other) {
        (Some(one), Some(other)) => {
            let mut found = Vec::new();
            compare("", &one, &other, &mut found);
            found
        }
        _ if before == after => Vec::new(),
        _ => vec!["the whole file".into()],
    }
}

fn compare(key: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let more = other.keys().filter(|name| !one.contains_key(*name));
            for name in one.keys().chain(more) {
                let path = match key {
                    "" => name.clone(),
                    key => format!("{key}.{name}"),
                };
                let [one, other] = [one, other].map(|all| all.get(name).unwrap_or(&Value::Null));
                compare(&path, one, other, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{key}[{index}]"), one, other, found);
            }
        }
        _ if before == after => {}
        _ => found.push(format!("{key}: {}, now {}", text(before), text(after))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_values_are_differences() {
        let one = "a: 1\nb: {c: [x, y]} # why\n";
        assert!(differences(one, "b:\n  c: ['x', \"y\"]\na: 1\n").is_empty());
        assert_eq!(
            differences(one, "a: 2\nb: {c: [x, z]}\nd: e\n"),
            [
                "a: 1, now 2",
                "b.c[1]: \"y\", now \"z\"",
                "d: nothing, now \"e\""
            ]
        );
        assert_eq!(
            differences(one, "a: 1\nb: {c: [x]}\n"),
            [r#"b.c: ["x","y"], now ["x"]"#]
        );
        assert_eq!(differences(one, "a: ["), ["the whole file"]);
    }
}
