//! One way of telling results: a JSON line, or the same fields for people.

use serde_json::Value;

/// Prints `fields` (a JSON object) as one line of JSON, or as `title: key value, …`.
pub fn print(title: &str, fields: &Value, json: bool) {
    if json {
        println!("{fields}");
        return;
    }
    let mut parts = Vec::new();
    flatten("", fields, &mut parts);
    println!("{title}: {}", parts.join(", "));
}

fn flatten(prefix: &str, v: &Value, out: &mut Vec<String>) {
    match v {
        Value::Null => {}
        Value::Object(m) => {
            for (k, v) in m {
                let key = if prefix.is_empty() {
                    k.clone()
                } else {
                    format!("{prefix}.{k}")
                };
                flatten(&key, v, out);
            }
        }
        Value::String(s) => out.push(format!("{prefix} {s}")),
        Value::Number(n) if n.is_f64() => {
            out.push(format!("{prefix} {:.3}", n.as_f64().unwrap_or_default()));
        }
        other => out.push(format!("{prefix} {other}")),
    }
}
