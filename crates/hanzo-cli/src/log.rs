//! Where the libraries' messages go: warnings and errors to standard error, the rest too with `--verbose`.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::out;

/// Shows messages up to a level, one line each.
struct Lines {
    level: Level,
}

/// Shows the libraries' messages from now on.
pub(crate) fn init(verbose: bool) {
    let level = if verbose { Level::DEBUG } else { Level::WARN };
    // Set once, at the start of the program; a second time would change nothing.
    let _ = tracing::subscriber::set_global_default(Lines { level });
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
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.fields);
        match *event.metadata().level() {
            Level::ERROR => out::error(format_args!("{text}")),
            Level::WARN => out::warning(format_args!("{text}")),
            _ => out::aside(format_args!("{text}")),
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
