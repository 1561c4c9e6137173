//! Questions: JSON lines with a prompt, choices, and which of them is right.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// Most choices of a question.
const MAX_CHOICES: usize = 1000;

/// A multiple-choice question.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Question {
    /// Where it stands, counted from 1.
    pub(super) line: usize,
    /// What the file calls it; null if it does not.
    pub(super) id: Value,
    pub(super) prompt: String,
    pub(super) choices: Vec<String>,
    /// Index of the right choice.
    pub(super) answer: usize,
    /// Fields that mean nothing here.
    pub(super) unknown: Vec<String>,
}

/// The questions of a text, a line each; empty lines are skipped.
///
/// # Errors
/// What is wrong, with the line; no question at all.
pub(super) fn parse(text: &str) -> Result<Vec<Question>> {
    let mut questions = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut question = question(line).with_context(|| format!("line {}", i + 1))?;
        question.line = i + 1;
        questions.push(question);
    }
    ensure!(!questions.is_empty(), "there is no question");
    Ok(questions)
}

fn question(line: &str) -> Result<Question> {
    let value: Value = serde_json::from_str(line).context("this is no JSON")?;
    let Value::Object(fields) = value else { bail!("this is no JSON object") };
    let mut question = Question {
        prompt: field(&fields, "prompt")?.as_str().context("`prompt` is no string")?.to_owned(),
        ..Question::default()
    };
    let choices = field(&fields, "choices")?.as_array().context("`choices` is no array")?;
    ensure!(
        (2..=MAX_CHOICES).contains(&choices.len()),
        "`choices` has {} elements; 2 to {MAX_CHOICES} make a question",
        choices.len()
    );
    for (i, choice) in choices.iter().enumerate() {
        let choice = choice.as_str().with_context(|| format!("`choices[{i}]` is no string"))?;
        ensure!(!choice.trim().is_empty(), "`choices[{i}]` is empty");
        question.choices.push(choice.to_owned());
    }
    let answer = field(&fields, "answer")?;
    let index = answer.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n < choices.len());
    question.answer = index.with_context(|| {
        format!("`answer` is {answer}; it is the index of a choice, from 0 to {}", choices.len() - 1)
    })?;
    for (name, value) in &fields {
        match name.as_str() {
            "prompt" | "choices" | "answer" => {}
            "id" => question.id = value.clone(),
            _ => question.unknown.push(name.clone()),
        }
    }
    Ok(question)
}

fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a Value> {
    fields.get(name).with_context(|| format!("`{name}` is missing"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn questions_are_read() {
        let text = "\n{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1, \"id\": 7, \"topic\": \"x\"}\r\n  \n";
        let questions = parse(text).unwrap();
        let [q] = questions.as_slice() else { unreachable!() };
        assert_eq!((q.line, q.answer, q.choices.len(), q.id.as_u64()), (2, 1, 2, Some(7)));
        assert_eq!(q.unknown, ["topic"]);
    }

    #[test]
    fn faults_are_told_with_their_lines() {
        let good = r#"{"prompt": "a", "choices": ["b", "c"], "answer": 0}"#;
        for (bad, why) in [
            ("{", "no JSON"),
            ("[1]", "no JSON object"),
            (r#"{"choices": ["b", "c"], "answer": 0}"#, "`prompt` is missing"),
            (r#"{"prompt": 1, "choices": ["b", "c"], "answer": 0}"#, "`prompt` is no string"),
            (r#"{"prompt": "a", "choices": "bc", "answer": 0}"#, "`choices` is no array"),
            (r#"{"prompt": "a", "choices": ["b"], "answer": 0}"#, "1 elements"),
            (r#"{"prompt": "a", "choices": ["b", 2], "answer": 0}"#, "`choices[1]` is no string"),
            (r#"{"prompt": "a", "choices": ["b", " "], "answer": 0}"#, "`choices[1]` is empty"),
            (r#"{"prompt": "a", "choices": ["b", "c"], "answer": 2}"#, "`answer` is 2"),
            (r#"{"prompt": "a", "choices": ["b", "c"], "answer": -1}"#, "`answer` is -1"),
            (r#"{"prompt": "a", "choices": ["b", "c"], "answer": "b"}"#, "from 0 to 1"),
            (r#"{"prompt": "a", "choices": ["b", "c"]}"#, "`answer` is missing"),
        ] {
            let error = format!("{:#}", parse(&format!("{good}\n\n{bad}\n")).unwrap_err());
            assert!(error.contains("line 3") && error.contains(why), "{error}");
        }
        assert!(parse("\n \n").unwrap_err().to_string().contains("no question"));
    }
}
