//! `keep_alive`: how long a model stays in memory after a request.

use std::time::Duration;

use serde_json::Value;

use crate::context::Notes;
use crate::error::ApiError;
use crate::registry::{Keep, Registry};

/// Longest time that is told apart from for ever.
const MOST: f64 = 100.0 * 365.0 * 24.0 * 3600.0;

/// Reads the field: seconds, or a text such as `10m` or `1h30m`; below zero is for ever. `None` where the request does not say.
///
/// # Errors
/// What is neither.
pub(super) fn read(value: Option<&Value>) -> Result<Option<Keep>, ApiError> {
    let seconds = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(n)) => n.as_f64(),
        Some(Value::String(text)) => seconds(text.trim()),
        Some(_) => None,
    };
    match seconds {
        Some(seconds) if !(0.0..=MOST).contains(&seconds) => Ok(Some(Keep::Forever)),
        Some(seconds) => Ok(Some(Keep::For(Duration::from_secs_f64(seconds)))),
        None => {
            let message =
                "expected seconds, or a time such as \"10m\" or \"1h30m\"; 0 unloads, below 0 is for ever";
            Err(ApiError::at("/keep_alive", message))
        }
    }
}

/// A time as Go writes it, or a number of seconds.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then_some(seconds);
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut total = 0.0;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (n, after) = rest.split_at(number);
        let unit = after.len() - after.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (unit, after) = after.split_at(unit);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += n.parse::<f64>().ok()? * scale;
        rest = after;
    }
    (!text.is_empty() && total.is_finite()).then_some(sign * total)
}

/// Has the model stay for so long, if the request says so.
pub(super) fn apply(registry: &Registry, model: &str, keep: Option<Keep>, notes: &Notes) {
    if let Some(keep) = keep
        && !registry.keep(model, keep)
    {
        notes.warn("keep_alive: the model was loaded at the start and stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_read_as_ollama_reads_them() {
        let keep = |value: Value| read(Some(&value)).unwrap();
        let time = |seconds| Some(Keep::For(Duration::from_secs_f64(seconds)));
        assert_eq!(read(None).unwrap(), None);
        assert_eq!(keep(json!(null)), None);
        for (value, wanted) in [
            (json!(0), time(0.0)),
            (json!("0"), time(0.0)),
            (json!("0s"), time(0.0)),
            (json!(90), time(90.0)),
            (json!("10m"), time(600.0)),
            (json!("1h30m"), time(5400.0)),
            (json!("1.5s"), time(1.5)),
            (json!("250ms"), time(0.25)),
            (json!(-1), Some(Keep::Forever)),
            (json!("-1m"), Some(Keep::Forever)),
            (json!("-1"), Some(Keep::Forever)),
            (json!(1e300), Some(Keep::Forever)),
        ] {
            assert_eq!(keep(value.clone()), wanted, "{value}");
        }
        for bad in [
            json!(true),
            json!(""),
            json!("soon"),
            json!("5d"),
            json!("m"),
            json!("1h30"),
            json!("1..5s"),
            json!("NaN"),
            json!([1]),
        ] {
            assert_eq!(read(Some(&bad)).unwrap_err().pointer.as_deref(), Some("/keep_alive"), "{bad}");
        }
    }
}
