//! Responses that are kept: in memory, the newest, within bounds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// Most responses, and most bytes of their JSON.
const MAX_RESPONSES: usize = 4096;
const MAX_BYTES: usize = 64 << 20;

/// The store.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<String, Entry>,
    /// Oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    response: Value,
    /// All that was said, this response included, in the form that chat completions have.
    conversation: Arc<[Value]>,
    bytes: usize,
}

impl Store {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Each change is whole before the lock goes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a response and what was said; forgets the oldest ones for it where need be.
    pub(crate) fn put(&self, id: &str, response: Value, conversation: Arc<[Value]>) {
        let text: usize = conversation.iter().map(|m| m.to_string().len()).sum();
        let bytes = response.to_string().len() + text;
        let mut kept = self.kept();
        while kept.bytes + bytes > MAX_BYTES || kept.order.len() >= MAX_RESPONSES {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some(entry) = kept.by_id.remove(&oldest) {
                kept.bytes -= entry.bytes;
            }
        }
        if bytes > MAX_BYTES {
            return;
        }
        kept.bytes += bytes;
        kept.order.push_back(id.to_owned());
        kept.by_id.insert(id.to_owned(), Entry { response, conversation, bytes });
    }

    /// A response by its id.
    pub(crate) fn get(&self, id: &str) -> Option<Value> {
        self.kept().by_id.get(id).map(|e| e.response.clone())
    }

    /// What was said up to a response.
    pub(crate) fn conversation(&self, id: &str) -> Option<Arc<[Value]>> {
        self.kept().by_id.get(id).map(|e| Arc::clone(&e.conversation))
    }

    /// Forgets a response; `false` if there is none.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let mut kept = self.kept();
        let Some(entry) = kept.by_id.remove(id) else { return false };
        kept.bytes -= entry.bytes;
        kept.order.retain(|kept| kept != id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_are_kept_within_bounds() {
        let store = Store::default();
        for i in 0..MAX_RESPONSES + 10 {
            store.put(&i.to_string(), json!({"id": i}), Arc::from([json!(i)]));
        }
        assert!(store.get("9").is_none() && store.get("10").is_some());
        assert_eq!(store.conversation("4000").unwrap()[0], 4000);
        assert!(store.remove("4000") && !store.remove("4000") && store.get("4000").is_none());
        let before = store.kept().bytes;
        store.put("big", json!("x".repeat(MAX_BYTES)), Arc::from([]));
        assert!(store.get("big").is_none());
        assert!(store.kept().bytes <= before);
    }
}
