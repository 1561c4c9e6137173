//! What was said so far, in memory and in files.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use hanzo_text::chat::ChatMessage;
use hanzo_text::template::Adaptation;
use serde_json::json;

use crate::file::Draft;
use crate::out;

/// A system message and the turns after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    pub(super) system: Option<String>,
    turns: Vec<ChatMessage>,
}

impl Conversation {
    pub(super) fn new(system: Option<String>) -> Self {
        Self { system, turns: Vec::new() }
    }

    pub(super) fn messages(&self) -> Vec<ChatMessage> {
        let system = self.system.as_deref().map(ChatMessage::system);
        system.into_iter().chain(self.turns.iter().cloned()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(super) fn push(&mut self, message: ChatMessage) {
        self.turns.push(message);
    }

    /// Takes the last turn back if it is of that role.
    pub(super) fn pop(&mut self, role: &str) -> Option<ChatMessage> {
        self.turns.pop_if(|message| message.role() == role)
    }

    pub(super) fn ends_with(&self, role: &str) -> bool {
        self.turns.last().is_some_and(|message| message.role() == role)
    }

    /// Forgets the turns, not the system message.
    pub(super) fn clear(&mut self) {
        self.turns.clear();
    }

    /// Writes the conversation to a file, in full or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn save(&self, path: &Path, model: &str) -> Result<()> {
        let json = json!({"model": model, "messages": self.messages()});
        let context = || format!("cannot save to {}", path.display());
        let mut file = Draft::create(path).with_context(context)?;
        writeln!(file, "{json:#}").and_then(|()| file.commit()).with_context(context)?;
        Ok(())
    }

    /// Reads a conversation: what [`save`](Self::save) wrote, or any list of messages.
    ///
    /// # Errors
    /// When the file cannot be read or is no conversation.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let (mut turns, _) = crate::commands::template::conversation(path)?;
        let first_is_system = turns.first().is_some_and(|message| message.role() == "system");
        let system = first_is_system.then(|| turns.remove(0).content_text());
        Ok(Self { system, turns })
    }
}

/// Tells what the template did not take as it was.
pub(super) fn say_changes(changes: &[Adaptation]) {
    for change in changes {
        let what = match change {
            Adaptation::SystemMerged => "has no system messages: it was put before the first user message",
            Adaptation::ContentJoined => "takes content as one text: parts were joined",
            Adaptation::ToolsIgnored => "knows no tools: the model does not see them",
            // The same content in another form.
            _ => continue,
        };
        out::aside(format_args!("The model's chat format {what}."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat.json");
        let mut chat = Conversation::new(Some("Be brief.".into()));
        chat.push(ChatMessage::user("Hi \"you\"\n"));
        chat.push(ChatMessage::assistant("Hello."));
        chat.save(&path, "m").unwrap();
        let loaded = Conversation::load(&path).unwrap();
        assert_eq!(loaded.messages(), chat.messages());
        assert_eq!((loaded.system.as_deref(), loaded.len()), (Some("Be brief."), 2));
    }

    #[test]
    fn what_is_no_conversation_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat.json");
        std::fs::write(&path, r#"[{"role": "user", "content": "a"}, {"role": 5}]"#).unwrap();
        let error = format!("{:#}", Conversation::load(&path).unwrap_err());
        assert!(error.contains("message 1") && error.contains("/role"), "{error}");
    }
}
