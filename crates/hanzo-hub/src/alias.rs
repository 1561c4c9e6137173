//! Short names of well-known models: the table in `aliases.txt`.

use crate::name::Name;

static TABLE: &str = include_str!("aliases.txt");

/// A short name and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The short name.
    pub name: &'static str,
    /// `ORG/REPO:QUANT`.
    pub model: &'static str,
}

/// All aliases, in the table's order.
pub fn aliases() -> impl Iterator<Item = Alias> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Alias { name: words.next()?, model: words.next()? })
    })
}

/// What an alias stands for, without regard to case; `None` if it is none.
pub(crate) fn resolve(text: &str) -> Option<Name> {
    let alias = aliases().find(|alias| alias.name.eq_ignore_ascii_case(text))?;
    Name::parse_repo(alias.model, alias.model).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_name_and_a_model_with_its_type() {
        let mut seen = HashSet::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, _] = words.as_slice() else { panic!("not two words: {line}") };
            assert!(resolve(name).unwrap().variant.is_some(), "{line}");
            assert_eq!(*name, name.to_lowercase(), "{line}");
            assert!(!name.contains('/') && seen.insert(*name), "{line}");
        }
        assert!(seen.len() > 20);
    }
}
