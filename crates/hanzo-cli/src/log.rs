//! Where the libraries' messages go: to standard error, a line each, as text or as JSON.

use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::out;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // Plain comments: documented values would stretch `--help`.
    // For people.
    Text,
    // One object a line, for machines.
    Json,
}

/// Shows messages up to a level, one line each.
struct Lines {
    level: Level,
    format: Format,
}

/// Shows the libraries' messages up to a level from now on.
pub(crate) fn init(level: Level, format: Format) {
    // Set once, at the start of the program; a second time would change nothing.
    let _ = tracing::subscriber::set_global_default(Lines { level, format });
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("hanzo")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        if self.format == Format::Json {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
            let mut fields = Fields(Map::new());
            fields.0.insert("time".to_owned(), ((time * 1e3).round() / 1e3).into());
            fields.0.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
            fields.0.insert("target".to_owned(), event.metadata().target().into());
            event.record(&mut fields);
            out::note(format_args!("{}", Value::Object(fields.0)));
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.fields);
        match level {
            Level::ERROR => out::error(format_args!("{text}")),
            Level::WARN => out::warning(format_args!("{text}")),
            Level::INFO => out::note(format_args!("{text}")),
            _ => out::aside(format_args!("{text}")),
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A line of text.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // Nobody needs more of a time.
        let _ = write!(self.fields, " {}={value:.1}", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// A line of JSON.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }
}
