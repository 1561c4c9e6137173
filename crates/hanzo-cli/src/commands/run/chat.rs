//! The interactive chat.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hanzo_engine::EngineError;
use hanzo_text::chat::ChatMessage;
use hanzo_text::template::Adaptation;

use super::conversation::{Conversation, say_changes};
use super::input::{Entry, Input};
use super::{Manner, settings, show};
use crate::failure::{self, Interrupted};
use crate::out;
use crate::session::{Reply, Session, Settings};

const HELP: &str = "\
  /help                 this list
  /clear                forget the conversation
  /system [TEXT|none]   show, set or remove the system message
  /set [NAME VALUE]     show the settings, or change one
  /regen                another reply to the last message
  /save FILE            write the conversation to a file (JSON)
  /load FILE            go on with a conversation from a file
  /stats                tokens, speed and memory
  /exit                 leave (as does Ctrl-D)

  \"\"\" begins and ends a message of several lines; a \\ at the end of a line goes on in the next.
  Ctrl-C stops a reply. A message that begins with a space may begin with a / after it.";

/// The commands of [`HELP`].
const COMMANDS: &[&str] = &["help", "clear", "system", "set", "regen", "save", "load", "stats", "exit"];

/// A chat and all that it remembers.
struct Chat {
    session: Session,
    settings: Settings,
    manner: Manner,
    conversation: Conversation,
    as_chat: bool,
    last: Option<Reply>,
    /// Changes by the chat template that the user was told of.
    told: Vec<Adaptation>,
}

/// What follows a command.
enum Next {
    Message,
    Leave,
}

/// Chats until the user leaves.
///
/// # Errors
/// Standard output or input that fails; [`Interrupted`] after Ctrl-C twice.
pub(super) fn run(
    session: Session,
    settings: Settings,
    manner: Manner,
    system: Option<String>,
    as_chat: bool,
) -> Result<()> {
    let mut input = Input::new(COMMANDS)?;
    if !manner.quiet {
        let how = if as_chat { "" } else { "Each message is continued on its own; nothing is remembered. " };
        out::aside(format_args!("{how}/help lists the commands, Ctrl-D leaves."));
    }
    let conversation = Conversation::new(system);
    let mut chat = Chat { session, settings, manner, conversation, as_chat, last: None, told: Vec::new() };
    let mut interrupted = false;
    loop {
        let message = match input.message()? {
            Entry::Message(message) => message,
            Entry::End => return Ok(()),
            Entry::Interrupted if interrupted => return Err(anyhow::Error::new(Interrupted)),
            Entry::Interrupted => {
                interrupted = true;
                out::aside(format_args!("(Ctrl-C again, or Ctrl-D, leaves)"));
                continue;
            }
        };
        interrupted = false;
        let outcome = match message.strip_prefix('/') {
            Some(command) => chat.command(command),
            None if message.trim().is_empty() => Ok(Next::Message),
            None => chat.say(message.trim()).map(|()| Next::Message),
        };
        match outcome {
            Ok(Next::Message) => {}
            Ok(Next::Leave) => return Ok(()),
            Err(error) if out::is_output_error(&error) => return Err(error),
            Err(error) => out::error(format_args!("{}", failure::chain(&error))),
        }
    }
}

impl Chat {
    /// A message of the user and the reply to it.
    fn say(&mut self, text: &str) -> Result<()> {
        self.conversation.push(ChatMessage::user(text));
        let outcome = self.reply();
        // What got no reply was not said.
        self.conversation.pop("user");
        outcome
    }

    /// Replies to the last message.
    fn reply(&mut self) -> Result<()> {
        let prompt = if self.as_chat {
            self.session.chat_prompt(&self.conversation.messages())?
        } else {
            let text = self.conversation.messages().last().map(ChatMessage::content_text).unwrap_or_default();
            self.session.text_prompt(&text)?
        };
        let changes: Vec<Adaptation> =
            prompt.changes.iter().copied().filter(|c| !self.told.contains(c)).collect();
        say_changes(&changes);
        self.told.extend(changes);
        let mut printer = show::Printer::new(&prompt);
        let outcome = self.session.reply(&prompt, &self.settings, &mut |text| printer.push(text));
        let reply = match outcome {
            Err(error) => return Err(self.explain(error)),
            Ok(reply) => reply,
        };
        printer.finish()?;
        if let Some(ending) = show::ending(&reply, self.session.engine().info().max_context)
            && !self.manner.quiet
        {
            out::aside(format_args!("{ending}"));
        }
        if self.manner.speed {
            out::aside(format_args!("{}", show::speed_line(&reply)));
        }
        if !self.as_chat {
            self.conversation.clear();
        } else if !reply.text.is_empty() {
            let (reasoning, answer) = show::parts(&reply, &prompt);
            let message = ChatMessage::assistant(&answer);
            // Templates that want earlier reasoning take it from here; the others leave it out.
            self.conversation.push(match reasoning {
                Some(reasoning) => message.with("reasoning_content", reasoning),
                None => message,
            });
        }
        self.last = Some(reply);
        Ok(())
    }

    /// Says what to do about a conversation that has become too long.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast_ref::<EngineError>() {
            Some(&EngineError::PromptTooLong { prompt, context }) => anyhow::anyhow!(
                "the conversation has {prompt} tokens with this message, the context holds {context}; /clear begins \
                 anew, /save keeps what was said, and --ctx at the start makes more room"
            ),
            _ => error,
        }
    }

    fn command(&mut self, line: &str) -> Result<Next> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match name {
            "help" | "?" => out::note(format_args!("{HELP}")),
            "exit" | "quit" | "bye" => return Ok(Next::Leave),
            "clear" => {
                self.conversation.clear();
                self.last = None;
                out::aside(format_args!("The conversation is forgotten."));
            }
            "system" => self.system(rest)?,
            "set" => self.set(rest)?,
            "regen" => self.regenerate()?,
            "save" => {
                let path = file_argument(name, rest)?;
                self.conversation.save(&path, &self.session.source.name())?;
                out::aside(format_args!(
                    "{} messages saved to {}.",
                    self.conversation.messages().len(),
                    path.display()
                ));
            }
            "load" => {
                self.needs_chat()?;
                let path = file_argument(name, rest)?;
                self.conversation = Conversation::load(&path)?;
                out::aside(format_args!("{} messages loaded.", self.conversation.messages().len()));
            }
            "stats" => self.stats(),
            _ => anyhow::bail!("there is no command /{name}; /help lists them"),
        }
        Ok(Next::Message)
    }

    fn needs_chat(&self) -> Result<()> {
        if self.as_chat {
            Ok(())
        } else {
            anyhow::bail!("this needs a chat format, and plain text is continued here")
        }
    }

    fn system(&mut self, text: &str) -> Result<()> {
        self.needs_chat()?;
        match text {
            "" => match &self.conversation.system {
                Some(system) => out::note(format_args!("{}", out::for_terminal(system))),
                None => out::aside(format_args!("There is no system message.")),
            },
            "none" => {
                self.conversation.system = None;
                out::aside(format_args!("The system message is removed."));
            }
            text => {
                self.conversation.system = Some(text.to_owned());
                out::aside(format_args!("The system message is set."));
            }
        }
        Ok(())
    }

    fn set(&mut self, rest: &str) -> Result<()> {
        if rest.is_empty() {
            out::note(format_args!("{}", settings::show(&self.settings)));
            return Ok(());
        }
        let Some((name, value)) = rest.split_once(char::is_whitespace) else {
            anyhow::bail!("/set NAME VALUE; /set alone shows all settings");
        };
        settings::set(&mut self.settings, name, value.trim()).map_err(anyhow::Error::msg)
    }

    fn regenerate(&mut self) -> Result<()> {
        let Some(old) = self.conversation.pop("assistant") else {
            anyhow::bail!("there is no reply yet");
        };
        if !self.conversation.ends_with("user") {
            self.conversation.push(old);
            anyhow::bail!("the last reply answers no message");
        }
        if self.settings.sampling.temperature == 0.0 || self.settings.seed.is_some() {
            out::aside(format_args!(
                "The same reply will come: the temperature is 0 or the seed is fixed (see /set)."
            ));
        }
        let outcome = self.reply();
        if !self.conversation.ends_with("assistant") {
            self.conversation.push(old);
        }
        outcome
    }

    fn stats(&self) {
        let info = self.session.engine().info();
        let memory = &info.memory;
        let mut lines = vec![
            format!(
                "model    {} ({} {})",
                self.session.source.name(),
                info.architecture,
                self.session.file_type
            ),
            format!("device   {}, loaded in {:.2} s", info.device, self.session.load_time.as_secs_f64()),
            format!(
                "memory   weights {}, KV cache {}, scratch {}",
                out::bytes(memory.weights),
                out::bytes(memory.kv),
                out::bytes(memory.arena)
            ),
        ];
        let finish = self.last.as_ref().map(|reply| reply.end.finish);
        let used = finish.map_or(0, |f| f.prompt_tokens + f.generated_tokens);
        lines.push(format!(
            "context  {used} of {} tokens, {} messages",
            info.max_context,
            self.conversation.len()
        ));
        if let Some(reply) = &self.last {
            lines.push(format!("last     {}", show::speed_line(reply)));
        }
        out::note(format_args!("{}", lines.join("\n")));
    }
}

/// The one file that a command takes; `~/` is the home directory.
fn file_argument(command: &str, rest: &str) -> Result<PathBuf> {
    if rest.is_empty() {
        anyhow::bail!("/{command} FILE: a file name is missing");
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    Ok(match (rest.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_the_help() {
        let listed =
            HELP.lines().filter_map(|line| line.trim_start().strip_prefix('/')?.split_whitespace().next());
        assert_eq!(listed.collect::<Vec<_>>(), COMMANDS);
    }
}
